//! The least that a script can do: log in with records that are there, and wait for what udev makes
//! of it. It checks nothing, remembers nothing and takes nothing back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use hawser_live::lab::guest::cmd;
use hawser_live::process;

use crate::place::{PORTALS, Volume, Ways};
use crate::sides::Side;

/// The database of the initiator, and where the floor's is kept between its turns.
const NODES: &str = "/etc/iscsi/nodes";
const KEPT: &str = "/etc/iscsi/nodes-of-the-floor";

/// How long a link may take.
const LINK_LIMIT: Duration = Duration::from_secs(300);

/// A script with its records.
pub(crate) struct Floor;

impl Floor {
    /// Makes the records of all volumes.
    pub(crate) fn new(volumes: &[Volume]) -> Self {
        let _ = fs::remove_dir_all(NODES);
        for volume in volumes {
            for portal in PORTALS {
                let of = ["-m", "node", "-T", &volume.iqn, "-p", portal, "-o", "new"];
                cmd("iscsiadm").args(of).ok();
            }
        }
        fs::rename(NODES, KEPT).expect("a folder can be renamed");
        fs::create_dir(NODES).expect("an empty database");
        Self
    }
}

impl Side for Floor {
    fn name(&self) -> &'static str {
        "the floor"
    }

    fn prepare(&mut self) {
        fs::remove_dir(NODES).expect("nobody left a record");
        fs::rename(KEPT, NODES).expect("a folder can be renamed");
    }

    fn finish(&mut self) {
        fs::rename(NODES, KEPT).expect("a folder can be renamed");
        fs::create_dir(NODES).expect("an empty database");
    }

    fn connect(&mut self, volumes: &[&Volume], ways: Ways) -> (Duration, Vec<PathBuf>) {
        let begun = Instant::now();
        let links = all(volumes, |volume| {
            session(volume, ways, "--login");
            let link = link(volume, ways);
            // A script has nothing but a look now and then.
            while !link.exists() {
                assert!(begun.elapsed() < LINK_LIMIT, "no {}", link.display());
                thread::sleep(Duration::from_millis(5));
            }
            link
        });
        (begun.elapsed(), links)
    }

    fn disconnect(&mut self, volumes: &[&Volume], ways: Ways) -> Duration {
        let begun = Instant::now();
        all(volumes, |volume| {
            if ways == Ways::Two {
                flush(volume);
            }
            session(volume, ways, "--logout");
        });
        begun.elapsed()
    }
}

/// One script for each volume, all at once.
fn all<T: Send>(volumes: &[&Volume], work: impl Fn(&Volume) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> =
            volumes.iter().map(|volume| scope.spawn(move || work(volume))).collect();
        started.into_iter().map(|one| one.join().expect("a script that works")).collect()
    })
}

/// Logs in or out.
pub(crate) fn session(volume: &Volume, ways: Ways, what: &str) {
    match ways {
        Ways::One => run("iscsiadm", &["-m", "node", "-T", &volume.iqn, "-p", PORTALS[0], what]),
        Ways::Two => run("iscsiadm", &["-m", "node", "-T", &volume.iqn, what]),
    }
}

/// Removes a map. With many at once multipathd answers late, and the program fails although the map
/// is gone.
fn flush(volume: &Volume) {
    if let Err(said) = attempt("multipath", &["-f", &volume.wwid]) {
        let there = attempt("dmsetup", &["info", &volume.wwid]).is_ok();
        assert!(!there, "{said}");
    }
}

fn run(program: &str, args: &[&str]) {
    attempt(program, args).unwrap_or_else(|said| panic!("{said}"));
}

fn attempt(program: &str, args: &[&str]) -> Result<(), String> {
    let mut command = process::command(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().expect("a program of the guest");
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {args:?}: {}\n{said}", output.status))
        }
    }
}

fn link(volume: &Volume, ways: Ways) -> PathBuf {
    let name = match ways {
        Ways::One => format!("wwn-0x{}", volume.wwid.strip_prefix('3').unwrap_or_default()),
        Ways::Two => format!("dm-uuid-mpath-{}", volume.wwid),
    };
    Path::new("/dev/disk/by-id").join(name)
}
