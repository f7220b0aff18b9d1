//! Claims get volumes: what external-provisioner does, and what the controller-manager does to bind
//! them.

mod bind;
mod forsaken;
mod made;
mod mark;
mod request;
mod source;
#[cfg(test)]
mod tests;
mod trouble;

use std::sync::Arc;

use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::{CreateVolumeRequest, DeleteVolumeRequest, Volume as Made};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::error::ClusterError;
use super::events::About;
use super::names::{BIND_COMPLETED, CLONE_FINALIZER, SELECTED_NODE};
use super::objects::{Claim, Key, Object, StorageClass, Volume};
use super::office::{CALL_LIMIT, Office};
use super::queue::{Next, Queue};
use super::table::Changed;
use crate::csi::{Services, within};
use forsaken::Begun;
use mark::{MarkedLate, mark};
use request::{Wanted, volume_name};
use source::Named;

/// How many claims are worked on at once. Most of them wait for the controller-manager, at no cost but
/// their memory; how many requests are under way at once is limited elsewhere.
const WORKERS: usize = 512;

/// How many volumes are made at once.
const MAKING: usize = 64;

/// Makes volumes for claims.
pub(super) struct Provisioner {
    office: Arc<Office>,
    queue: Queue<Key>,
    begun: Begun,
    marked_late: MarkedLate,
    making: Semaphore,
}

/// What there is to do for a claim.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing, or it is somebody else's to do.
    Nothing,
    /// A volume is to be made and bound.
    Make { driver: String, class: String },
    /// A volume that was made is to be bound, or what is said of it to be put right.
    Bind,
    /// Nobody copies it any more.
    Release,
}

impl Provisioner {
    pub(super) fn new(office: Arc<Office>) -> Arc<Self> {
        Arc::new(Self {
            office,
            queue: Queue::default(),
            begun: Begun::default(),
            marked_late: MarkedLate::default(),
            making: Semaphore::new(MAKING),
        })
    }

    /// A claim has changed.
    pub(super) fn heard_claim(&self, changed: &Changed<Claim>) {
        let now = changed.now.as_deref();
        self.marked_late.heard(changed);
        // One that is gone is looked at, too: its volume may be under way.
        if now.is_none_or(|claim| self.step(claim) != Step::Nothing) {
            self.queue.add(changed.key.clone());
        }
        // Sources are waited for, and kept while they are copied.
        let of = |claim: &Claim| match source::named(claim) {
            Ok(Named::Claim(name)) => Some(Key::within(claim.key().namespace, name)),
            Ok(Named::Nothing | Named::Snapshot(_) | Named::Foreign(_)) | Err(_) => None,
        };
        let source = changed.before.as_deref().or(now).and_then(of);
        source.into_iter().for_each(|key| self.queue.add(key));
    }

    /// A volume has changed: its claim may be waiting for it.
    pub(super) fn heard_volume(&self, changed: &Changed<Volume>) {
        let Some(volume) = changed.now.as_deref() else { return };
        let ours = volume.csi().is_some_and(|csi| self.office.driver(&csi.driver).is_some());
        if let Some(claim) = volume.spec.claim_ref.as_ref().filter(|_| ours && !volume.is("Bound"))
        {
            self.queue.add(Key::within(&claim.namespace, &claim.name));
        }
    }

    /// A class has changed: claims that could not be served may be now.
    pub(super) fn heard_class(&self, changed: &Changed<StorageClass>) {
        let Some(class) = changed.now.as_deref() else { return };
        if self.office.driver(&class.provisioner).is_none() {
            return;
        }
        let waits = |claim: &Claim| claim.class_name() == Some(class.name()) && !claim.is_bound();
        for claim in self.office.tables.claims.all(waits) {
            self.queue.add(claim.key());
        }
    }

    /// Works until it is told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        // What was heard before everything was known may not have shown what there is to do.
        for claim in self.office.tables.claims.all(|claim| self.step(claim) != Step::Nothing) {
            self.queue.add(claim.key());
        }
        let this = self.clone();
        let work = move |key| this.clone().work(key);
        // What waits for its turn to be made is made by whoever comes next.
        let closing = async {
            stop.cancelled().await;
            self.making.close();
        };
        tokio::join!(closing, self.queue.run(WORKERS, stop.clone(), work));
    }

    fn step(&self, claim: &Claim) -> Step {
        if claim.is_going() {
            let copied = claim.has_finalizer(CLONE_FINALIZER);
            return if copied { Step::Release } else { Step::Nothing };
        }
        let Some(driver) = mark(claim).filter(|name| self.office.driver(name).is_some()) else {
            return Step::Nothing;
        };
        let own = volume_name(claim);
        if claim.volume_name().is_some_and(|name| name != own) {
            return Step::Nothing;
        }
        if let Some(volume) = self.office.tables.volumes.named(&own) {
            let done = claim.is_bound() && volume.is("Bound");
            // Whoever fills volumes gives them to other claims than they were made for.
            let ours = bind::belongs(&volume, claim);
            return if done || !ours { Step::Nothing } else { Step::Bind };
        }
        // It had a volume, whose object is gone: with its storage, or because somebody keeps that.
        // Neither is made up for by a new one, which would be empty, or be removed with the claim.
        if claim.is_bound() || claim.annotation(BIND_COMPLETED).is_some() {
            return Step::Nothing;
        }
        let class = claim.class_name().and_then(|name| self.office.tables.classes.named(name));
        let Some(class) = class.filter(|class| class.provisioner == driver) else {
            return Step::Nothing;
        };
        if class.waits_for_consumer()
            && claim.annotation(SELECTED_NODE).is_none()
            && claim.volume_name().is_none()
        {
            return Step::Nothing;
        }
        Step::Make { driver: driver.to_owned(), class: class.name().to_owned() }
    }

    async fn work(self: Arc<Self>, key: Key) -> Next {
        let Some(claim) = self.office.tables.claims.get(&key) else {
            return self.forsake(&key, None).await;
        };
        if self.is_forsaken(&claim) {
            return self.forsake(&key, Some(&claim)).await;
        }
        if self.office.tables.volumes.named(&volume_name(&claim)).is_some() {
            self.begun.end(&key);
        }
        match self.step(&claim) {
            Step::Nothing => Next::Done,
            Step::Release => trouble::again(&claim, self.release(&claim).await),
            Step::Bind => {
                let bound = bind::bind(&self.office, &claim, self.marked_late.turn(&key)).await;
                trouble::again(&claim, bound)
            }
            Step::Make { driver, class } => match self.provide(&claim, &driver, &class).await {
                Ok(None) => Next::Done,
                Ok(Some(object)) => trouble::again(&claim, self.hand_over(&claim, &object).await),
                Err(error) => self.failed(&claim, &error).await,
            },
        }
    }

    /// Makes the volume; answers the object that it is to have.
    async fn provide(
        &self,
        claim: &Claim,
        driver: &str,
        class: &str,
    ) -> Result<Option<Value>, ClusterError> {
        let (Some(services), Some(class)) =
            (self.office.driver(driver), self.office.tables.classes.named(class))
        else {
            return Ok(None);
        };
        if let Named::Foreign(kind) = source::named(claim)? {
            info!(claim = %claim.key(), kind, "left to whoever fills volumes from such things");
            return Ok(None);
        }
        let wanted = Wanted::of(&self.office, driver, claim, &class).await?;
        let made = self.make(services, claim, &wanted).await?;
        Ok(Some(made::volume(claim, &class, &wanted, &made)))
    }

    /// Writes down the volume that was made, and binds it.
    async fn hand_over(&self, claim: &Claim, object: &Value) -> Result<(), ClusterError> {
        bind::name(&self.office, claim).await?;
        let written = bind::write(&self.office, object).await;
        written.inspect_err(|error| self.tell_refused(claim, error))?;
        // Something names it now, and it goes with that, or stays as that says.
        self.begun.end(&claim.key());
        bind::finish(&self.office, claim, self.marked_late.turn(&claim.key())).await?;
        let message = format!("made volume {}", volume_name(claim));
        self.office.events.normal(About::of(claim), "ProvisioningSucceeded", message);
        Ok(())
    }

    /// The right to make a volume now.
    async fn making(&self) -> Result<SemaphorePermit<'_>, ClusterError> {
        self.making.acquire().await.map_err(|_| ClusterError::NotLeading)
    }

    /// Asks the driver for the volume, and notes the request for as long as its outcome matters.
    async fn make(
        &self,
        services: &Services,
        claim: &Claim,
        wanted: &Wanted,
    ) -> Result<Made, ClusterError> {
        let Some(controller) = services.controller() else {
            return Err(ClusterError::NotYet("this process has no controller".into()));
        };
        let _making = self.making().await?;
        self.begun.begin(claim, services.name(), &wanted.request);
        let request = CreateVolumeRequest::clone(&wanted.request);
        let answer = controller.create_volume(within(CALL_LIMIT, request)).await;
        let made = match answer {
            Ok(answer) => answer.into_inner().volume.unwrap_or_default(),
            Err(status) => {
                let error = ClusterError::from(status);
                if !error.may_be_at_work() {
                    self.begun.end(&claim.key());
                }
                return Err(error);
            }
        };
        let sourced = wanted.request.volume_content_source.is_some();
        let asked = wanted.request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
        let small = made.capacity_bytes != 0 && made.capacity_bytes < asked;
        if small || (sourced && made.content_source.is_none()) {
            let request = DeleteVolumeRequest {
                volume_id: made.volume_id,
                secrets: wanted.request.secrets.clone(),
            };
            controller.delete_volume(within(CALL_LIMIT, request)).await?;
            self.begun.end(&claim.key());
            let why = "the driver made something else than was asked for; it was removed";
            return Err(ClusterError::Wrong(why.into()));
        }
        Ok(made)
    }

    /// Takes off a mark of external-provisioner's: it keeps claims that are being copied, and what
    /// is copied here is kept by the engine.
    async fn release(&self, claim: &Claim) -> Result<(), ClusterError> {
        let key = claim.key();
        let copies = |other: &Claim| {
            other.key().namespace == key.namespace
                && !other.is_bound()
                && source::named(other).is_ok_and(|source| source == Named::Claim(&key.name))
        };
        if self.office.tables.claims.any(copies) {
            return Err(ClusterError::NotYet(format!("claim {key} is being copied")));
        }
        let left: Vec<_> =
            claim.finalizers().iter().filter(|there| *there != CLONE_FINALIZER).collect();
        let patch = json!({ "metadata": {
            "uid": claim.uid(), "resourceVersion": claim.meta_version(), "finalizers": left,
        }});
        self.office.tables.claims.tell(self.office.cluster.patch::<Claim>(&key, &patch).await?);
        Ok(())
    }
}
