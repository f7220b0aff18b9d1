//! Volumes whose claims went, or found another volume, while they were made.
//!
//! A call whose outcome is not known is repeated until it is, also when nobody wants the volume any
//! more; what came of it is removed then. What a killed process leaves is found by the engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::{CreateVolumeRequest, DeleteVolumeRequest};
use tracing::{info, warn};

use super::Provisioner;
use super::request::volume_name;
use crate::csi::within;
use crate::kubernetes::error::{ClusterError, may_be_at_work};
use crate::kubernetes::objects::{Claim, Key, Object};
use crate::kubernetes::office::CALL_LIMIT;
use crate::kubernetes::queue::Next;

/// Requests that may have made something which no object names yet.
#[derive(Default)]
pub(super) struct Begun(Mutex<HashMap<Key, Request>>);

#[derive(Clone)]
struct Request {
    uid: String,
    driver: &'static str,
    request: Arc<CreateVolumeRequest>,
}

impl Begun {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(
        &self,
        claim: &Claim,
        driver: &'static str,
        request: &Arc<CreateVolumeRequest>,
    ) {
        let begun = Request { uid: claim.uid().to_owned(), driver, request: request.clone() };
        self.lock().insert(claim.key(), begun);
    }

    pub(super) fn end(&self, key: &Key) {
        self.lock().remove(key);
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// True when something was begun for an earlier claim of this name.
    pub(super) fn is_of_another(&self, key: &Key, uid: &str) -> bool {
        self.lock().get(key).is_some_and(|begun| begun.uid != uid)
    }
}

impl Provisioner {
    /// True when what was begun for this key is nobody's any more: its claim is going, has got
    /// another volume, or was followed by one of its name.
    pub(super) fn is_forsaken(&self, claim: &Claim) -> bool {
        let key = claim.key();
        let elsewhere = claim.volume_name().is_some_and(|name| name != volume_name(claim));
        self.begun.is_of_another(&key, claim.uid())
            || (self.begun.has(&key) && (claim.is_going() || elsewhere))
    }

    /// Brings what was begun for a claim that is gone, going or bound elsewhere to an end. A claim of
    /// the same name that came since has its turn afterwards.
    pub(super) async fn forsake(&self, key: &Key, now: Option<&Claim>) -> Next {
        let Some(begun) = self.begun.lock().get(key).cloned() else { return Next::Done };
        if let Err(error) = self.take_back(begun).await {
            // What the driver refuses for good stays; the engine may find it later.
            if error.code().is_some_and(|code| !may_be_at_work(code)) {
                self.begun.end(key);
            }
            warn!(claim = %key, reason = error.sentence(), "a volume that nobody wants is not gone yet");
            return Next::Retry;
        }
        self.begun.end(key);
        if now.is_some() {
            self.queue.add(key.clone());
        }
        Next::Done
    }

    /// Removes what was made, unless it has an object that names it: then it is removed as any other,
    /// or kept as that says. The answer to writing the object may have been lost, and the watch may
    /// be late, so the API server is asked.
    async fn take_back(&self, begun: Request) -> Result<(), ClusterError> {
        if self.office.has_volume(&begun.request.name).await? {
            return Ok(());
        }
        self.remove(begun).await
    }

    async fn remove(&self, begun: Request) -> Result<(), ClusterError> {
        let services = self.office.driver(begun.driver);
        let Some(controller) = services.and_then(|services| services.controller()) else {
            return Ok(());
        };
        let _making = self.making().await?;
        let (secrets, name) = (begun.request.secrets.clone(), begun.request.name.clone());
        let request = CreateVolumeRequest::clone(&begun.request);
        let made = match controller.create_volume(within(CALL_LIMIT, request)).await {
            Ok(made) => made.into_inner().volume.unwrap_or_default(),
            Err(status) => {
                let error = ClusterError::from(status);
                // A final answer: nothing is there.
                return if error.may_be_at_work() { Err(error) } else { Ok(()) };
            }
        };
        let request = DeleteVolumeRequest { volume_id: made.volume_id, secrets };
        controller.delete_volume(within(CALL_LIMIT, request)).await?;
        info!(volume = name, "removed: its claim went while it was made");
        Ok(())
    }
}
