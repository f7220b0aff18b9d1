//! Controller and node are killed at random moments while claims are made, mounted and let go, and the
//! API server once in the middle of it. In the end every claim is bound or says why not, and what the
//! cluster, the records and the pool hold is the same. `make e2e-cluster NAME=cluster_faults` runs it,
//! `HAWSER_FAULT_CLAIMS` says with how many claims; a machine that cannot is a failure.

#[path = "cluster_faults/check.rs"]
mod check;
#[path = "cluster_faults/killer.rs"]
mod killer;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hawser_live::churn::Rng;
use hawser_live::cluster::driver::objects::{
    Binding, claim, name, phase, pod, pod_with, storage_class,
};
use hawser_live::cluster::driver::{
    ATTACHED, CLAIMS, Chart, Crowd, PODS, Stamps, fault_claims, install,
};
use hawser_live::cluster::{Cluster, Options, Part};
use hawser_testkit::skip::say;
use serde_json::{Value, json};

use check::{check_agreement, check_content, check_nothing_stuck, wait_settled};
use killer::Killer;

/// How many claims there are unless somebody says otherwise.
const CLAIMS_UNLESS_SET: usize = 200;

/// How many pods run at once; a node takes 110, and this machine has few processors.
const BATCH: usize = 20;

/// How often something is killed while a batch comes up, and again while it goes.
const KILLS_UP: usize = 8;
const KILLS_DOWN: usize = 3;

/// How many kills of each half there are for each batch at least: pods that run before anybody was
/// killed would show nothing.
const KILLS_AT_LEAST: u32 = 4;

/// How long a batch may take to come up or to go once nothing is killed any more. The kubelet waits
/// up to two minutes before it tries a volume again that failed often.
const BATCH_LIMIT: Duration = Duration::from_secs(420);

const CLASS: &str = "faults";

/// A pod that leaves the name of its claim on the volume.
fn writer(claim: &str) -> Value {
    let script = format!("echo {claim} >/data/name && sync && sleep 2147483647");
    let mounts = json!([{ "name": "volume", "mountPath": "/data" }]);
    let command = json!(["/bin/sh", "-c", script]);
    pod_with(claim, claim, json!({ "command": command, "volumeMounts": mounts }))
}

/// Everything of one run; what shows its logs when the test fails comes before what removes them.
struct Run {
    killer: Killer,
    crowd: Crowd,
    cluster: Cluster,
    rng: Rng,
}

impl Run {
    /// Makes claims with a pod each, and kills while the pods come up, the API server too where that is
    /// wanted. Answers when all of them run.
    fn bring_up(&mut self, names: &[String], with_server: bool) {
        let claims = names.iter().map(|name| claim(name, CLASS, "16Mi", json!({})));
        self.crowd.create(CLAIMS, claims.collect());
        self.crowd.create(PODS, names.iter().map(|name| writer(name)).collect());
        if with_server {
            std::thread::sleep(self.rng.millis(200, 2000));
            self.restart_server();
        }
        let wanted = names.to_vec();
        self.kill_until(KILLS_UP, "pods that run", move |pods| {
            wanted
                .iter()
                .all(|name| pods.get(name.as_str()).is_some_and(|phase| phase == "Running"))
        });
    }

    /// Deletes the pods, and kills while they go; their claims stay.
    fn take_down(&mut self, names: &[String]) {
        self.crowd.delete(PODS, names);
        let gone = names.to_vec();
        self.kill_until(KILLS_DOWN, "pods that are gone", move |pods| {
            gone.iter().all(|name| !pods.contains_key(name.as_str()))
        });
    }

    /// Kills so often, and then waits until the pods are as the fact wants them.
    #[track_caller]
    fn kill_until(
        &mut self,
        kills: usize,
        what: &str,
        fact: impl Fn(&BTreeMap<String, String>) -> bool,
    ) {
        let (mut left, mut quiet) = (kills, Instant::now());
        loop {
            let pods = self.crowd.list(PODS);
            let phases: BTreeMap<String, String> =
                pods.iter().map(|pod| (name(pod).to_owned(), phase(pod).to_owned())).collect();
            if left == 0 && fact(&phases) {
                return;
            }
            // Also when they are quicker than the kills: what runs is mounted, and must stay so.
            if left > 0 {
                std::thread::sleep(self.rng.millis(200, 4000));
                self.killer.strike(&self.cluster, &mut self.rng);
                (left, quiet) = (left - 1, Instant::now());
                continue;
            }
            self.killer.assert_alive();
            assert!(quiet.elapsed() < BATCH_LIMIT, "no {what} within {BATCH_LIMIT:?}: {phases:#?}");
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// The server is gone for a moment, as in an upgrade of the cluster.
    fn restart_server(&mut self) {
        say("faults: the API server is killed and started again");
        self.cluster.kill(Part::Server);
        std::thread::sleep(self.rng.millis(500, 3000));
        self.cluster.start_part(Part::Server);
    }
}

#[test]
fn cluster_kills_of_controller_and_node_lose_and_leak_nothing() {
    let count = fault_claims(CLAIMS_UNLESS_SET);
    let seed: u64 = std::process::id().into();
    say(&format!("faults: seed {seed}, {count} claims"));
    let mut cluster = Cluster::start(Options::nodes(1));
    install(&cluster, Chart::Alone, Stamps::ByPolicy);
    let parameters = json!({ "class": "local", "csi.storage.k8s.io/fstype": "ext4" });
    let class = storage_class(CLASS, ATTACHED, Binding::Immediate, parameters);
    cluster.kubectl().apply_json(&[class]);
    let killer = Killer::start(&mut cluster);
    let crowd = Crowd::of(&cluster);
    let mut run = Run { cluster, crowd, killer, rng: Rng::new(seed) };
    let names: Vec<String> = (0..count).map(|number| format!("claim-{number}")).collect();
    let batches: Vec<&[String]> = names.chunks(BATCH).collect();

    for (number, batch) in batches.iter().enumerate() {
        run.bring_up(batch, number == batches.len() / 2);
        run.take_down(batch);
        say(&format!(
            "faults: {} of {} batches, {}",
            number + 1,
            batches.len(),
            run.killer.tally()
        ));
    }

    run.killer.assert_killed(KILLS_AT_LEAST * u32::try_from(batches.len()).expect("few batches"));
    run.killer.rest(&mut run.cluster);
    let Run { mut cluster, crowd, killer, .. } = run;
    wait_settled(&cluster, &crowd);
    check_agreement(&cluster, &crowd, killer.controller());
    // One of each batch is used once more, and has what was written.
    let some: Vec<&str> = batches.iter().map(|batch| batch[0].as_str()).collect();
    check_content(&mut cluster, &crowd, &some, pod);
    crowd.delete(CLAIMS, &names);
    killer.controller().assert_nothing_left(&cluster);
    check_nothing_stuck(&cluster);
    killer.stop();
    cluster.end();
}
