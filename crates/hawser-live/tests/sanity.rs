//! csi-sanity against the driver that the program ships. A test fails where the suite or the driver
//! cannot be had: `make e2e-sanity` asks for it.

use std::path::{Path, PathBuf};

use hawser_live::cluster::Place;
use hawser_live::cluster::sanity::{Expected, Outcome, Sanity, wait_socket};
use hawser_live::process::{Ground, Program, command};

/// The case of a feature that no local pool can have: its snapshots are where their volumes are.
const NOWHERE: &str = "should succeed when creating a snapshot with accessibility requirements";

/// With it the cases of features that are newer than CSI 1.12, and that `--health` switches on.
const BEYOND: [&str; 7] = [
    NOWHERE,
    "ControllerGetVolumeHealth [Controller Server] should fail when no volume id is provided",
    "ControllerGetVolumeHealth [Controller Server] should return health for a valid volume",
    "ControllerListVolumeHealth [Controller Server] should return appropriate response",
    "NodeGetVolumeHealth should fail when no volume id is provided",
    "NodeGetVolumeHealth should return health for a valid volume",
    "NodeGetStorageHealth should return appropriate response",
];

/// What our driver comes to: every case of CSI 1.12, and the one that the suite has switched off.
const EXPECTED: Expected<'static> = Expected { passed: 95, pending: 1, skipped: &BEYOND };

/// The same with what is newer.
const WITH_HEALTH: Expected<'static> = Expected { passed: 101, pending: 1, skipped: &[NOWHERE] };

/// How large volumes are, and what they grow to.
const SIZE: u64 = 32 << 20;
const EXPANDED: u64 = 48 << 20;

/// How many volumes a node takes: the suite fills it up.
const MOST_VOLUMES: &str = "4";

fn start(ground: &Ground, mode: &'static str, socket: &Path) -> Program {
    start_with(ground, mode, socket, &[])
}

fn start_with(ground: &Ground, mode: &'static str, socket: &Path, others: &[&str]) -> Program {
    let endpoint = format!("unix://{}", socket.display());
    let state = ground.state().display().to_string();
    let args = ["csi", "--endpoint", &endpoint, "--mode", mode, "--node-id", "here"];
    let more = ["--state-dir", &state, "--max-volumes-per-node", MOST_VOLUMES];
    let mut driver = ground.start(mode, &[&args[..], &more[..], others].concat());
    wait_socket(&mut driver, socket);
    driver
}

fn sanity(ground: &Ground, socket: &Path) -> Sanity {
    Sanity::new(ground.path(), socket)
        .sizes(SIZE, EXPANDED)
        .mutable_parameter("label.tier", "gold")
        .attach_limit()
}

/// The suite makes loop devices and mounts.
#[track_caller]
fn ground() -> (Ground, PathBuf) {
    assert!(
        rustix::process::geteuid().is_root(),
        "csi-sanity needs root for loop devices and mounts"
    );
    let ground = Ground::new();
    let socket = ground.path().join("csi.sock");
    (ground, socket)
}

#[test]
fn sanity_of_mounted_volumes() {
    let (ground, socket) = ground();
    let mut driver = start(&ground, "all", &socket);

    let report = sanity(&ground, &socket).run(&mut [&mut driver]);

    report.assert(&EXPECTED);
    driver.stop();
    ground.assert_no_traces();
}

#[test]
fn sanity_of_raw_block_volumes() {
    let (ground, socket) = ground();
    let mut driver = start(&ground, "all", &socket);

    let report = sanity(&ground, &socket).block().run(&mut [&mut driver]);

    report.assert(&EXPECTED);
    driver.stop();
    ground.assert_no_traces();
}

#[test]
fn sanity_of_a_controller_and_a_node_in_two_processes() {
    let (ground, node_socket) = ground();
    let controller_socket = ground.path().join("controller.sock");
    let mut controller = start(&ground, "controller", &controller_socket);
    let mut node = start(&ground, "node", &node_socket);

    let report = sanity(&ground, &node_socket)
        .controller(&controller_socket)
        .run(&mut [&mut controller, &mut node]);

    report.assert(&EXPECTED);
    node.stop();
    controller.stop();
    ground.assert_no_traces();
}

#[test]
fn sanity_three_times_on_one_state_folder() {
    let (ground, socket) = ground();
    for _ in 0..3 {
        let mut driver = start(&ground, "all", &socket);
        let report = sanity(&ground, &socket).run(&mut [&mut driver]);
        report.assert(&EXPECTED);
        driver.stop();
        ground.assert_no_traces();
    }
}

#[test]
fn sanity_with_the_health_of_volumes() {
    let (ground, socket) = ground();
    let mut driver = start_with(&ground, "all", &socket, &["--health"]);

    let report = sanity(&ground, &socket).run(&mut [&mut driver]);

    report.assert(&WITH_HEALTH);
    driver.stop();
    ground.assert_no_traces();
}

/// CVE-2023-2878, CVE-2024-3744, CVE-2025-7445: the program as it ships, saying all that it can say.
#[test]
fn sanity_leaves_no_secret_in_a_log_that_has_everything() {
    const PLANTED: &str = "planted-secret";
    let (ground, socket) = ground();
    let mut driver = start_with(&ground, "all", &socket, &["--log", "trace", "--health"]);

    let report = sanity(&ground, &socket).secrets(PLANTED).run(&mut [&mut driver]);

    report.assert(&WITH_HEALTH);
    driver.stop();
    let log = std::fs::read_to_string(driver.log()).expect("a log");
    for call in ["CreateVolume", "NodeStageVolume", "NodePublishVolume", "CreateSnapshot"] {
        assert!(log.contains(call), "{call} is not in the log");
    }
    assert!(log.contains("TRACE"), "the log does not have everything");
    let leaked: Vec<&str> = log.lines().filter(|line| line.contains(PLANTED)).collect();
    assert!(leaked.is_empty(), "{leaked:#?}");
}

/// The runner counts what somebody else's driver does: it does not find only what we expect of ours.
#[test]
fn sanity_of_a_foreign_driver_is_counted() {
    let (ground, socket) = ground();
    let program = Place::of_environment().program("hostpathplugin");
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    let mut hostpath = command(program);
    hostpath.arg(format!("--endpoint=unix://{}", socket.display()));
    hostpath.arg(format!("--statedir={}", ground.path().join("hostpath").display()));
    hostpath.args(["--nodeid=here", "--enable-attach=true"]);
    let mut driver = Program::start("hostpath", &mut hostpath, ground.path());
    wait_socket(&mut driver, &socket);

    let report = Sanity::new(ground.path(), &socket).sizes(SIZE, EXPANDED).run(&mut [&mut driver]);

    assert_eq!(report.cases.len(), 103, "csi-sanity has another number of cases: {report}");
    assert_eq!(report.count(Outcome::Pending), 1, "{report}");
    let skipped = report.of(Outcome::Skipped);
    assert!(skipped.iter().any(|case| case.name.contains("ModifyVolume")), "{skipped:#?}");
    // Nothing is skipped by ours that this one does not skip, too.
    for ours in BEYOND {
        assert!(skipped.iter().any(|case| case.name.contains(ours)), "{ours}: {skipped:#?}");
    }
}
