//! What has to be true when nothing is killed any more.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hawser_live::cluster::Cluster;
use hawser_live::cluster::driver::objects::{name, phase};
use hawser_live::cluster::driver::{
    CLAIMS, Crowd, Driver, PODS, VOLUMES, inside, pool, wait_running, warnings_of,
};
use serde_json::Value;

/// How long it may take until everything is done that was cut off.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);

/// Waits until every claim is bound. One that is not by then says why, in a warning or a condition.
#[track_caller]
pub(crate) fn wait_settled(cluster: &Cluster, crowd: &Crowd) {
    let begun = Instant::now();
    let waiting = loop {
        let mut claims = crowd.list(CLAIMS);
        claims.retain(|claim| phase(claim) != "Bound");
        if claims.is_empty() || begun.elapsed() > SETTLE_LIMIT {
            break claims;
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    for claim in &waiting {
        assert_eq!(phase(claim), "Pending", "{claim:#}");
        let warnings = warnings_of(cluster.kubectl(), name(claim));
        let told = claim["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty());
        assert!(told || !warnings.is_empty(), "claim {} waits and nobody says why", name(claim));
        hawser_testkit::skip::say(&format!("faults: {} waits: {warnings:?}", name(claim)));
    }
}

/// The volumes of the cluster, of the records and of the pool are the same, and no attachment is stuck.
#[track_caller]
pub(crate) fn check_agreement(cluster: &Cluster, crowd: &Crowd, driver: &Driver) {
    let begun = Instant::now();
    loop {
        let differences = differences(cluster, crowd, driver);
        if differences.is_empty() {
            return;
        }
        assert!(begun.elapsed() < SETTLE_LIMIT, "after {SETTLE_LIMIT:?}: {differences:#?}");
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn differences(cluster: &Cluster, crowd: &Crowd, driver: &Driver) -> Vec<String> {
    let volumes = crowd.list(VOLUMES);
    let handles: Vec<String> = volumes.iter().map(handle).collect();
    let in_cluster: BTreeSet<String> = handles.iter().cloned().collect();
    let recorded = driver.volumes(cluster);
    let files = pool(cluster);
    let kept: BTreeSet<String> = files.iter().filter_map(|file| volume_of(file)).collect();
    let mut found = Vec::new();
    let mut compare = |what: &str, one: &BTreeSet<String>, other: &BTreeSet<String>| {
        let more = one.difference(other).map(|id| format!("{id} {what}"));
        found.extend(more);
    };
    compare("is in the cluster and not in the records", &in_cluster, &recorded);
    compare("is in the records and not in the cluster", &recorded, &in_cluster);
    compare("is in the records and not in the pool", &recorded, &kept);
    compare("is in the pool and not in the records", &kept, &recorded);
    if in_cluster.len() != handles.len() {
        found.push("two volumes of the cluster have the same handle".into());
    }
    found.extend(files.iter().filter(|file| file.starts_with("staging/")).cloned());
    // Every pod is gone, and with it the need for an attachment.
    found.extend(
        cluster
            .kubectl()
            .list("volumeattachment")
            .iter()
            .map(|attachment| format!("attachment {} {}", name(attachment), attachment["status"])),
    );
    found
}

fn handle(volume: &Value) -> String {
    volume["spec"]["csi"]["volumeHandle"].as_str().unwrap_or_default().to_owned()
}

/// The volume that a file of the pool is.
fn volume_of(file: &str) -> Option<String> {
    let file = file.strip_prefix("volumes/")?;
    Some(file.strip_suffix(".img").unwrap_or(file).to_owned())
}

/// What the first pods wrote is there when others look.
#[track_caller]
pub(crate) fn check_content(
    cluster: &mut Cluster,
    crowd: &Crowd,
    claims: &[&str],
    pod: fn(&str, &str) -> Value,
) {
    let names: Vec<String> = claims.iter().map(|claim| format!("{claim}-again")).collect();
    let pods = names.iter().zip(claims).map(|(name, claim)| pod(name, claim));
    crowd.create(PODS, pods.collect());
    for (name, claim) in names.iter().zip(claims) {
        wait_running(cluster, name);
        assert_eq!(inside(cluster, name, "cat /data/name"), *claim);
    }
    crowd.delete(PODS, &names);
}

/// Nothing waits for a finalizer that nobody takes away.
#[track_caller]
pub(crate) fn check_nothing_stuck(cluster: &Cluster) {
    for kind in ["persistentvolumeclaim", "persistentvolume", "volumeattachment", "pod"] {
        let all = cluster.kubectl().list(kind);
        let stuck: Vec<&Value> =
            all.iter().filter(|found| found["metadata"]["deletionTimestamp"].is_string()).collect();
        assert!(stuck.is_empty(), "{stuck:#?}");
    }
}
