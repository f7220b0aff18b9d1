//! Volumes whose claims went while they were made.
//!
//! A call whose outcome is not known is repeated until it is, also when nobody wants the volume any
//! more; what came of it is removed then. What a killed process leaves is found by the engine.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::{CreateVolumeRequest, DeleteVolumeRequest};
use tracing::{info, warn};

use super::Provisioner;
use crate::csi::within;
use crate::kubernetes::error::ClusterError;
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
    request: CreateVolumeRequest,
}

impl Begun {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, claim: &Claim, driver: &'static str, request: &CreateVolumeRequest) {
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
    /// Brings what was begun for a claim that is gone, or going, to an end. A claim of the same name
    /// that came since has its turn afterwards.
    pub(super) async fn forsake(&self, key: &Key, now: Option<&Claim>) -> Next {
        let Some(begun) = self.begun.lock().get(key).cloned() else { return Next::Done };
        // Its volume has an object that names it, so it is removed as any other.
        let volumes = &self.office.tables.volumes;
        if volumes.named(&begun.request.name).is_none()
            && let Err(error) = self.remove(begun).await
        {
            if !error.may_be_at_work() {
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

    async fn remove(&self, begun: Request) -> Result<(), ClusterError> {
        let services = self.office.driver(begun.driver);
        let Some(controller) = services.and_then(|services| services.controller()) else {
            return Ok(());
        };
        let secrets = begun.request.secrets.clone();
        let name = begun.request.name.clone();
        let made = match controller.create_volume(within(CALL_LIMIT, begun.request)).await {
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
