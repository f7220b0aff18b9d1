//! A GlusterFS cluster of one node, in the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Daemon, cmd, modprobe, wait_for};

/// How long the daemon may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(60);

const BRICKS: &str = "/var/tmp/bricks";

/// Its socket for the command line. A command that comes before it waits and asks again.
const SOCKET: &str = "/run/glusterd.socket";

/// What glusterd runs when it starts, a dozen times: set-up of geo-replication, in Python. That takes
/// more than a minute in a guest; without the program it goes on.
const GEO_REPLICATION: &str = "/usr/lib/x86_64-linux-gnu/glusterfs/gsyncd";

/// Scripts that glusterd runs with each volume, for SELinux, CTDB, Samba and Ganesha.
const HOOKS: &str = "/var/lib/glusterd/hooks";

/// A cluster of one node with one volume of one brick. It ends when it is dropped.
#[derive(Debug)]
pub struct Gluster {
    _glusterd: Daemon,
}

impl Gluster {
    /// Its address: bricks refuse those of 127.0.0.0/8.
    pub const ADDRESS: &str = "10.0.2.15";
    /// Its volume.
    pub const VOLUME: &str = "vols";

    /// A cluster whose volume is started.
    #[track_caller]
    pub fn new() -> Self {
        modprobe(&["fuse"]);
        let brick = Self::brick();
        fs::create_dir_all(&brick).expect("a folder for the brick");
        // Not there after a first try.
        let _ = fs::remove_file(GEO_REPLICATION);
        let _ = fs::remove_dir_all(HOOKS);
        let mut glusterd = cmd("glusterd").arg("-N").start();
        wait_for("the socket of glusterd", START_LIMIT, || {
            glusterd.assert_alive();
            Path::new(SOCKET).exists().then_some(())
        });
        wait_for("glusterd", START_LIMIT, || {
            glusterd.assert_alive();
            Self::gluster(&["volume", "list"]).succeeds().then_some(())
        });
        let place = format!("{}:{}", Self::ADDRESS, brick.display());
        Self::gluster(&["volume", "create", Self::VOLUME, &place, "force"]).ok();
        Self::gluster(&["volume", "start", Self::VOLUME]).ok();
        // Whoever mounts before its brick is there waits for it, some operations for ever.
        wait_for("the brick", START_LIMIT, || {
            let status = Self::gluster(&["volume", "status", Self::VOLUME, "detail"]).run().stdout;
            let online = |line: &str| line.starts_with("Online") && line.trim_end().ends_with('Y');
            status.lines().any(online).then_some(())
        });
        Self { _glusterd: glusterd }
    }

    fn gluster(args: &[&str]) -> super::Cmd {
        cmd("gluster").arg("--mode=script").args(args).limit(START_LIMIT)
    }

    /// The folder in which the files of the volume lie.
    pub fn brick() -> PathBuf {
        Path::new(BRICKS).join(Self::VOLUME)
    }

    /// The clients that serve mounts below a folder, by process id.
    pub fn clients(below: &str) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut words = line.split('\0').filter(|word| !word.is_empty());
            let program = words.next().unwrap_or_default();
            let target = words.next_back().unwrap_or_default();
            if program.ends_with("glusterfs") && target.starts_with(below) {
                found.push(pid);
            }
        }
        found
    }
}

impl Default for Gluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Gluster {
    fn drop(&mut self) {
        let _ = Self::gluster(&["volume", "stop", Self::VOLUME]).run();
    }
}
