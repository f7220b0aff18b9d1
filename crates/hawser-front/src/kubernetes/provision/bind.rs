//! Binding: a claim and its volume name each other, and both say so.
//!
//! The controller-manager would do it, at the rate of its own limits, and it still does when this
//! process ends half-way: each state that is written here is one that it can go on from. The order is
//! chosen so that it has nothing to write meanwhile:
//!
//! 1. The claim names its volume. The controller-manager waits for a volume of that name.
//! 2. The volume is made, and names its claim.
//! 3. The controller-manager says that the volume is Bound; if it does not in its time, it is said
//!    here.
//! 4. The claim says that it is Bound. A bound claim whose volume the controller-manager has not
//!    looked at yet it calls Lost, and it looks at one volume after the other. Who has said that a
//!    volume is Bound has looked at it; where it was said here, it is left some time to do so, which
//!    does not take long because it has nothing to write then.

use std::time::Duration;

use serde_json::{Value, json};
use tracing::debug;

use super::request::volume_name;
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::names::{BIND_COMPLETED, BOUND_BY_CONTROLLER, PRE_RESIZE_CAPACITY};
use crate::kubernetes::objects::{Claim, Key, Object, STORAGE, Volume};
use crate::kubernetes::office::Office;
use crate::kubernetes::quantity;

/// How long the watch may take to bring a volume that was made.
const WATCH_LIMIT: Duration = Duration::from_secs(5);

/// How long the controller-manager has to look at a volume that was said to be Bound here.
const LOOK: Duration = Duration::from_millis(300);

/// How long the controller-manager has to say that a volume is Bound before it is said here: both at
/// once would be a request too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has nothing else to write: what it does not do soon it does not come to.
    Short,
    /// It marks the claims of the cluster itself, all that there are before the first volume, and
    /// looks at no volume meanwhile.
    Long,
}

impl Turn {
    fn limit(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(300),
            Self::Long => Duration::from_secs(60),
        }
    }
}

/// Lets the claim name its volume.
pub(super) async fn name(office: &Office, claim: &Claim) -> Result<(), ClusterError> {
    if claim.volume_name().is_some() {
        return Ok(());
    }
    let patch = json!({
        "metadata": { "uid": claim.uid(), "annotations": { BOUND_BY_CONTROLLER: "yes" } },
        "spec": { "volumeName": volume_name(claim) },
    });
    office.tables.claims.tell(office.cluster.patch::<Claim>(&claim.key(), &patch).await?);
    Ok(())
}

/// Makes the object of a volume.
pub(super) async fn write(office: &Office, object: &Value) -> Result<(), ClusterError> {
    match office.cluster.make::<Volume>("", object).await {
        Ok(_) => Ok(()),
        // An earlier try, whose answer was lost.
        Err(error) if error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Binds a claim to the volume whose object was just made.
pub(super) async fn finish(office: &Office, claim: &Claim, turn: Turn) -> Result<(), ClusterError> {
    let name = volume_name(claim);
    let there = office.tables.volumes.seen(&Key::global(&name), WATCH_LIMIT).await;
    let Some(volume) = there else {
        return Err(ClusterError::NotYet(format!("volume {name} was made and is not seen yet")));
    };
    complete(office, claim, &volume, turn).await
}

/// Binds a claim to the volume that was made for it.
pub(super) async fn bind(office: &Office, claim: &Claim, turn: Turn) -> Result<(), ClusterError> {
    let Some(volume) = office.tables.volumes.named(&volume_name(claim)) else { return Ok(()) };
    name(office, claim).await?;
    complete(office, claim, &volume, turn).await
}

/// True when a volume is this claim's and nobody else's.
pub(super) fn belongs(volume: &Volume, claim: &Claim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|owner| owner.uid == claim.uid())
}

async fn complete(
    office: &Office,
    claim: &Claim,
    volume: &Volume,
    turn: Turn,
) -> Result<(), ClusterError> {
    if !belongs(volume, claim) {
        let why = format!("volume {} belongs to another claim", volume.name());
        return Err(ClusterError::Wrong(why));
    }
    if !volume.is("Bound") {
        say_bound(office, volume, turn).await?;
    }
    // It may have been bound meanwhile, and have changed since.
    let now = office.tables.claims.get(&claim.key());
    let claim = now.as_deref().filter(|now| now.uid() == claim.uid()).unwrap_or(claim);
    if !claim.is_bound() {
        let patch = bound(claim, volume);
        let claim = office.cluster.patch_status::<Claim>(&claim.key(), &patch).await?;
        office.tables.claims.tell(claim);
    }
    Ok(())
}

/// What a claim says of itself when it is bound: as the controller-manager writes it.
fn bound(claim: &Claim, volume: &Volume) -> Value {
    let mut capacity = volume.spec.capacity.clone();
    // The volume has grown and its file system has not: the kubelet looks at the claim to find out.
    let before = volume.annotation(PRE_RESIZE_CAPACITY);
    if let Some(before) = before.filter(|before| quantity::bytes(before).is_some()) {
        capacity.insert(STORAGE.to_owned(), before.to_owned());
    }
    let mut status = json!({
        "phase": "Bound",
        "accessModes": volume.spec.access_modes,
        "capacity": capacity,
    });
    if let Some(class) = &volume.spec.volume_attributes_class_name {
        status["currentVolumeAttributesClassName"] = json!(class);
    }
    json!({
        "metadata": { "uid": claim.uid(), "annotations": { BIND_COMPLETED: "yes" } },
        "status": status,
    })
}

async fn say_bound(office: &Office, volume: &Volume, turn: Turn) -> Result<(), ClusterError> {
    let key = volume.key();
    let is_bound = |volume: &Volume| volume.is("Bound");
    if office.tables.volumes.becomes(&key, turn.limit(), is_bound).await {
        debug!(volume = %key, "the controller-manager said that it is bound");
        return Ok(());
    }
    let patch = json!({ "metadata": { "uid": volume.uid() }, "status": { "phase": "Bound" } });
    office.tables.volumes.tell(office.cluster.patch_status::<Volume>(&key, &patch).await?);
    tokio::time::sleep(LOOK).await;
    Ok(())
}
