//! A tiny Ceph cluster: one monitor and one OSD over a sparse file, both in the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::{Daemon, cmd, wait_for};

/// Everything of the cluster lies here.
const HOME: &str = "/var/tmp/ceph";

/// On the loopback device; a monitor refuses 127.0.0.0/8 for its map.
const ADDRESS: &str = "10.77.0.1";

/// The programs are large, and the guest is slow.
const SLOW: Duration = Duration::from_secs(120);

/// Who may use the pools, beside the administrator: one user for everything, one for nothing.
const USERS: [(&str, &str, &str); 4] = [
    ("mon.", "allow *", ""),
    ("client.admin", "allow *", "allow *"),
    ("client.guest", "allow r", "allow rwx pool=elsewhere"),
    ("osd.0", "allow profile osd", "allow *"),
];

/// A cluster that runs. Its daemons end with it.
#[derive(Debug)]
pub struct Ceph {
    /// Its id.
    pub fsid: String,
    keys: Vec<(&'static str, String)>,
    _monitor: Daemon,
    osd: Daemon,
}

impl Ceph {
    /// Makes a cluster that asks for keys, and waits until its OSD is in.
    #[track_caller]
    pub fn start() -> Self {
        let _ = fs::remove_dir_all(HOME);
        for folder in ["mon", "osd", "run"] {
            fs::create_dir_all(Path::new(HOME).join(folder)).expect("room for a cluster");
        }
        let address = format!("{ADDRESS}/32");
        // There already when this is not the first cluster of the guest.
        cmd("ip").args(["address", "add", &address, "dev", "lo"]).run();
        let fsid = uuid::Uuid::new_v4().to_string();
        let osd = uuid::Uuid::new_v4().to_string();
        fs::write(file("ceph.conf"), configuration(&fsid)).expect("a configuration");
        let keys = keyrings();
        let monitor = start_monitor(&fsid);
        ceph(&["osd", "create", &osd]);
        let mkfs = cmd("ceph-osd").args(["-c", &conf(), "-i", "0", "--mkfs", "--osd-uuid", &osd]);
        mkfs.limit(SLOW).ok();
        let osd = start_osd();
        Self { fsid, keys, _monitor: monitor, osd }
    }

    /// The monitor's address for the first messenger.
    pub fn monitor(&self) -> &'static str {
        "10.77.0.1:6789"
    }

    /// The monitor's address for the second messenger.
    pub fn monitor_v2(&self) -> &'static str {
        "10.77.0.1:3300"
    }

    /// The key of a user such as `client.admin`.
    #[track_caller]
    pub fn key(&self, user: &str) -> &str {
        let known = self.keys.iter().find(|(name, _)| *name == user);
        known.map(|(_, key)| key.as_str()).expect("a user of the cluster")
    }

    /// Makes a pool for images.
    #[track_caller]
    pub fn pool(&self, name: &str) {
        ceph(&["osd", "pool", "create", name, "8"]);
    }

    /// Runs `rbd` as the administrator, and answers what it said.
    #[track_caller]
    pub fn rbd(&self, args: &[&str]) -> String {
        cmd("rbd").args(["-c", &conf()]).args(args).limit(SLOW).ok()
    }

    /// Makes an image larger.
    #[track_caller]
    pub fn grow(&self, name: &str, mib: u64) {
        self.rbd(&["resize", name, "--size", &format!("{mib}M"), "--no-progress"]);
    }

    /// Removes an image, which nobody may have mapped.
    #[track_caller]
    pub fn remove(&self, name: &str) {
        self.rbd(&["remove", name, "--no-progress"]);
    }

    /// Some bytes of an image, past every kernel.
    #[track_caller]
    pub fn read(&self, name: &str, at: u64, length: usize) -> Vec<u8> {
        let copy = file("copy");
        let _ = fs::remove_file(&copy);
        let path = copy.display().to_string();
        self.rbd(&["export", name, &path, "--no-progress"]);
        let all = fs::read(&copy).expect("an exported image");
        let at = usize::try_from(at).expect("a small image");
        all[at..at + length].to_vec()
    }

    /// Makes an image with what every kernel knows.
    #[track_caller]
    pub fn image(&self, name: &str, mib: u64) {
        let size = format!("{mib}M");
        self.rbd(&["create", name, "--size", &size, "--image-feature", "layering"]);
    }

    /// Makes an image with the features that Ceph gives by itself, an exclusive lock among them.
    #[track_caller]
    pub fn usual_image(&self, name: &str, mib: u64) {
        self.rbd(&["create", name, "--size", &format!("{mib}M")]);
    }

    /// The OSD answers nobody, as when its machine hangs.
    pub fn pause_osd(&self) {
        self.osd.signal(Signal::STOP);
    }

    /// The OSD answers again.
    pub fn resume_osd(&self) {
        self.osd.signal(Signal::CONT);
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(HOME).join(name)
}

fn conf() -> String {
    format!("{HOME}/ceph.conf")
}

fn configuration(fsid: &str) -> String {
    format!(
        "[global]\n\
         fsid = {fsid}\n\
         mon host = [v2:{ADDRESS}:3300,v1:{ADDRESS}:6789]\n\
         mon initial members = a\n\
         public addr = {ADDRESS}\n\
         cluster addr = {ADDRESS}\n\
         auth cluster required = cephx\n\
         auth service required = cephx\n\
         auth client required = cephx\n\
         keyring = {HOME}/$name.keyring\n\
         run dir = {HOME}/run\n\
         log file = {HOME}/$name.log\n\
         mon data = {HOME}/mon\n\
         osd data = {HOME}/osd\n\
         osd pool default size = 1\n\
         osd pool default min size = 1\n\
         osd crush chooseleaf type = 0\n\
         osd pool default pg autoscale mode = off\n\
         osd objectstore = bluestore\n\
         osd memory target = 900000000\n\
         bluestore block size = 4294967296\n\
         mon allow pool size one = true\n\
         mon allow pool delete = true\n\
         mon data avail warn = 1\n\
         mon data avail crit = 0\n\
         mon osd full ratio = 0.99\n"
    )
}

/// A keyring for each user, and one with all of them for the monitor to begin with.
#[track_caller]
fn keyrings() -> Vec<(&'static str, String)> {
    let (mut all, mut keys) = (String::new(), Vec::new());
    for (user, monitor, osd) in USERS {
        let key = cmd("ceph-authtool").arg("--gen-print-key").ok().trim().to_owned();
        let mut section = format!("[{user}]\n\tkey = {key}\n\tcaps mon = \"{monitor}\"\n");
        if !osd.is_empty() {
            section += &format!("\tcaps osd = \"{osd}\"\n");
        }
        fs::write(file(&format!("{user}.keyring")), &section).expect("a keyring");
        all += &section;
        keys.push((user, key));
    }
    fs::write(file("all.keyring"), all).expect("a keyring");
    keys
}

#[track_caller]
fn start_monitor(fsid: &str) -> Daemon {
    let map = format!("{HOME}/monmap");
    let addresses = format!("[v2:{ADDRESS}:3300,v1:{ADDRESS}:6789]");
    cmd("monmaptool").args(["--create", "--fsid", fsid, "--addv", "a", &addresses, &map]).ok();
    let all = format!("{HOME}/all.keyring");
    let mkfs = ["-c", &conf(), "-i", "a", "--mkfs", "--monmap", &map, "--keyring", &all];
    cmd("ceph-mon").args(mkfs).limit(SLOW).ok();
    // It looks for its own keyring in its folder first, and mkfs put it there.
    cmd("ceph-mon").args(["-c", &conf(), "-i", "a", "-f"]).start()
}

#[track_caller]
fn start_osd() -> Daemon {
    let mut osd = cmd("ceph-osd").args(["-c", &conf(), "-i", "0", "-f"]).start();
    wait_for("OSD that is in", SLOW, || {
        osd.assert_alive();
        // Asking the monitor costs seconds each time.
        let log = fs::read(file("osd.0.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).contains("state: booting -> active").then_some(())
    });
    osd
}

/// A command to the monitor.
#[track_caller]
fn ceph(args: &[&str]) -> String {
    cmd("ceph").args(["-c", &conf(), "--connect-timeout", "60"]).args(args).limit(SLOW).ok()
}
