//! Claims together with the volumes that are bound to them, and changes of what claims say of
//! themselves.

use std::sync::Arc;

use hawser_api::csi::v1::controller_server::Controller;
use serde_json::{Value, json};

use super::error::ClusterError;
use super::objects::{Claim, CsiSource, Key, Object, Volume};
use super::office::Office;

/// How often a status is written anew when others write it at the same time.
const TRIES: usize = 4;

/// A claim and its volume, which name each other. The volume is of one of our drivers.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) claim: Arc<Claim>,
    pub(super) volume: Arc<Volume>,
}

impl Bound {
    /// The claim of this name, if it is such a one.
    pub(super) fn find(office: &Office, key: &Key) -> Option<Self> {
        Self::of(office, office.tables.claims.get(key)?)
    }

    /// This claim, if it is such a one.
    pub(super) fn of(office: &Office, claim: Arc<Claim>) -> Option<Self> {
        let volume = office.tables.volumes.named(claim.volume_name()?)?;
        let ours = |source: &CsiSource| office.driver(&source.driver).is_some();
        let fits = claim.is_bound() && belongs(&volume, &claim) && volume.csi().is_some_and(ours);
        fits.then_some(Self { claim, volume })
    }

    /// The claim that a volume is bound to, if they are such a pair.
    pub(super) fn by_volume(office: &Office, volume: &Volume) -> Option<Self> {
        let claim = volume.spec.claim_ref.as_ref()?;
        Self::find(office, &Key::within(&claim.namespace, &claim.name))
    }

    /// What the volume is to its driver, and the driver.
    pub(super) fn source<'a>(
        &'a self,
        office: &Office,
    ) -> Result<(&'a CsiSource, impl Controller + use<>), ClusterError> {
        let source = self.volume.csi();
        let source =
            source.ok_or_else(|| ClusterError::Wrong("the volume has no driver".into()))?;
        let service = office.driver(&source.driver).and_then(|driver| driver.controller());
        let service = service.ok_or_else(|| {
            ClusterError::NotYet(format!("no controller of {} is here", source.driver))
        })?;
        Ok((source, service))
    }
}

fn belongs(volume: &Volume, claim: &Claim) -> bool {
    let Some(to) = &volume.spec.claim_ref else { return false };
    // An empty uid is a volume that somebody has set aside by name; it is not bound yet.
    !to.uid.is_empty()
        && to.uid == claim.uid()
        && claim.metadata.namespace.as_deref() == Some(to.namespace.as_str())
}

/// Changes what a claim says of itself, if it is still as it was seen.
pub(super) async fn change(
    office: &Office,
    claim: &Claim,
    mut patch: Value,
) -> Result<Arc<Claim>, ClusterError> {
    patch["metadata"]["resourceVersion"] = json!(claim.metadata.resource_version);
    let changed = office.cluster.patch_status(&claim.key(), &patch).await?;
    Ok(office.tables.claims.tell(changed))
}

/// Changes what a claim says of itself, whatever others have changed since it was seen: the change
/// is made up anew from what is there, until it is none or is made.
pub(super) async fn settle(
    office: &Office,
    claim: &Arc<Claim>,
    making: impl Fn(&Claim) -> Option<Value>,
) -> Result<Arc<Claim>, ClusterError> {
    let mut seen = claim.clone();
    for _ in 1..TRIES {
        let Some(patch) = making(&seen) else { return Ok(seen) };
        match change(office, &seen, patch).await {
            Err(error) if error.is_conflict() => {}
            done => return done,
        }
        let gone = || ClusterError::NotYet(format!("claim {} is gone", claim.key()));
        let now: Claim = office.cluster.get(&claim.key()).await?.ok_or_else(gone)?;
        if now.uid() != claim.uid() {
            return Err(gone());
        }
        seen = Arc::new(now);
    }
    let Some(patch) = making(&seen) else { return Ok(seen) };
    change(office, &seen, patch).await
}
