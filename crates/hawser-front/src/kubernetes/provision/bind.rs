//! Binding: a claim and its volume name each other, and both say so.
//!
//! The controller-manager would do it, at the rate of its own limits, and it still does when this
//! process ends half-way: each state that is written here is one that it can go on from. The order is
//! chosen so that it has nothing to write meanwhile:
//!
//! 1. The claim names its volume. The controller-manager waits for a volume of that name.
//! 2. The volume is made, and names its claim. The controller-manager may say that it is Bound.
//! 3. The claim says that it is Bound, when the watch has brought the volume, which the
//!    controller-manager has then seen, too: a bound claim whose volume it does not know it would
//!    call Lost.
//! 4. If nobody did, the volume is said to be Bound.

use std::time::Duration;

use serde_json::{Value, json};
use tracing::debug;

use super::request::volume_name;
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::names::{BIND_COMPLETED, BOUND_BY_CONTROLLER};
use crate::kubernetes::objects::{Claim, Key, Object, Volume};
use crate::kubernetes::office::Office;

/// How long the watch may take to bring a volume that was made.
const WATCH_LIMIT: Duration = Duration::from_secs(5);

/// How long the controller-manager has to say that a volume is Bound before it is said here: both at
/// once would be a request too many.
const OTHERS_TURN: Duration = Duration::from_millis(300);

/// Makes the object of a volume, and binds it to the claim that it names.
pub(super) async fn write(
    office: &Office,
    claim: &Claim,
    object: &Value,
) -> Result<(), ClusterError> {
    if claim.volume_name().is_none() {
        name_volume(office, claim).await?;
    }
    let made = office.cluster.create::<Volume>("", object).await;
    match made {
        Ok(_) => {}
        // An earlier try, whose answer was lost.
        Err(error) if error.is_conflict() => {}
        Err(error) => return Err(error),
    }
    let name = volume_name(claim);
    let there = office.tables.volumes.seen(&Key::global(&name), WATCH_LIMIT).await;
    let Some(volume) = there else {
        return Err(ClusterError::NotYet(format!("volume {name} was made and is not seen yet")));
    };
    complete(office, claim, &volume).await
}

/// Binds a claim to the volume that was made for it.
pub(super) async fn bind(office: &Office, claim: &Claim) -> Result<(), ClusterError> {
    let Some(volume) = office.tables.volumes.named(&volume_name(claim)) else { return Ok(()) };
    if claim.volume_name().is_none() {
        name_volume(office, claim).await?;
    }
    complete(office, claim, &volume).await
}

async fn name_volume(office: &Office, claim: &Claim) -> Result<(), ClusterError> {
    let patch = json!({
        "metadata": { "uid": claim.uid(), "annotations": { BOUND_BY_CONTROLLER: "yes" } },
        "spec": { "volumeName": volume_name(claim) },
    });
    office.tables.claims.tell(office.cluster.patch::<Claim>(&claim.key(), &patch).await?);
    Ok(())
}

async fn complete(office: &Office, claim: &Claim, volume: &Volume) -> Result<(), ClusterError> {
    let owner = volume.spec.claim_ref.as_ref();
    if owner.is_none_or(|owner| owner.uid != claim.uid()) {
        let why = format!("volume {} belongs to another claim", volume.name());
        return Err(ClusterError::Wrong(why));
    }
    if !claim.is_bound() {
        let patch = bound(claim, volume);
        let claim = office.cluster.patch_status::<Claim>(&claim.key(), &patch).await?;
        office.tables.claims.tell(claim);
    }
    if !volume.is("Bound") {
        say_bound(office, volume).await?;
    }
    Ok(())
}

/// What a claim says of itself when it is bound: as the controller-manager writes it.
fn bound(claim: &Claim, volume: &Volume) -> Value {
    let mut status = json!({
        "phase": "Bound",
        "accessModes": volume.spec.access_modes,
        "capacity": volume.spec.capacity,
    });
    if let Some(class) = &volume.spec.volume_attributes_class_name {
        status["currentVolumeAttributesClassName"] = json!(class);
    }
    json!({
        "metadata": { "uid": claim.uid(), "annotations": { BIND_COMPLETED: "yes" } },
        "status": status,
    })
}

async fn say_bound(office: &Office, volume: &Volume) -> Result<(), ClusterError> {
    let key = volume.key();
    let is_bound = |volume: &Volume| volume.is("Bound");
    if office.tables.volumes.becomes(&key, OTHERS_TURN, is_bound).await {
        debug!(volume = %key, "the controller-manager said that it is bound");
        return Ok(());
    }
    let patch = json!({ "metadata": { "uid": volume.uid() }, "status": { "phase": "Bound" } });
    office.tables.volumes.tell(office.cluster.patch_status::<Volume>(&key, &patch).await?);
    Ok(())
}
