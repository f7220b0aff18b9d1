//! The lease: of several processes one leads, and the others wait.

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
        Self { api, holder, namespace: namespace.to_owned() }
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

    /// Keeps the lease; ends when it is lost.
    pub async fn keep(&self) -> ClusterError {
        let mut renewed = Instant::now();
        loop {
            sleep(RENEWAL).await;
            let left = DEADLINE.saturating_sub(renewed.elapsed());
            match timeout(left.max(Duration::from_secs(1)), self.renew()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return ClusterError::NotLeading,
                Ok(Err(error)) => warn!(%error, "the lease was not renewed"),
                Err(_) => warn!("the API server does not answer about the lease"),
            }
            if renewed.elapsed() >= DEADLINE {
                return ClusterError::NotLeading;
            }
        }
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
            return decided(self.api.create(&PostParams::default(), &lease).await);
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
        decided(self.api.replace(NAME, &PostParams::default(), &lease).await)
    }

    async fn renew(&self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.api.get_opt(NAME).await? else { return Ok(false) };
        if holder(&lease) != Some(&self.holder) {
            return Ok(false);
        }
        lease.spec.get_or_insert_default().renew_time = Some(now());
        // A conflict is somebody who has written it meanwhile; the next look says who.
        decided(self.api.replace(NAME, &PostParams::default(), &lease).await).map(|_| true)
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

/// Whether a write was made; a conflict says that somebody else was faster.
fn decided(written: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
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
}
