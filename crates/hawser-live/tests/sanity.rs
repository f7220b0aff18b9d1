//! csi-sanity against the driver that the program ships. A test fails where the suite or the driver
//! cannot be had: `make e2e-sanity` asks for it.

use std::path::{Path, PathBuf};

use hawser_live::cluster::Place;
use hawser_live::cluster::sanity::{Expected, Outcome, Sanity, wait_socket};
use hawser_live::process::{Ground, Program, command};

/// Cases of features that are newer than CSI 1.12, or that a local pool cannot have.
const BEYOND: [&str; 7] = [
    "should succeed when creating a snapshot with accessibility requirements",
    "ControllerGetVolumeHealth [Controller Server] should fail when no volume id is provided",
    "ControllerGetVolumeHealth [Controller Server] should return health for a valid volume",
    "ControllerListVolumeHealth [Controller Server] should return appropriate response",
    "NodeGetVolumeHealth should fail when no volume id is provided",
    "NodeGetVolumeHealth should return health for a valid volume",
    "NodeGetStorageHealth should return appropriate response",
];

/// What our driver comes to: every case of CSI 1.12, and the one that the suite has switched off.
const EXPECTED: Expected<'static> = Expected { passed: 95, pending: 1, skipped: &BEYOND };

/// How large volumes are, and what they grow to.
const SIZE: u64 = 32 << 20;
const EXPANDED: u64 = 48 << 20;

/// How many volumes a node takes: the suite fills it up.
const MOST_VOLUMES: &str = "4";

fn start(ground: &Ground, mode: &'static str, socket: &Path) -> Program {
    let endpoint = format!("unix://{}", socket.display());
    let state = ground.state().display().to_string();
    let args = ["csi", "--endpoint", &endpoint, "--mode", mode, "--node-id", "here"];
    let more = ["--state-dir", &state, "--max-volumes-per-node", MOST_VOLUMES];
    let mut driver = ground.start(mode, &[&args[..], &more[..]].concat());
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
}
