//! Two controllers, as the chart runs them: one leads, and when it dies the other takes up what it was
//! doing once its lease has run out; nobody helps. `make e2e-cluster NAME=cluster_leader` runs it, and a
//! machine that cannot is a failure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hawser_live::cluster::driver::objects::{Binding, claim, phase, raw, storage_class};
use hawser_live::cluster::driver::{
    ATTACHED, CLAIMS, Chart, Crowd, Driver, Half, Hawser, LEASE, NAMESPACE, Records, SOON, Stamps,
    VOLUMES, claim_warnings, install, wait_leader,
};
use hawser_live::cluster::{Cluster, Object, Options};
use serde_json::{Value, json};

/// Its volumes take a moment each, and no node has to be there for them.
const CLASS: &str = "slow";

/// Claims of a round; more than are made by the time the leader dies.
const EACH: usize = 40;

/// How long a lease is held by somebody who is dead, and somebody else needs to notice that.
const TAKEN_OVER: Duration = Duration::from_secs(40);

fn holder(cluster: &Cluster) -> String {
    let lease = cluster.kubectl().find(&Object::within(NAMESPACE, "lease", LEASE));
    let lease = lease.expect("somebody leads, so there is a lease");
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

fn controller(replica: u8) -> Hawser {
    Hawser::new(Half::Controller).without_sidecars().replica(replica).records(Records::Cluster)
}

fn bound(crowd: &Crowd) -> usize {
    crowd.list(CLAIMS).iter().filter(|claim| phase(claim) == "Bound").count()
}

#[test]
fn cluster_the_other_controller_takes_over_from_one_that_died() {
    let mut cluster = Cluster::start(Options::control());
    install(&cluster, Chart::Alone, Stamps::ByPolicy);
    let class = storage_class(CLASS, ATTACHED, Binding::Immediate, json!({ "class": "null" }));
    cluster.kubectl().apply_json(&[class]);
    let mut leader = Driver::start(&mut cluster, controller(1));
    wait_leader(&mut cluster);
    let first = holder(&cluster);
    let mut other = Driver::start_standby(&mut cluster, controller(2));
    let crowd = Crowd::of(&cluster);
    let names: Vec<String> = (0..2 * EACH).map(|number| format!("claim-{number}")).collect();
    let make = |names: &[String]| {
        let claims = names.iter().map(|name| claim(name, CLASS, "1Mi", raw()));
        crowd.create(CLAIMS, claims.collect());
    };

    make(&names[..EACH]);
    let begun = Instant::now();
    while bound(&crowd) == 0 {
        assert!(begun.elapsed() < SOON, "no claim is bound");
    }
    leader.kill();
    let at_the_kill = bound(&crowd);
    make(&names[EACH..]);

    assert!(at_the_kill < EACH, "everything was done before the leader died");
    let begun = Instant::now();
    while holder(&cluster) == first {
        assert!(begun.elapsed() < TAKEN_OVER, "nobody took over from {first}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let begun = Instant::now();
    while bound(&crowd) < names.len() {
        assert!(begun.elapsed() < SOON, "{} of {} are bound", bound(&crowd), names.len());
        std::thread::sleep(Duration::from_millis(200));
    }
    let volumes = crowd.list(VOLUMES);
    let handles: BTreeSet<&str> = volumes
        .iter()
        .filter_map(|volume| volume["spec"]["csi"]["volumeHandle"].as_str())
        .collect();
    assert_eq!((volumes.len(), handles.len()), (names.len(), names.len()), "one volume for each");
    assert_eq!(recorded(&cluster), handles.len(), "and nothing is recorded beside them");
    assert_eq!(claim_warnings(cluster.kubectl(), &["ProvisioningFailed", "ClaimLost"]), [""; 0]);

    // The one that died comes back, and does not lead.
    let second = holder(&cluster);
    leader.start_again(&cluster);
    leader.wait_standby();
    crowd.delete(CLAIMS, &names);
    let begun = Instant::now();
    while !crowd.list(VOLUMES).is_empty() {
        assert!(begun.elapsed() < SOON, "{} volumes are left", crowd.list(VOLUMES).len());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(holder(&cluster), second);
    assert_eq!(recorded(&cluster), 0);
    other.process().check().expect("it was not killed");
    leader.stop();
    other.stop();
    cluster.end();
}

/// How many records of volumes there are in the cluster.
fn recorded(cluster: &Cluster) -> usize {
    let namespace = format!("--namespace={NAMESPACE}");
    let list = cluster.kubectl().json(&["get", "records.hawser.storage", &namespace]);
    let all = list["items"].as_array().into_iter().flatten();
    let key = |record: &Value| record["spec"]["key"].as_str().unwrap_or_default().to_owned();
    all.map(key).filter(|key| key.starts_with("volume/")).count()
}
