//! Kills the process before and after every call of every port, one at a time, and looks at what the
//! next life finds.
//!
//! For each point: run the whole life of several volumes until the world stops there; start again on
//! what is left; everything acknowledged must be there, the step that was cut off must be done or
//! undone, nothing may be half-made; then finish the life, after which nothing may be left at all.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hawser_core::attach::Attached;
use hawser_core::operation::OperationState;
use hawser_core::page::PageRequest;
use hawser_core::port::control::{OperationFilter, VolumeFilter};
use hawser_core::port::store::Prefix;
use hawser_core::port::{Control, Store};
use hawser_live::rig::{Life, Rig};
use hawser_live::steps::{LIFE, Model};
use hawser_testkit::fault::{Faults, METHODS, Side};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
}

/// The model before each step, and after the last.
fn models() -> Vec<Model> {
    let mut models = vec![Model::default()];
    for step in LIFE {
        let mut next = models.last().expect("never empty").clone();
        next.apply(*step);
        models.push(next);
    }
    models
}

fn fresh() -> Rig {
    let rig = Rig::new();
    std::fs::create_dir(rig.path("mnt")).expect("the host's folder can be written");
    rig
}

/// Lives from a step on; `reached` counts the steps that were acknowledged.
async fn live(rig: &Rig, faults: &Faults, reached: &AtomicUsize) -> Life {
    let life = rig.boot(faults).await.expect("the process starts");
    for (index, step) in LIFE.iter().enumerate().skip(reached.load(Ordering::Relaxed)) {
        step.perform(rig, &life).await.unwrap_or_else(|error| panic!("{step:?}: {error:?}"));
        reached.store(index + 1, Ordering::Relaxed);
    }
    life
}

/// Waits until no operation runs any more.
async fn settle(control: &dyn Control) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let all = control
            .list_operations(&OperationFilter::default(), &PageRequest::largest())
            .await
            .expect("operations can be listed");
        let open = all.items.into_iter().find(|operation| !operation.state.is_final());
        let volumes = control
            .list_volumes(&VolumeFilter::default(), &PageRequest::largest())
            .await
            .expect("volumes can be listed");
        let held = volumes.items.into_iter().find(|volume| volume.operation.is_some());
        match (open, held) {
            (None, None) => return,
            (Some(operation), _) if operation.state == OperationState::Running => {
                let _ = control.get_operation(&operation.id, Duration::from_secs(1)).await;
            }
            (open, held) => {
                assert!(
                    tokio::time::Instant::now() < deadline,
                    "not settled: {open:?}, volume {held:?}"
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// What the host, the pools and the store hold must be what the records say, no more and no less.
async fn assert_nothing_leaked(rig: &Rig, life: &Life) {
    let findings = life.control.doctor(false).await.expect("the doctor looks");
    assert_eq!(findings, [], "the doctor found something");
    let volumes = life
        .control
        .list_volumes(&VolumeFilter::default(), &PageRequest::largest())
        .await
        .expect("volumes can be listed")
        .items;
    let publications: Vec<_> = volumes.iter().flat_map(|volume| &volume.publications).collect();
    let devices: BTreeSet<_> = publications
        .iter()
        .filter_map(|publication| match &publication.attached {
            Some(Attached::Block { device, .. }) => Some(device.clone()),
            Some(Attached::Directory { .. } | Attached::File { .. }) | None => None,
        })
        .collect();
    let state = rig.host.snapshot();
    let loops: BTreeSet<_> = state.loops.iter().map(|device| device.device.clone()).collect();
    assert_eq!(loops, devices, "loop devices and attachments differ");
    let mounts: BTreeSet<_> = state
        .mounts
        .iter()
        .map(|mount| mount.target.clone())
        .filter(|target| target.starts_with(rig.path("mnt")))
        .collect();
    let wanted: BTreeSet<_> = publications
        .iter()
        .flat_map(|publication| &publication.mounts)
        .inspect(|mount| assert!(mount.ready, "{} is half mounted", mount.target.display()))
        .map(|mount| mount.target.clone())
        .collect();
    assert_eq!(mounts, wanted, "mounts and records differ");
    assert!(state.frozen.is_empty(), "left frozen: {:?}", state.frozen);
    for pool in ["pool-default", "pool-folders"] {
        let staging = std::fs::read_dir(rig.path(pool).join("staging"));
        let left: Vec<_> = staging.into_iter().flatten().flatten().map(|e| e.path()).collect();
        assert!(left.is_empty(), "left in staging: {left:?}");
    }
}

/// At the end of the life only the pools' own files and the history may be left.
async fn assert_nothing_left(rig: &Rig, life: &Life) {
    assert_nothing_leaked(rig, life).await;
    let left = std::fs::read_dir(rig.path("mnt")).expect("listable").flatten().count();
    assert_eq!(left, 0, "mount folders were left");
    let records = rig.store.list(&Prefix::all(), None, 10_000).await.expect("listable").items;
    let left: Vec<_> = records
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| !key.starts_with("operation/") && !key.starts_with("node/"))
        .collect();
    assert!(left.is_empty(), "left in the store: {left:?}");
}

/// Methods that a life on local volumes never comes to. Connectors that mount over a network use some
/// of them, and the connector contract stops the world at each of their calls; the others are of a
/// driver whose node service acts past the engine, of classes that know which node they are on, and of
/// stores whose writes are dear (`engine_drafts.rs` stops the world at each of their calls).
const ELSEWHERE: [&str; 10] = [
    "Host::abandon_mount",
    "Host::make_folder",
    "Host::look",
    "Host::make_target_file",
    "Host::give_to_group",
    // A folder in use is not copied, so nobody asks for it to be written out first.
    "Host::sync_filesystem",
    "Node::usage",
    "Placement::capacity_at",
    "Blanks::blanks",
    "Blanks::delete_blank",
];

/// How many points one undisturbed life has; every method must have some, on both sides.
fn count_points() -> u64 {
    let rig = fresh();
    let faults = Faults::counting();
    runtime().block_on(async {
        let life = live(&rig, &faults, &AtomicUsize::new(0)).await;
        settle(&*life.control).await;
        assert_nothing_left(&rig, &life).await;
    });
    let hits = faults.hits();
    let without: Vec<_> = METHODS
        .iter()
        .copied()
        .flatten()
        .filter(|method| !ELSEWHERE.contains(method))
        .filter(|method| {
            [Side::Before, Side::After].iter().any(|side| !hits.contains_key(&(**method, *side)))
        })
        .collect();
    assert!(without.is_empty(), "methods without a fault point: {without:?}");
    let met = ELSEWHERE.iter().find(|method| hits.contains_key(&(**method, Side::Before)));
    assert_eq!(met, None, "a life comes to it now: take it out of the list");
    faults.passed()
}

/// Stops the world at one point and looks at the next life. Answers where it stopped.
fn crash_and_recover(point: u64, models: &[Model]) -> Option<(&'static str, Side)> {
    let rig = fresh();
    let faults = Faults::crash_at(point);
    let reached = AtomicUsize::new(0);
    let first = runtime();
    first.block_on(async {
        tokio::select! {
            _ = live(&rig, &faults, &reached) => {}
            () = faults.dead() => {}
        }
    });
    // Calls that were under way end; nobody hears their answers.
    first.shutdown_timeout(Duration::from_secs(30));
    let died_at = faults.died_at();
    // What a step had set to fail is for that life alone.
    rig.host.heal();

    runtime().block_on(async {
        let faults = Faults::counting();
        let life = rig.boot(&faults).await.expect("the process starts again");
        settle(&*life.control).await;
        let done = reached.load(Ordering::Relaxed);
        let found = Model::read(&*life.control).await.expect("the lists can be read");
        let next = LIFE.get(done).map(|step| {
            let mut next = models[done].clone();
            next.apply_without_failure(*step);
            next
        });
        assert!(
            found == models[done] || Some(&found) == next.as_ref(),
            "{} steps were acknowledged; found {found:#?}, expected {:#?} or {next:#?}",
            done,
            models[done]
        );
        assert_nothing_leaked(&rig, &life).await;
        drop(life);
        let life = live(&rig, &faults, &reached).await;
        settle(&*life.control).await;
        assert_nothing_left(&rig, &life).await;
    });
    died_at
}

#[test]
fn every_fault_point_recovers() {
    let models = models();
    let total = count_points();
    let next = AtomicU64::new(0);
    let survived = AtomicU64::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let point = next.fetch_add(1, Ordering::Relaxed);
                    if point >= total {
                        return;
                    }
                    match catch_unwind(AssertUnwindSafe(|| crash_and_recover(point, &models))) {
                        Ok(_) => {
                            survived.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => failures.lock().expect("not poisoned").push(point),
                    }
                }
            });
        }
    });
    let survived = survived.into_inner();
    // Straight to the terminal: this line is the proof and must not be captured.
    hawser_testkit::skip::say(&format!("fault points {survived} of {total}"));
    let failures = failures.into_inner().expect("not poisoned");
    assert!(failures.is_empty(), "not survived: {failures:?}");
}
