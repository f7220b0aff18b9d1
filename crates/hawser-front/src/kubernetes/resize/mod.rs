//! Volumes grow when their claims ask for more.
//!
//! The claim says what is going on at each step, before it is done: the size that the driver is
//! asked for is written down first, so that whoever goes on after a crash asks for the same. A
//! volume that has grown already is grown again, which its driver answers at once.

mod decide;
mod status;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::{CapacityRange, ControllerExpandVolumeRequest};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::{info, warn};

use self::decide::{Amount, Progress, Step};
use super::bound::{Bound, change, settle};
use super::capability;
use super::error::ClusterError;
use super::events::About;
use super::objects::{Claim, Key, Object, Volume};
use super::office::{CALL_LIMIT, Office};
use super::queue::{Next, Queue};
use super::table::Changed;
use super::verdicts::Verdicts;
use crate::csi::within;

/// How many volumes grow at once: as many as with the sidecar.
const WORKERS: usize = 10;

/// When a claim is looked at again that was not as it had been seen.
const SOON: Duration = Duration::from_millis(500);

/// How often all claims are looked at, in case a change of one went unheard.
const ROUND: Duration = Duration::from_secs(600);

/// Makes volumes larger.
pub(super) struct Resizer {
    office: Arc<Office>,
    queue: Queue<Key>,
    verdicts: Verdicts,
}

/// What the driver made of a volume.
struct Expanded {
    size: u64,
    /// A node has to go on.
    node: bool,
}

impl Resizer {
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
        let same = |before: &Arc<Volume>| {
            before.spec.capacity == volume.spec.capacity
                && before.spec.claim_ref == volume.spec.claim_ref
        };
        if !changed.before.as_ref().is_some_and(same) {
            self.consider(Bound::by_volume(&self.office, volume));
        }
    }

    /// Works until it is told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let worker = self.clone();
        let work = move |key: Key| {
            let resizer = worker.clone();
            async move { resizer.work(&key).await }
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
        let Some(Bound { claim, volume }) = bound else { return };
        if is_open(&claim) || status::node_done(&claim, &volume).is_some() {
            self.queue.add(claim.key());
        }
    }

    async fn work(&self, key: &Key) -> Next {
        let Some(bound) = Bound::find(&self.office, key) else { return Next::Done };
        match self.go_on(key, bound).await {
            Ok(next) => next,
            Err(error) if error.is_conflict() => Next::After(SOON),
            // The watch will tell.
            Err(error) if error.is_absent() => Next::Done,
            Err(error) => {
                warn!(claim = %key, error = %error.sentence(), "a claim was not expanded");
                Next::Retry
            }
        }
    }

    async fn go_on(&self, key: &Key, mut bound: Bound) -> Result<Next, ClusterError> {
        if let Some(patch) = status::node_done(&bound.claim, &bound.volume) {
            bound.volume = self.change_volume(&bound.volume, &patch).await?;
        }
        let failed = self.verdicts.is_final(key);
        let claim = bound.claim.clone();
        let Step::Expand { to, from, begun } = decide::next(&claim, &bound.volume, failed) else {
            return Ok(Next::Done);
        };
        if let Some(pause) = self.verdicts.pause(key).filter(|_| begun) {
            return Ok(Next::After(pause));
        }
        if let Some(patch) = status::begin(&claim, to, begun) {
            bound.claim = change(&self.office, &claim, patch).await?;
        }
        if failed && !begun {
            // The pause was for another size.
            self.verdicts.failed(key);
        }
        let about = About::of(&*bound.claim);
        let message = format!("volume {} is being expanded to {}", bound.volume.name(), to.text);
        self.office.events.normal(about, "Resizing", message);
        let expanded = match self.expand(&bound, to).await {
            Ok(expanded) => expanded,
            Err(error) => return self.refused(&bound, error).await,
        };
        self.verdicts.forget(key);
        self.write_down(&bound, from, &expanded).await?;
        let volume = bound.volume.name();
        info!(claim = %key, volume.name = volume, size = expanded.size, node = expanded.node,
            "a volume was expanded");
        Ok(Next::Done)
    }

    async fn expand(&self, bound: &Bound, to: Amount<'_>) -> Result<Expanded, ClusterError> {
        let (source, service) = bound.source(&self.office)?;
        let request = ControllerExpandVolumeRequest {
            volume_id: source.volume_handle.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: i64::try_from(to.bytes).unwrap_or(i64::MAX),
                limit_bytes: 0,
            }),
            secrets: self.office.secret(source.controller_expand_secret_ref.as_ref()).await?,
            volume_capability: Some(capability::of_volume(&bound.volume)?),
        };
        let answer = service.controller_expand_volume(within(CALL_LIMIT, request)).await?;
        let answer = answer.into_inner();
        let size = u64::try_from(answer.capacity_bytes).unwrap_or_default().max(to.bytes);
        Ok(Expanded { size, node: answer.node_expansion_required })
    }

    /// Writes down what the driver has done.
    async fn write_down(
        &self,
        bound: &Bound,
        from: Amount<'_>,
        expanded: &Expanded,
    ) -> Result<(), ClusterError> {
        let Expanded { size, node } = *expanded;
        if let Some(patch) = status::volume(&bound.volume, from.text, size, node) {
            self.change_volume(&bound.volume, &patch).await?;
        }
        let (reason, message) = if node {
            settle(&self.office, &bound.claim, |claim| status::node_pending(claim, size)).await?;
            ("FileSystemResizeRequired", "a node has to make the file system grow")
        } else {
            settle(&self.office, &bound.claim, |claim| status::finished(claim, size)).await?;
            ("VolumeResizeSuccessful", "the volume was expanded")
        };
        self.office.events.normal(About::of(&*bound.claim), reason, message.to_owned());
        Ok(())
    }

    /// Writes down that the volume has not grown, as far as that is known.
    async fn refused(&self, bound: &Bound, error: ClusterError) -> Result<Next, ClusterError> {
        let (key, why) = (bound.claim.key(), error.sentence());
        warn!(claim = %key, volume.name = bound.volume.name(), error = %why,
            "a volume was not expanded");
        let about = About::of(&*bound.claim);
        self.office.events.warning(about, "VolumeResizeFailed", why.clone());
        let Some(code) = error.code() else { return Ok(Next::Retry) };
        if error.may_be_at_work() {
            self.verdicts.forget(&key);
            return Ok(Next::Retry);
        }
        let infeasible = is_infeasible(code);
        let next = if infeasible {
            Next::After(self.verdicts.infeasible(&key))
        } else {
            self.verdicts.failed(&key);
            Next::Retry
        };
        settle(&self.office, &bound.claim, |claim| status::failed(claim, infeasible, &why)).await?;
        Ok(next)
    }

    async fn change_volume(
        &self,
        volume: &Volume,
        patch: &serde_json::Value,
    ) -> Result<Arc<Volume>, ClusterError> {
        let changed = self.office.cluster.patch(&volume.key(), patch).await?;
        Ok(self.office.tables.volumes.tell(changed))
    }
}

/// True when a claim may ask for more than it has.
fn is_open(claim: &Claim) -> bool {
    let requested = Amount::of(&claim.spec.resources.requests);
    let capacity = Amount::of(&claim.status.capacity);
    match (requested, capacity) {
        (Some(requested), Some(capacity)) => claim.is_bound() && requested.bytes > capacity.bytes,
        (None, _) | (_, None) => false,
    }
}

/// True when a change of a claim is about its size. Conditions are not: they change with each
/// failure, which is repeated in its own time.
fn stirs(before: &Claim, now: &Claim) -> bool {
    before.uid() != now.uid()
        || before.is_bound() != now.is_bound()
        || before.volume_name() != now.volume_name()
        || before.spec.resources.requests != now.spec.resources.requests
        || before.status.capacity != now.status.capacity
        || Progress::of(before) != Progress::of(now)
}

/// The codes that say that the same call can never work.
fn is_infeasible(code: Code) -> bool {
    match code {
        Code::InvalidArgument | Code::OutOfRange | Code::NotFound => true,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => false,
    }
}
