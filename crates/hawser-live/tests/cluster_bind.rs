//! Our controller binds claims itself, and the controller-manager binds claims too: whoever comes
//! first, each claim ends with one volume, and nobody is told of a failure. `make e2e-cluster
//! NAME=cluster_bind` runs it, and a machine that cannot is a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hawser_live::churn::Rng;
use hawser_live::cluster::driver::objects::{Binding, claim, name, phase, storage_class};
use hawser_live::cluster::driver::{
    ACCOUNT, ATTACHED, CLAIMS, Chart, Crowd, Driver, Half, Hawser, Records, SOON, Stamps, VOLUMES,
    claim_events, claim_warnings, free_lease, install, wait_bound, wait_gone, wait_leader,
};
use hawser_live::cluster::{Cluster, Object, Options, Part, Request};
use hawser_testkit::skip::say;
use serde_json::{Value, json};

const CLASS: &str = "bind";

/// Claims that are made while the controller-manager is away.
const MANY: usize = 50;

/// Times that our controller is killed, and claims that it has to do with each time: several, so that
/// it dies between a volume and its claim now and then.
const ROUNDS: usize = 8;
const EACH: usize = 8;

/// The controller-manager looks at every claim and volume once in 15 s, whatever happens to them.
const ALL_LOOKED_AT: Duration = Duration::from_secs(20);

/// A cluster with our controller at work, and a class of volumes that are made when they are claimed.
fn start(stamps: Stamps) -> (Cluster, Driver) {
    let mut cluster = Cluster::start(Options::nodes(1).audit());
    install(&cluster, Chart::Alone, stamps);
    let class = storage_class(CLASS, ATTACHED, Binding::Immediate, json!({ "class": "local" }));
    cluster.kubectl().apply_json(&[class]);
    let hawser = Hawser::new(Half::Both).without_sidecars().records(Records::Cluster);
    let driver = Driver::start(&mut cluster, hawser);
    wait_leader(&mut cluster);
    (cluster, driver)
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

fn make(crowd: &Crowd, names: &[String]) {
    let claims = names.iter().map(|name| claim(name, CLASS, "1Mi", json!({})));
    crowd.create(CLAIMS, claims.collect());
}

fn is_bound(object: &Value) -> bool {
    phase(object) == "Bound"
}

/// Each claim is bound to a volume of its own, and nobody complained.
#[track_caller]
fn check(cluster: &Cluster, crowd: &Crowd) {
    check_pairs(cluster, crowd);
    let reasons = ["ProvisioningFailed", "ClaimLost", "ClaimMisbound", "VolumeMismatch"];
    assert_eq!(claim_warnings(cluster.kubectl(), &reasons), [""; 0]);
}

/// Each claim is bound to a volume of its own that is bound to it.
#[track_caller]
fn check_pairs(cluster: &Cluster, crowd: &Crowd) {
    let (claims, volumes) = (crowd.list(CLAIMS), crowd.list(VOLUMES));
    let by_name: BTreeMap<&str, &Value> =
        volumes.iter().map(|found| (name(found), found)).collect();
    let mut used = BTreeSet::new();
    for claim in &claims {
        let events = || claim_events(cluster.kubectl(), name(claim));
        assert!(is_bound(claim), "{claim:#}\n{:#?}", events());
        let wanted = claim["spec"]["volumeName"].as_str().unwrap_or_default();
        assert!(used.insert(wanted), "{wanted} is bound twice");
        let volume = by_name.get(wanted).unwrap_or_else(|| panic!("there is no {wanted}"));
        assert!(is_bound(volume), "{volume:#}");
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    }
    assert_eq!(volumes.len(), claims.len(), "volumes that no claim has");
}

/// Waits until the controller-manager has looked at everything that there is: it binds a volume that
/// was made by hand, and looks at all others once.
fn wait_until_looked_at(cluster: &mut Cluster) {
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": "by-hand" },
        "spec": {
            "storageClassName": "by-hand",
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Mi" },
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": { "path": "/nowhere" },
        },
    });
    cluster.kubectl().apply_json(&[
        volume,
        claim("by-hand", "by-hand", "1Mi", json!({ "volumeName": "by-hand" })),
    ]);
    wait_bound(cluster, "by-hand");
    std::thread::sleep(ALL_LOOKED_AT);
    let by_hand = Object::within("default", "persistentvolumeclaim", "by-hand");
    cluster.kubectl().delete(&by_hand);
    wait_gone(cluster, &by_hand);
    cluster.kubectl().delete(&Object::new("persistentvolume", "by-hand"));
    wait_gone(cluster, &Object::new("persistentvolume", "by-hand"));
}

/// What the controller-manager wrote of claims and volumes, but for the one that was made by hand.
fn written_by_controllers(requests: &[Request]) -> Vec<&Request> {
    let about = |request: &&Request| {
        let kind = request.resource.split('/').next().unwrap_or_default();
        ["persistentvolumeclaims", "persistentvolumes"].contains(&kind)
    };
    requests
        .iter()
        .filter(|request| request.agent == "kube-controller-manager" && request.is_write())
        .filter(about)
        .filter(|request| request.name != "by-hand")
        .collect()
}

/// Deletes all claims, and checks that their volumes go too.
fn finish(cluster: Cluster, driver: Driver, crowd: &Crowd) {
    let all: Vec<String> = crowd.list(CLAIMS).iter().map(|found| name(found).to_owned()).collect();
    crowd.delete(CLAIMS, &all);
    driver.assert_nothing_left(&cluster);
    driver.stop();
    cluster.end();
}

#[test]
fn cluster_claims_are_bound_without_the_controller_manager_and_it_has_nothing_to_add() {
    let (mut cluster, driver) = start(Stamps::ByPolicy);
    let crowd = Crowd::of(&cluster);
    let (claims, volumes) = (crowd.follow(CLAIMS, is_bound), crowd.follow(VOLUMES, is_bound));
    cluster.stop(Part::Controllers);
    let all = names("early", MANY);

    make(&crowd, &all);
    claims.wait(&all, SOON);
    let of_claims: Vec<String> = crowd
        .list(CLAIMS)
        .iter()
        .filter_map(|claim| claim["spec"]["volumeName"].as_str().map(str::to_owned))
        .collect();
    volumes.wait(&of_claims, SOON);
    check(&cluster, &crowd);

    let before = cluster.requests().len();
    cluster.start_part(Part::Controllers);
    wait_until_looked_at(&mut cluster);
    let requests = cluster.requests();
    let written = written_by_controllers(&requests[before..]);
    assert!(written.is_empty(), "{written:#?}");
    check(&cluster, &crowd);
    drop((claims, volumes));
    finish(cluster, driver, &crowd);
}

/// Without the policy the controller-manager marks claims, so it has to run; both of them bind.
#[test]
fn cluster_claims_that_the_controller_manager_marks_are_bound_once() {
    let (mut cluster, driver) = start(Stamps::ByControllers);
    let crowd = Crowd::of(&cluster);
    let claims = crowd.follow(CLAIMS, is_bound);
    let all = names("marked", MANY);

    make(&crowd, &all);
    claims.wait(&all, SOON);
    wait_until_looked_at(&mut cluster);
    check(&cluster, &crowd);

    cluster.stop(Part::Controllers);
    let before = cluster.requests().len();
    cluster.start_part(Part::Controllers);
    wait_until_looked_at(&mut cluster);
    let requests = cluster.requests();
    let written = written_by_controllers(&requests[before..]);
    assert!(written.is_empty(), "{written:#?}");
    check(&cluster, &crowd);
    drop(claims);
    finish(cluster, driver, &crowd);
}

/// How many volumes were there when our controller died, and how many claims were bound by then.
#[derive(Debug, Default)]
struct Caught {
    volumes: usize,
    unbound: usize,
}

/// Kills our controller a moment after claims were made. What it has made a volume for the
/// controller-manager binds alone; the rest is for the next start.
fn kill_between(
    cluster: &mut Cluster,
    driver: &mut Driver,
    crowd: &Crowd,
    round: usize,
    rng: &mut Rng,
) -> Caught {
    let volumes = crowd.follow(VOLUMES, |_| true);
    let known = volumes.seen().len().max(crowd.list(VOLUMES).len());
    let all = names(&format!("killed-{round}"), EACH);
    make(crowd, &all);
    if rng.one_in(2) {
        // As soon as a volume is there: between that and the claim is the moment that matters.
        let begun = Instant::now();
        while volumes.seen().len() <= known && begun.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(1));
        }
    } else {
        std::thread::sleep(rng.millis(1, 250));
    }
    driver.kill();
    drop(volumes);

    let made: Vec<Value> = crowd.list(VOLUMES);
    let claimed: BTreeSet<&str> = made
        .iter()
        .filter_map(|volume| volume["spec"]["claimRef"]["name"].as_str())
        .filter(|claim| all.iter().any(|name| name == claim))
        .collect();
    let unbound = crowd
        .list(CLAIMS)
        .iter()
        .filter(|claim| claimed.contains(name(claim)) && !is_bound(claim))
        .count();
    for claim in &claimed {
        wait_bound(cluster, claim);
    }
    free_lease(cluster);
    driver.start_again(cluster);
    driver.wait_listening(cluster);
    all.iter().for_each(|claim| drop(wait_bound(cluster, claim)));
    Caught { volumes: claimed.len(), unbound }
}

fn controller_manager_completes(stamps: Stamps) {
    let (mut cluster, mut driver) = start(stamps);
    let crowd = Crowd::of(&cluster);
    let seed = std::process::id().into();
    say(&format!("bind: seed {seed}"));
    let mut rng = Rng::new(seed);
    let mut sum = Caught::default();

    for round in 0..ROUNDS {
        let caught = kill_between(&mut cluster, &mut driver, &crowd, round, &mut rng);
        sum.volumes += caught.volumes;
        sum.unbound += caught.unbound;
    }

    say(&format!(
        "bind: {ROUNDS} kills, {} volumes were made by then, {} of them unbound",
        sum.volumes, sum.unbound
    ));
    wait_until_looked_at(&mut cluster);
    check(&cluster, &crowd);
    finish(cluster, driver, &crowd);
}

#[test]
fn cluster_the_controller_manager_completes_what_a_killed_controller_left() {
    controller_manager_completes(Stamps::ByPolicy);
}

#[test]
fn cluster_the_controller_manager_completes_claims_that_it_marked_itself() {
    controller_manager_completes(Stamps::ByControllers);
}

/// Takes the right to say that claims are bound from our controller; answers the rules that it had.
fn forbid_binding(cluster: &Cluster) -> Value {
    let role = Object::new("clusterrole", "hawser-controller");
    let found = cluster.kubectl().find(&role).expect("the role of the chart");
    let mut less = found["rules"].clone();
    for rule in less.as_array_mut().into_iter().flatten() {
        let Some(resources) = rule["resources"].as_array_mut() else { continue };
        resources.retain(|resource| resource != "persistentvolumeclaims/status");
    }
    cluster.kubectl().patch(&role, &json!({ "rules": less }));
    let user = format!("--as={ACCOUNT}");
    let status = "--subresource=status";
    let asked =
        ["auth", "can-i", "patch", "persistentvolumeclaims", status, "--namespace=default", &user];
    let begun = Instant::now();
    while cluster.kubectl().run(&asked).stdout.trim() != "no" {
        assert!(begun.elapsed() < SOON, "the controller keeps its right for {SOON:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    found["rules"].clone()
}

/// The moment that kills at random seldom meet, made to last: every volume is there, no claim is bound,
/// and our controller is dead.
#[test]
fn cluster_volumes_whose_controller_died_before_their_claims_are_bound_by_the_other() {
    let (mut cluster, mut driver) = start(Stamps::ByPolicy);
    let crowd = Crowd::of(&cluster);
    cluster.stop(Part::Controllers);
    let rules = forbid_binding(&cluster);
    let all = names("half", EACH);

    make(&crowd, &all);
    let begun = Instant::now();
    while crowd.list(VOLUMES).len() < all.len() {
        assert!(begun.elapsed() < SOON, "only {} volumes", crowd.list(VOLUMES).len());
        std::thread::sleep(Duration::from_millis(50));
    }
    driver.kill();
    assert!(crowd.list(CLAIMS).iter().all(|claim| phase(claim) == "Pending"));
    cluster
        .kubectl()
        .patch(&Object::new("clusterrole", "hawser-controller"), &json!({ "rules": rules }));
    cluster.start_part(Part::Controllers);
    all.iter().for_each(|claim| drop(wait_bound(&mut cluster, claim)));

    free_lease(&cluster);
    driver.start_again(&cluster);
    driver.wait_listening(&mut cluster);
    wait_until_looked_at(&mut cluster);
    // Our controller may have complained of the right that it lacked.
    check_pairs(&cluster, &crowd);
    finish(cluster, driver, &crowd);
}
