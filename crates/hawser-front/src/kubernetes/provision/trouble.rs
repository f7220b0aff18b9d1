//! What goes wrong, who is told of it, and when it is tried again.

use std::time::Duration;

use serde_json::json;
use tonic::Code;
use tracing::{info, warn};

use super::Provisioner;
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::events::About;
use crate::kubernetes::names::SELECTED_NODE;
use crate::kubernetes::objects::{Claim, Object};
use crate::kubernetes::queue::Next;

/// How soon a claim is looked at again that somebody else is at.
const SOON: Duration = Duration::from_secs(1);

/// When to try again what comes after its volume was made. No user is told, but of what does not pass
/// by itself ([`Provisioner::tell_refused`]): the claim has its volume, and may be bound by the time that
/// they read it.
pub(super) fn again(claim: &Claim, done: Result<(), ClusterError>) -> Next {
    let Err(error) = done else { return Next::Done };
    if is_changed(&error) {
        return Next::After(SOON);
    }
    warn!(claim = %claim.key(), reason = error.sentence(), "not done yet");
    Next::Retry
}

/// True when somebody else is at the object; what it is now comes with the watch.
fn is_changed(error: &ClusterError) -> bool {
    error.is_conflict() || error.is_absent()
}

impl Provisioner {
    /// Says why there is no volume, and when to try again.
    pub(super) async fn failed(&self, claim: &Claim, error: &ClusterError) -> Next {
        if is_changed(error) {
            return Next::After(SOON);
        }
        let (key, reason) = (claim.key(), error.sentence());
        let chosen = claim.annotation(SELECTED_NODE).is_some() && claim.volume_name().is_none();
        if error.code() == Some(Code::ResourceExhausted) && chosen {
            self.give_back(claim).await;
        }
        match error {
            ClusterError::NoNode(_) if chosen => {
                info!(claim = %key, reason, "given back to the scheduler");
                self.give_back(claim).await;
                return Next::Retry;
            }
            ClusterError::NotLeading => return Next::Retry,
            ClusterError::Api { .. } if error.is_throttled() => {
                info!(claim = %key, reason, "the API server has too much to do");
                return Next::Retry;
            }
            ClusterError::Driver(_) if error.code() == Some(Code::Aborted) => {
                info!(claim = %key, reason, "not done yet");
                return Next::After(SOON);
            }
            ClusterError::Api { .. }
            | ClusterError::Driver(_)
            | ClusterError::Wrong(_)
            | ClusterError::NotYet(_)
            | ClusterError::NoNode(_) => {}
        }
        warn!(claim = %key, reason, "no volume yet");
        self.office.events.warning(About::of(claim), "ProvisioningFailed", reason);
        Next::Retry
    }

    /// Says why the volume that was made has no object, where that does not pass by itself: a policy of
    /// the cluster may be against it. Without an object nothing is bound meanwhile.
    pub(super) fn tell_refused(&self, claim: &Claim, error: &ClusterError) {
        if error.is_refused() {
            let reason = error.sentence();
            self.office.events.warning(About::of(claim), "ProvisioningFailed", reason);
        }
    }

    /// Lets the scheduler choose another node: this one has no room, or is gone.
    async fn give_back(&self, claim: &Claim) {
        let patch = json!({ "metadata": {
            "uid": claim.uid(),
            "resourceVersion": claim.meta_version(),
            "annotations": { SELECTED_NODE: null },
        }});
        match self.office.cluster.patch::<Claim>(&claim.key(), &patch).await {
            Ok(claim) => drop(self.office.tables.claims.tell(claim)),
            Err(error) => {
                warn!(claim = %claim.key(), reason = error.sentence(), "not given back to the scheduler");
            }
        }
    }
}
