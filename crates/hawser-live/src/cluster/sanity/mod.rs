//! csi-sanity, the suite that every CSI driver has to pass, against a driver that a test started.
//!
//! It skips whatever a driver says it cannot do, so a pass alone says little: a test compares the
//! numbers, and the names of what was skipped, with what it [expects](Expected).

mod report;

use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

pub use report::{Case, Expected, Outcome, Report};

use super::kubectl::unwrap;
use super::program::{SHOWN_LINES, file_tail, of_machine};
use super::{Place, say};
use crate::process::Program;
use crate::{child, traces};

/// How long a driver may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long the suite may take; it takes seconds where volumes are small.
const LIMIT: Duration = Duration::from_secs(600);

/// How often the driver is looked at while the suite runs.
const LOOK: Duration = Duration::from_millis(200);

/// The calls that the suite has secrets for.
const SECRET_CALLS: [&str; 13] = [
    "CreateVolume",
    "DeleteVolume",
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "ControllerValidateVolumeCapabilities",
    "NodeStageVolume",
    "NodePublishVolume",
    "CreateSnapshot",
    "DeleteSnapshot",
    "ControllerExpandVolume",
    "ControllerModifyVolume",
    "ListSnapshots",
    "GetSnapshot",
];

/// A run of csi-sanity that is being put together.
#[derive(Clone, Debug)]
pub struct Sanity {
    program: PathBuf,
    folder: PathBuf,
    flags: Vec<String>,
}

impl Sanity {
    /// Against the driver on this socket. What the suite makes is below the folder; csi-sanity is
    /// built when it is not in the cache.
    #[track_caller]
    pub fn new(folder: &Path, socket: &Path) -> Self {
        let program = unwrap(Place::of_environment().program("csi-sanity"));
        Self { program, folder: folder.to_owned(), flags: Vec::new() }
            .flag(&format!("--csi.endpoint=unix://{}", socket.display()))
    }

    /// The controller has a socket of its own.
    pub fn controller(self, socket: &Path) -> Self {
        self.flag(&format!("--csi.controllerendpoint=unix://{}", socket.display()))
    }

    /// With raw block volumes instead of mounted ones.
    pub fn block(self) -> Self {
        self.flag("--csi.testvolumeaccesstype=block")
    }

    /// How large volumes are, and what they grow to: the suite's own choice is 10 GiB.
    pub fn sizes(self, volume: u64, expanded: u64) -> Self {
        self.flag(&format!("--csi.testvolumesize={volume}"))
            .flag(&format!("--csi.testvolumeexpandsize={expanded}"))
    }

    /// What a volume can be changed to; without it changing is not tested.
    #[track_caller]
    pub fn mutable_parameter(self, key: &str, value: &str) -> Self {
        let file = self.folder.join("mutable.yaml");
        // JSON, which is YAML too.
        let text = serde_json::json!({ key: value }).to_string();
        fs::write(&file, text).expect("the folder can be written");
        self.flag(&format!("--csi.testvolumemutableparameters={}", file.display()))
    }

    /// With a secret in every call that may have one: a word that begins so.
    #[track_caller]
    pub fn secrets(self, word: &str) -> Self {
        let file = self.folder.join("secrets.yaml");
        let of = |call: &&str| {
            let secret = serde_json::json!({ "password": format!("{word}-{call}") });
            (format!("{call}Secret"), secret)
        };
        let all: serde_json::Map<_, _> = SECRET_CALLS.iter().map(of).collect();
        fs::write(&file, serde_json::Value::from(all).to_string())
            .expect("the folder can be written");
        self.flag(&format!("--csi.secrets={}", file.display()))
    }

    /// With the test that fills a node up; its driver should allow few volumes.
    pub fn attach_limit(self) -> Self {
        self.flag("--csi.testnodevolumeattachlimit")
    }

    /// Any other flag.
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Runs the suite to its end.
    ///
    /// # Panics
    ///
    /// When a driver ends meanwhile, the suite does not come to its end, or something is left: a
    /// mount, a loop device, a record of an attachment, a file where volumes were mounted.
    #[track_caller]
    pub fn run(&self, drivers: &mut [&mut Program]) -> Report {
        let before = traces::of(&self.folder);
        let (mount, staging) = (self.folder.join("csi-mount"), self.folder.join("csi-staging"));
        let (json, log) = (self.folder.join("sanity.json"), self.folder.join("sanity.log"));
        let _ = fs::remove_file(&json);
        let begun = Instant::now();
        self.follow(drivers, &mount, &staging, &json, &log);
        let text = fs::read(&json).unwrap_or_default();
        let report = Report::parse(&text).unwrap_or_else(|error| {
            let tail = file_tail(&log, SHOWN_LINES);
            panic!("csi-sanity left no report that can be read: {error}\n{tail}")
        });
        say(&format!("csi-sanity: {report}, {:.1} s", begun.elapsed().as_secs_f64()));
        for place in [&mount, &staging] {
            assert!(!place.exists(), "{} is left, with {:?}", place.display(), entries(place));
        }
        assert_eq!(traces::of(&self.folder), before, "left by the volumes of csi-sanity");
        report
    }

    #[track_caller]
    fn follow(
        &self,
        drivers: &mut [&mut Program],
        mount: &Path,
        staging: &Path,
        json: &Path,
        log: &Path,
    ) {
        let mut command = of_machine(&self.program.to_string_lossy());
        command.args(&self.flags);
        command.arg(format!("--csi.mountdir={}", mount.display()));
        command.arg(format!("--csi.stagingdir={}", staging.display()));
        command.arg(format!("--ginkgo.json-report={}", json.display()));
        command.arg("--ginkgo.no-color");
        let file = fs::File::create(log).expect("a log file");
        let copy = file.try_clone().expect("a descriptor");
        command.stdin(Stdio::null()).stdout(file).stderr(copy).process_group(0);
        let mut suite = command.spawn().expect("csi-sanity can be started");
        let begun = Instant::now();
        // Its exit code says what the report says.
        while child::wait(&mut suite, LOOK).is_none() {
            let ended =
                drivers.iter_mut().find_map(|driver| Some((driver.ended()?, driver.name())));
            let slow = begun.elapsed() > LIMIT;
            if ended.is_some() || slow {
                child::kill(&mut suite);
            }
            if let Some((status, name)) = ended {
                panic!("{name} ended while csi-sanity ran: {status}\n{}", logs(drivers));
            }
            let tail = || file_tail(log, SHOWN_LINES);
            assert!(!slow, "csi-sanity did not end within {LIMIT:?}\n{}", tail());
        }
    }
}

/// Waits until a driver listens on its socket.
///
/// # Panics
///
/// When it ends or takes too long, with its log.
#[track_caller]
pub fn wait_socket(driver: &mut Program, socket: &Path) {
    let begun = Instant::now();
    while UnixStream::connect(socket).is_err() {
        let name = driver.name();
        if let Some(status) = driver.ended() {
            panic!("{name} ended before it listened: {status}\n{}", driver.log_end());
        }
        let log = || driver.log_end();
        let (waited, place) = (begun.elapsed(), socket.display());
        assert!(waited < START_LIMIT, "{name} does not listen on {place}\n{}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn logs(drivers: &[&mut Program]) -> String {
    drivers.iter().map(|driver| format!("--- {}\n{}\n", driver.name(), driver.log_end())).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that is a script.
    fn driver(folder: &Path, script: &str) -> Program {
        let mut command = of_machine("sh");
        Program::start("driver", command.args(["-c", script]), folder)
    }

    /// A suite that is one.
    fn suite(folder: &Path, script: &str) -> Sanity {
        let flags = vec!["-c".to_owned(), script.to_owned()];
        Sanity { program: "sh".into(), folder: folder.to_owned(), flags }
    }

    #[test]
    #[should_panic(expected = "driver ended before it listened: exit status: 3\nno pool")]
    fn a_driver_that_ends_before_it_listens_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = driver(folder.path(), "echo no pool; exit 3");
        wait_socket(&mut driver, &folder.path().join("csi.sock"));
    }

    #[test]
    #[should_panic(
        expected = "driver ended while csi-sanity ran: exit status: 4\n--- driver\ngone"
    )]
    fn a_driver_that_ends_meanwhile_ends_the_suite() {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = driver(folder.path(), "sleep 0.3; echo gone; exit 4");
        suite(folder.path(), "sleep 60").run(&mut [&mut driver]);
    }

    #[test]
    #[should_panic(expected = "csi-sanity left no report that can be read")]
    fn a_suite_that_breaks_off_is_no_pass() {
        let folder = tempfile::tempdir().unwrap();
        suite(folder.path(), "echo unknown flag; exit 2").run(&mut []);
    }

    #[test]
    #[should_panic(expected = "csi-mount is left")]
    fn a_file_where_volumes_were_mounted_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let script = format!("mkdir {path}/csi-mount; echo '[]' >{path}/sanity.json");
        suite(folder.path(), &script).run(&mut []);
    }
}
