//! csi-sanity against ours and the peer's driver, with volumes of the same size.

use std::fs;
use std::path::{Path, PathBuf};

use hawser_live::cluster::sanity::{Sanity, wait_socket};
use hawser_live::cluster::{Place, chain};
use hawser_live::process::{Ground, Program, binary, command};
use hawser_live::report::{Figure, Report, mebibytes, median, seconds};

use crate::figures::at_most;

/// How large volumes are, and what they grow to.
const SIZE: u64 = 32 << 20;
const EXPANDED: u64 = 48 << 20;

/// Bars: folders against the peer's folders; file systems in seconds and KiB.
const FOLDERS: f64 = 2.0;
const EXT4: f64 = 5.0;
const EXT4_KIB: f64 = 25.0 * 1024.0;

/// What runs took, and how large the driver was at the end of the last one.
struct Took {
    seconds: f64,
    kib: f64,
}

impl Took {
    fn shown(&self) -> (f64, String) {
        (self.seconds, format!("{:.2}s({})", self.seconds, mebibytes(self.kib)))
    }
}

/// Runs the suite against a driver that is started anew each time.
fn measure(runs: usize, start: impl Fn(&Ground, &Path) -> Program) -> Took {
    let mut times = Vec::new();
    let mut kib = 0.0;
    for _ in 0..runs {
        let ground = Ground::below(&place());
        let socket = ground.path().join("csi.sock");
        let mut driver = start(&ground, &socket);
        wait_socket(&mut driver, &socket);
        let suite = Sanity::new(ground.path(), &socket).sizes(SIZE, EXPANDED);
        times.push(seconds(|| drop(suite.run(&mut [&mut driver]))));
        kib = driver.resident_kib() as f64;
    }
    Took { seconds: median(times), kib }
}

/// Beside the program, so on the disk of the build.
fn place() -> PathBuf {
    binary().parent().expect("the program is in a folder").to_owned()
}

fn ours(ground: &Ground, socket: &Path, settings: Option<&str>) -> Program {
    let endpoint = format!("unix://{}", socket.display());
    let state = ground.state().display().to_string();
    let mut args = vec!["csi", "--endpoint", &endpoint, "--node-id", "here", "--state-dir", &state];
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
    let theirs = measure(runs, peer);
    let folders = Some("[class.default]\nprovider = \"local\"\nkind = \"folder\"\n");
    let folders = measure(runs, |ground, socket| ours(ground, socket, folders));
    let ext4 = measure(runs, |ground, socket| ours(ground, socket, None));
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
