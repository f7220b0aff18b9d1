//! The lease: of several processes one leads, and the others wait.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hawser_core::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::error::ClusterError;

/// The name of the lease.
const NAME: &str = "hawser-csi-controller";

/// After so long without a sign of life another process takes over, and the one that leads ends
/// itself before; how often it gives one. Those of the sidecars.
const DURATION: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);
const RENEWAL: Duration = Duration::from_secs(5);

/// How often those who wait look.
const LOOK: Duration = Duration::from_secs(2);

/// One process's wish to lead.
pub struct Leadership {
    api: Api<Lease>,
    holder: String,
    namespace: String,
    /// As it was won.
    won: Mutex<Option<Won>>,
}

/// The lease as this process wrote it.
struct Won {
    lease: Lease,
    /// When it was sent: others count from when they see it, which is later.
    sent: Instant,
}

/// What was last seen of another's lease: its time is counted here, because clocks differ.
struct Seen {
    version: Option<String>,
    since: Instant,
}

impl Leadership {
    /// Nothing is asked yet. `holder` tells this process from the others.
    pub fn new(client: Client, namespace: &str, holder: String) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, holder, namespace: namespace.to_owned(), won: Mutex::default() }
    }

    /// Waits until this process leads.
    pub async fn win(&self) {
        let mut seen = Seen { version: None, since: Instant::now() };
        let mut waiting = false;
        loop {
            match timeout(DEADLINE, self.try_win(&mut seen)).await {
                Ok(Ok(true)) => {
                    info!(holder = self.holder, "this process leads");
                    return;
                }
                Ok(Ok(false)) if !waiting => {
                    info!("another process leads; waiting");
                    waiting = true;
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) => warn!(%error, "the lease cannot be had"),
                Err(_) => warn!("the API server does not answer about the lease"),
            }
            sleep(LOOK).await;
        }
    }

    /// Keeps the lease; ends when it is lost, and before anybody else may have it.
    pub async fn keep(&self) -> ClusterError {
        let won = self.won.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (mut lease, mut renewed) =
            won.map_or_else(|| (None, Instant::now()), |won| (Some(won.lease), won.sent));
        let left = |since: Instant| DEADLINE.saturating_sub(since.elapsed());
        while !left(renewed).is_zero() {
            let sent = Instant::now();
            match timeout(left(renewed), self.renew(&mut lease)).await {
                Ok(Ok(true)) => renewed = sent,
                Ok(Ok(false)) => return ClusterError::NotLeading,
                Ok(Err(error)) => warn!(%error, "the lease was not renewed"),
                Err(_) => warn!("the API server does not answer about the lease"),
            }
            sleep(RENEWAL.min(left(renewed))).await;
        }
        ClusterError::NotLeading
    }

    /// Gives the lease back, so that another process need not wait for its end.
    pub async fn release(&self) {
        let released = async {
            let Some(mut lease) = self.api.get_opt(NAME).await? else { return Ok(()) };
            if holder(&lease) != Some(&self.holder) {
                return Ok(());
            }
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            self.api.replace(NAME, &PostParams::default(), &lease).await.map(drop)
        };
        match timeout(Duration::from_secs(3), released).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error: kube::Error = error;
                warn!(%error, "the lease was not given back");
            }
            Err(_) => warn!("the API server does not answer about the lease"),
        }
    }

    async fn try_win(&self, seen: &mut Seen) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.api.get_opt(NAME).await? else {
            let metadata = ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            };
            let lease = Lease { metadata, spec: Some(self.spec(0)) };
            let sent = Instant::now();
            return self.decided(sent, self.api.create(&PostParams::default(), &lease).await);
        };
        let version = lease.metadata.resource_version.clone();
        if seen.version != version {
            *seen = Seen { version, since: Instant::now() };
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let given = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        let free = match holder(&lease) {
            None => true,
            Some(holder) if *holder == self.holder => true,
            Some(_) => seen.since.elapsed() > Duration::from_secs(given),
        };
        if !free {
            return Ok(false);
        }
        lease.spec = Some(self.spec(spec.lease_transitions.unwrap_or(0).saturating_add(1)));
        let sent = Instant::now();
        self.decided(sent, self.api.replace(NAME, &PostParams::default(), &lease).await)
    }

    /// Writes the lease as it is known, with the time of now; it is read only when somebody else has
    /// written it meanwhile. False when it is somebody else's.
    async fn renew(&self, known: &mut Option<Lease>) -> Result<bool, kube::Error> {
        loop {
            let mut lease = match known.clone() {
                Some(lease) => lease,
                None => match self.api.get_opt(NAME).await? {
                    Some(lease) if holder(&lease) == Some(&self.holder) => lease,
                    Some(_) | None => return Ok(false),
                },
            };
            lease.spec.get_or_insert_default().renew_time = Some(now());
            *known = match self.api.replace(NAME, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.code == 404 => None,
                answer => written(answer)?,
            };
            if known.is_some() {
                return Ok(true);
            }
        }
    }

    /// Notes the lease if it was won with what was sent then.
    fn decided(
        &self,
        sent: Instant,
        answer: Result<Lease, kube::Error>,
    ) -> Result<bool, kube::Error> {
        let won = written(answer)?.map(|lease| Won { lease, sent });
        let is_won = won.is_some();
        *self.won.lock().unwrap_or_else(PoisonError::into_inner) = won;
        Ok(is_won)
    }

    fn spec(&self, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(DURATION.as_secs() as i32),
            acquire_time: Some(now()),
            renew_time: Some(now()),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

fn holder(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())
}

/// The lease as it was written; nothing when somebody else was faster.
fn written(answer: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match answer {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::tests::fake::{FakeApi, Fault};
    use http::Method;

    const PATH: &str = "leases/hawser-system/hawser-csi-controller";

    fn leadership(api: &FakeApi, holder: &str) -> Leadership {
        Leadership::new(api.client(), "hawser-system", holder.to_owned())
    }

    fn holder_of(api: &FakeApi) -> Option<String> {
        let lease = api.object(PATH)?;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_leads_and_the_second_takes_over_when_it_falls_silent() {
        let api = FakeApi::new();
        leadership(&api, "a").win().await;
        assert_eq!(holder_of(&api).as_deref(), Some("a"));
        let begun = Instant::now();

        leadership(&api, "b").win().await;

        assert!(begun.elapsed() >= DURATION, "after {:?}", begun.elapsed());
        assert_eq!(holder_of(&api).as_deref(), Some("b"));
        assert_eq!(api.object(PATH).unwrap()["spec"]["leaseTransitions"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_given_back_is_free_at_once() {
        let api = FakeApi::new();
        let first = leadership(&api, "a");
        first.win().await;
        first.release().await;
        let begun = Instant::now();

        leadership(&api, "b").win().await;

        assert!(begun.elapsed() < LOOK, "after {:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_keeps_renewing_keeps_it() {
        let api = FakeApi::new();
        let (first, second) = (leadership(&api, "a"), leadership(&api, "b"));
        first.win().await;

        tokio::select! {
            lost = first.keep() => panic!("{lost}"),
            () = second.win() => panic!("two lead"),
            () = sleep(Duration::from_secs(120)) => {}
        }
        assert_eq!(holder_of(&api).as_deref(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_lost_to_another_holder_and_to_an_api_server_that_does_not_answer() {
        let api = FakeApi::new();
        let first = leadership(&api, "a");
        first.win().await;
        api.update(PATH, |lease| lease["spec"]["holderIdentity"] = json!("b"));
        assert!(matches!(first.keep().await, ClusterError::NotLeading));

        let second = leadership(&api, "b");
        api.fail(100, Method::GET, "leases", Fault::Hang);
        let begun = Instant::now();
        assert!(matches!(second.keep().await, ClusterError::NotLeading));
        assert!(begun.elapsed() < DURATION, "after {:?}", begun.elapsed());
    }

    /// Whoever waits makes a new one.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_somebody_removed_is_lost_with_the_next_renewal() {
        let api = FakeApi::new();
        let leader = leadership(&api, "a");
        leader.win().await;
        api.delete(PATH);
        let begun = Instant::now();

        assert!(matches!(leader.keep().await, ClusterError::NotLeading));

        assert!(begun.elapsed() < RENEWAL, "after {:?}", begun.elapsed());
    }

    /// A standby may win 15 seconds after the last renewal that it saw.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_fails_late_does_not_make_it_lead_longer() {
        let api = FakeApi::new();
        let leader = leadership(&api, "a");
        leader.win().await;
        let begun = Instant::now();
        let stops_answering = async {
            sleep(Duration::from_secs(1)).await;
            let late = Fault::RefusedLate(Duration::from_millis(4900), 500);
            api.fail(1, Method::GET, "leases", late);
            api.fail(1, Method::PUT, "leases", late);
            api.fail(100, Method::GET, "leases", Fault::Hang);
            api.fail(100, Method::PUT, "leases", Fault::Hang);
        };

        let (lost, ()) = tokio::join!(leader.keep(), stops_answering);

        assert!(matches!(lost, ClusterError::NotLeading));
        assert!(begun.elapsed() <= DEADLINE, "after {:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_won_slowly_is_no_longer_ours_than_from_when_it_was_asked_for() {
        let api = FakeApi::new();
        api.fail(1, Method::POST, "leases", Fault::Late(Duration::from_secs(9)));
        let leader = leadership(&api, "a");
        let begun = Instant::now();
        leader.win().await;
        api.fail(100, Method::PUT, "leases", Fault::Hang);

        leader.keep().await;

        assert!(begun.elapsed() <= DEADLINE, "after {:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_is_one_request_and_a_lease_that_others_touched_is_read_again() {
        let api = FakeApi::new();
        let leader = leadership(&api, "a");
        leader.win().await;
        api.forget();
        let others = async {
            sleep(Duration::from_secs(7)).await;
            assert_eq!(api.requests().len(), 2, "one at once, one after the first pause");
            api.update(PATH, |lease| lease["metadata"]["labels"] = json!({ "app": "hawser" }));
            sleep(Duration::from_secs(20)).await;
        };

        tokio::select! {
            lost = leader.keep() => panic!("{lost}"),
            () = others => {}
        }

        assert_eq!(api.writes().len(), 7, "five pauses, and one conflict");
        assert_eq!(api.requests().len(), 8);
        assert_eq!(api.object(PATH).unwrap()["metadata"]["labels"]["app"], "hawser");
    }
}
