//! Volumes change their attributes when their claims name another VolumeAttributesClass.
//!
//! The class that the driver is asked for is written down in the claim first, so that whoever goes
//! on after a crash asks for the same until the outcome is known.

mod decide;
mod status;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use hawser_api::csi::v1::ControllerModifyVolumeRequest;
use hawser_api::csi::v1::controller_server::Controller;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::{info, warn};

use self::decide::Step;
use self::status::{Failure, Verdict};
use super::bound::{Bound, change, settle};
use super::error::{ClusterError, may_be_at_work};
use super::events::About;
use super::names::{MODIFY_SECRET, MODIFY_SECRET_NAMESPACE};
use super::objects::{AttributesClass, Claim, Key, Object, SecretRef, Volume};
use super::office::{CALL_LIMIT, Office};
use super::queue::{Next, Queue};
use super::table::Changed;
use super::verdicts::Verdicts;
use crate::csi::within;

/// How many volumes are changed at once: as many as with the sidecar.
const WORKERS: usize = 10;

/// When a claim is looked at again that was not as it had been seen.
const SOON: Duration = Duration::from_millis(500);

/// How often all claims are looked at, in case a change of one went unheard.
const ROUND: Duration = Duration::from_secs(600);

/// The reason of the events about what did not come about.
const FAILED: &str = "VolumeModifyFailed";

/// Changes the attributes of volumes.
pub(super) struct Modifier {
    office: Arc<Office>,
    queue: Queue<Key>,
    verdicts: Verdicts,
}

impl Modifier {
    pub(super) fn new(office: Arc<Office>) -> Arc<Self> {
        Arc::new(Self { office, queue: Queue::default(), verdicts: Verdicts::default() })
    }

    /// Hears of a change of a claim.
    pub(super) fn heard_claim(&self, changed: &Changed<Claim>) {
        let Some(claim) = &changed.now else { return self.verdicts.forget(&changed.key) };
        if changed.before.as_deref().is_none_or(|before| stirs(before, claim)) {
            self.consider(Bound::of(&self.office, claim.clone()));
        }
    }

    /// Hears of a change of a volume.
    pub(super) fn heard_volume(&self, changed: &Changed<Volume>) {
        let Some(volume) = &changed.now else { return };
        let before = changed.before.as_ref();
        if !before.is_some_and(|before| before.spec.claim_ref == volume.spec.claim_ref) {
            self.consider(Bound::by_volume(&self.office, volume));
        }
    }

    /// Hears of a change of a class: claims may wait for it.
    pub(super) fn heard_attributes_class(&self, changed: &Changed<AttributesClass>) {
        let (None, Some(_)) = (&changed.before, &changed.now) else { return };
        let name = Some(changed.key.name.as_str());
        let waits = |claim: &Claim| {
            let status = claim.status.modify_volume_status.as_ref();
            is_open(claim)
                && (claim.wanted_attributes() == name || status.and_then(decide::target) == name)
        };
        for claim in self.office.tables.claims.all(waits) {
            self.consider(Bound::of(&self.office, claim));
        }
    }

    /// Works until it is told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let worker = self.clone();
        let work = move |key: Key| {
            let modifier = worker.clone();
            async move { modifier.work(&key).await }
        };
        tokio::join!(self.queue.run(WORKERS, stop.clone(), work), self.rounds(stop));
    }

    async fn rounds(&self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(ROUND)).await.is_some() {
            for claim in self.office.tables.claims.all(is_open) {
                self.consider(Bound::of(&self.office, claim));
            }
        }
    }

    fn consider(&self, bound: Option<Bound>) {
        let Some(Bound { claim, .. }) = bound else { return };
        if is_open(&claim) {
            self.queue.add(claim.key());
        }
    }

    async fn work(&self, key: &Key) -> Next {
        let Some(bound) = Bound::find(&self.office, key) else { return Next::Done };
        match self.step(key, bound).await {
            Ok(next) => next,
            Err(error) if error.is_conflict() => Next::After(SOON),
            // The watch will tell.
            Err(error) if error.is_absent() => Next::Done,
            Err(error) => {
                warn!(claim = %key, error = %error.sentence(), "a claim was not modified");
                Next::Retry
            }
        }
    }

    async fn step(&self, key: &Key, bound: Bound) -> Result<Next, ClusterError> {
        let claim = bound.claim.clone();
        match decide::next(&claim, self.verdicts.is_final(key)) {
            Step::Nothing => Ok(Next::Done),
            Step::CallOff => {
                self.verdicts.forget(key);
                if let Some(patch) = status::called_off(&claim) {
                    change(&self.office, &claim, patch).await?;
                }
                let message = "the change of attributes was called off".to_owned();
                self.office.events.normal(About::of(&*claim), "VolumeModifyCanceled", message);
                Ok(Next::Done)
            }
            Step::GoOn(name) => match self.office.attributes_class(name).await? {
                Some(class) => self.apply(bound, &class).await,
                None => Ok(self.missing(&claim, name)),
            },
            Step::Begin(name) => self.begin(key, bound, name).await,
        }
    }

    async fn begin(&self, key: &Key, mut bound: Bound, name: &str) -> Result<Next, ClusterError> {
        let claim = bound.claim.clone();
        let begun = claim.status.modify_volume_status.as_ref().and_then(decide::target);
        match self.verdicts.pause(key) {
            Some(pause) if begun == Some(name) => return Ok(Next::After(pause)),
            // The pause was for another class.
            Some(_) => self.verdicts.failed(key),
            None => {}
        }
        let Some(class) = self.office.attributes_class(name).await? else {
            if let Some(patch) = status::pending(&claim) {
                change(&self.office, &claim, patch).await?;
            }
            return Ok(self.missing(&claim, name));
        };
        let driver = bound.volume.csi().map(|source| source.driver.as_str()).unwrap_or_default();
        if class.driver_name != driver {
            let why = format!("class {name} is for {}, not for {driver}", class.driver_name);
            return self.refused(&bound, name, Code::InvalidArgument, why).await;
        }
        if let Some(patch) = status::begin(&claim, name) {
            bound.claim = change(&self.office, &claim, patch).await?;
        }
        let message = format!("class {name} is being applied to volume {}", bound.volume.name());
        self.office.events.normal(About::of(&*claim), "VolumeModify", message);
        self.apply(bound, &class).await
    }

    /// Asks the driver, and writes down what it has done.
    async fn apply(&self, bound: Bound, class: &AttributesClass) -> Result<Next, ClusterError> {
        let (key, name) = (bound.claim.key(), class.name());
        if let Err(error) = self.modify(&bound, class).await {
            let why = error.sentence();
            if let Some(code) = error.code() {
                return self.refused(&bound, name, code, why).await;
            }
            self.office.events.warning(About::of(&*bound.claim), FAILED, why);
            return Err(error);
        }
        self.verdicts.forget(&key);
        if bound.volume.spec.volume_attributes_class_name.as_deref() != Some(name) {
            let patch = json!({ "spec": { "volumeAttributesClassName": name } });
            let changed = self.office.cluster.patch(&bound.volume.key(), &patch).await?;
            self.office.tables.volumes.tell(changed);
        }
        let settled =
            settle(&self.office, &bound.claim, |claim| status::finished(claim, name)).await?;
        let message = format!("class {name} was applied to volume {}", bound.volume.name());
        self.office.events.normal(About::of(&*settled), "VolumeModifySuccessful", message);
        info!(claim = %key, volume.name = bound.volume.name(), class = name,
            "a volume was modified");
        // Another class may have been named meanwhile.
        Ok(if is_open(&settled) { Next::After(Duration::ZERO) } else { Next::Done })
    }

    async fn modify(&self, bound: &Bound, class: &AttributesClass) -> Result<(), ClusterError> {
        let (source, service) = bound.source(&self.office)?;
        let secret = modify_secret(&bound.volume);
        let request = ControllerModifyVolumeRequest {
            volume_id: source.volume_handle.clone(),
            secrets: self.office.secret(secret.as_ref()).await?,
            mutable_parameters: class.parameters.clone().into_iter().collect(),
        };
        service.controller_modify_volume(within(CALL_LIMIT, request)).await?;
        Ok(())
    }

    /// Writes down that the class is not applied, as far as that is known.
    async fn refused(
        &self,
        bound: &Bound,
        class: &str,
        code: Code,
        why: String,
    ) -> Result<Next, ClusterError> {
        let key = bound.claim.key();
        warn!(claim = %key, volume.name = bound.volume.name(), class, error = %why,
            "a volume was not modified");
        self.office.events.warning(About::of(&*bound.claim), FAILED, why.clone());
        let verdict = verdict(code);
        let next = match verdict {
            Verdict::Open => {
                self.verdicts.forget(&key);
                Next::Retry
            }
            Verdict::Final => {
                self.verdicts.failed(&key);
                Next::Retry
            }
            Verdict::Infeasible => Next::After(self.verdicts.infeasible(&key)),
        };
        let failure = Failure { code: &format!("{code:?}"), why: &why, verdict };
        settle(&self.office, &bound.claim, |claim| status::failed(claim, class, failure)).await?;
        Ok(next)
    }

    /// Tells that a class is not there. It is looked at again when it comes.
    fn missing(&self, claim: &Claim, name: &str) -> Next {
        let message = format!("there is no VolumeAttributesClass {name}");
        self.office.events.warning(About::of(claim), FAILED, message);
        Next::Done
    }
}

/// The secret for changing a volume; without one of its own, that for expanding it.
fn modify_secret(volume: &Volume) -> Option<SecretRef> {
    let named = volume.annotation(MODIFY_SECRET).zip(volume.annotation(MODIFY_SECRET_NAMESPACE));
    match named {
        Some((name, namespace)) => {
            Some(SecretRef { name: name.to_owned(), namespace: namespace.to_owned() })
        }
        None => volume.csi()?.controller_expand_secret_ref.clone(),
    }
}

/// True when a claim names another class than its volume has, or a change of it has not ended.
fn is_open(claim: &Claim) -> bool {
    let same = claim.wanted_attributes() == claim.current_attributes();
    claim.is_bound() && (claim.status.modify_volume_status.is_some() || !same)
}

/// True when a change of a claim is about its class. Conditions are not: they change with each
/// failure, which is repeated in its own time.
fn stirs(before: &Claim, now: &Claim) -> bool {
    before.uid() != now.uid()
        || before.is_bound() != now.is_bound()
        || before.volume_name() != now.volume_name()
        || before.wanted_attributes() != now.wanted_attributes()
        || before.current_attributes() != now.current_attributes()
        || before.status.modify_volume_status != now.status.modify_volume_status
}

/// What a code means for the change.
fn verdict(code: Code) -> Verdict {
    if code == Code::InvalidArgument {
        Verdict::Infeasible
    } else if may_be_at_work(code) {
        Verdict::Open
    } else {
        Verdict::Final
    }
}
