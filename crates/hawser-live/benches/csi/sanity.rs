//! csi-sanity against ours and the peer's driver, with volumes of the same size.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hawser_live::cluster::sanity::{Outcome, Sanity, wait_socket};
use hawser_live::cluster::{Place, chain};
use hawser_live::process::{Ground, Program, binary, command};
use hawser_live::report::{Figure, Report, mebibytes, median};

use crate::figures::at_most;

/// How large volumes are, and what they grow to.
const SIZE: u64 = 32 << 20;
const EXPANDED: u64 = 48 << 20;

/// How many volumes a node takes: the suite fills it up.
const MOST_VOLUMES: &str = "4";

/// Bars: folders against the peer's folders; file systems in seconds and KiB.
const FOLDERS: f64 = 2.0;
const EXT4: f64 = 5.0;
const EXT4_KIB: f64 = 25.0 * 1024.0;

/// What runs took, how large the driver became, and what the last one came to.
struct Took {
    seconds: f64,
    kib: f64,
    passed: usize,
    failed: usize,
}

impl Took {
    fn shown(&self) -> (f64, String) {
        let Self { seconds, kib, passed, failed } = self;
        let size = mebibytes(*kib);
        (*seconds, format!("{seconds:.2}s({passed}-passed,{failed}-failed,{size})"))
    }

    /// A suite that fails early is no fast one.
    fn all_passed(self) -> Self {
        assert_eq!(self.failed, 0, "csi-sanity failed");
        self
    }
}

/// Runs the suite against a driver that is started anew each time.
fn measure(
    runs: usize,
    start: impl Fn(&Ground, &Path) -> Program,
    flags: impl Fn(Sanity) -> Sanity,
) -> Took {
    let mut times = Vec::new();
    let (mut kib, mut passed, mut failed) = (0.0_f64, 0, 0);
    for _ in 0..runs {
        let ground = Ground::below(&place());
        let socket = ground.path().join("csi.sock");
        let mut driver = start(&ground, &socket);
        wait_socket(&mut driver, &socket);
        let suite = flags(Sanity::new(ground.path(), &socket).sizes(SIZE, EXPANDED));
        let begun = Instant::now();
        let report = suite.run(&mut [&mut driver]);
        times.push(begun.elapsed().as_secs_f64());
        kib = kib.max(driver.most_resident_kib() as f64);
        passed = report.count(Outcome::Passed);
        failed += report.count(Outcome::Failed);
    }
    Took { seconds: median(times), kib, passed, failed }
}

/// Everything that the suite can test of ours.
fn whole(suite: Sanity) -> Sanity {
    suite.mutable_parameter("label.tier", "gold").attach_limit()
}

/// Beside the program, so on the disk of the build.
fn place() -> PathBuf {
    binary().parent().expect("the program is in a folder").to_owned()
}

fn ours(ground: &Ground, socket: &Path, settings: Option<&str>) -> Program {
    let endpoint = format!("unix://{}", socket.display());
    let state = ground.state().display().to_string();
    let mut args = vec!["csi", "--endpoint", &endpoint, "--node-id", "here", "--state-dir", &state];
    args.extend(["--max-volumes-per-node", MOST_VOLUMES]);
    let file = ground.path().join("hawser.toml");
    let file = file.display().to_string();
    if let Some(settings) = settings {
        fs::write(&file, settings).expect("the ground can be written");
        args.extend(["--config", &file]);
    }
    ground.start("hawser", &args)
}

fn peer(ground: &Ground, socket: &Path) -> Program {
    let program = Place::of_environment().program("hostpathplugin");
    let program = program.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let mut hostpath = command(program);
    hostpath.arg(format!("--endpoint=unix://{}", socket.display()));
    hostpath.arg(format!("--statedir={}", ground.path().join("hostpath").display()));
    hostpath.args(["--nodeid=here", "--enable-attach=true"]);
    Program::start("hostpath", &mut hostpath, ground.path())
}

pub(crate) fn run(report: &mut Report, runs: usize) {
    let theirs = measure(runs, peer, |suite| suite.attach_limit());
    let folders = Some("[class.default]\nprovider = \"local\"\nkind = \"folder\"\n");
    let folders = measure(runs, |ground, socket| ours(ground, socket, folders), whole);
    let folders = folders.all_passed();
    let ext4 = measure(runs, |ground, socket| ours(ground, socket, None), whole).all_passed();
    at_most(report, "sanity-folders", folders.shown(), theirs.shown(), Some(FOLDERS));
    let figure = Figure {
        ours: ext4.shown().1,
        peer: Some(theirs.shown().1),
        ratio: Some(ext4.seconds / theirs.seconds),
        bar: Some((format!("<{EXT4:.2}s"), ext4.seconds < EXT4)),
    };
    report.add("sanity-ext4", figure);
    report.at_most("sanity-ext4-memory", ext4.kib, EXT4_KIB, mebibytes);
}
