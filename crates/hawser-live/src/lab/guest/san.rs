//! A storage network in one guest: a target, the daemons of its initiator, and what tests ask of both.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Daemon, Leftovers, Volume, cmd, initiator, iscsid, lio, multipathd, settle};

/// The name of the target.
pub const IQN: &str = "iqn.2004-10.com.example:san";

/// A target with volumes, and an initiator that may use it.
///
/// When a test fails, it shows what the kernel and the daemons said, and takes away what was left,
/// so that the next test starts clean.
pub struct San {
    /// The target; tests change it.
    pub target: lio::Target,
    /// Its volumes: the first is number 1.
    pub disks: Vec<lio::Disk>,
    /// What there was before anything was attached.
    pub before: Leftovers,
    iscsid: Option<Daemon>,
    multipathd: Option<Daemon>,
}

impl San {
    /// A target at these portals with volumes of 32 MiB. It takes no credentials.
    #[track_caller]
    pub fn new(portals: &[&str], volumes: usize) -> Self {
        clean();
        let iscsid = iscsid();
        let mut target = lio::Target::new(IQN);
        for portal in portals {
            target.add_portal(portal);
        }
        let disks: Vec<_> =
            (1..=volumes).map(|number| lio::Disk::new(&format!("san{number}"), 32)).collect();
        for (number, disk) in (1..).zip(&disks) {
            target.add_lun(number, disk);
        }
        target.allow(&initiator()).enable();
        settle();
        let before = Leftovers::snapshot();
        Self { target, disks, before, iscsid: Some(iscsid), multipathd: None }
    }

    /// The same with multipathd, set up by this configuration.
    #[track_caller]
    pub fn with_multipath(portals: &[&str], volumes: usize, configuration: &str) -> Self {
        fs::write("/etc/multipath.conf", configuration).expect("a configuration");
        let mut san = Self::new(portals, volumes);
        san.start_multipathd();
        san
    }

    /// Starts multipathd.
    #[track_caller]
    pub fn start_multipathd(&mut self) {
        self.multipathd = Some(multipathd());
    }

    /// Ends multipathd.
    #[track_caller]
    pub fn stop_multipathd(&mut self) {
        if let Some(daemon) = self.multipathd.take() {
            daemon.stop();
        }
    }

    /// Kills iscsid and starts another.
    #[track_caller]
    pub fn restart_iscsid(&mut self) {
        if let Some(daemon) = self.iscsid.take() {
            daemon.kill();
        }
        self.iscsid = Some(iscsid());
    }

    /// The way to a volume over one portal.
    pub fn one_way(&self, number: u16) -> Value {
        let portal = self.target.portals()[0].to_string();
        json!({ "target_portal": portal, "target_iqn": IQN, "target_lun": number,
            "volume_id": format!("v{number}") })
    }

    /// The ways to a volume over all portals.
    pub fn all_ways(&self, number: u16) -> Value {
        let portals: Vec<String> = self.target.portals().iter().map(ToString::to_string).collect();
        let count = portals.len();
        json!({ "target_portals": portals, "target_iqns": vec![IQN; count],
            "target_luns": vec![number; count], "volume_id": format!("v{number}") })
    }

    /// A volume over one portal.
    #[track_caller]
    pub fn volume(&self, number: u16) -> Volume {
        Volume::new("iscsi", self.one_way(number))
    }

    /// What there is now counts as what was there before.
    pub fn remember(&mut self) {
        settle();
        self.before = Leftovers::snapshot();
    }

    /// Panics unless everything is as before the first attach.
    #[track_caller]
    pub fn assert_clean(&self) {
        self.before.assert_restored();
    }
}

impl Drop for San {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = cmd("dmesg").try_run().map(|done| done.stdout).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
            for daemon in [&self.iscsid, &self.multipathd].into_iter().flatten() {
                let log = daemon.log();
                let lines: Vec<&str> = log.lines().collect();
                println!("--\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
            }
            for (program, args) in [
                ("multipath", ["-ll"].as_slice()),
                ("dmsetup", ["table"].as_slice()),
                ("iscsiadm", ["-m", "session", "-P", "3"].as_slice()),
                ("find", ["/etc/iscsi", "/run/hawser", "/var/lib/hawser"].as_slice()),
            ] {
                let done = cmd(program).args(args).try_run();
                println!("-- {program}\n{}", done.map(|done| done.stdout).unwrap_or_default());
            }
        }
        clean();
    }
}

/// Takes away what a failed test left: maps, sessions, records, notes.
fn clean() {
    // Whoever waits in a map for a path would keep it, and every test after this one.
    let maps = cmd("dmsetup").args(["ls", "--target", "multipath"]).try_run();
    for line in maps.map(|done| done.stdout).unwrap_or_default().lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let _ = cmd("dmsetup").args(["message", name, "0", "fail_if_no_path"]).try_run();
    }
    for (program, args) in [
        ("multipath", ["-F"].as_slice()),
        ("iscsiadm", ["-m", "session", "-u"].as_slice()),
        ("iscsiadm", ["-m", "node", "-o", "delete"].as_slice()),
    ] {
        if Path::new("/sys/class/iscsi_session").exists() {
            let _ = cmd(program).args(args).try_run();
        }
    }
    for folder in ["/run/hawser", "/var/lib/hawser", "/etc/iscsi/nodes", "/etc/iscsi/send_targets"]
    {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Writes bytes to a device, down to the storage.
#[track_caller]
pub fn write(device: &Path, at: u64, bytes: &[u8]) {
    try_write(device, at, bytes).unwrap_or_else(|error| panic!("{}: {error}", device.display()));
}

/// The same, for a device that may refuse.
pub fn try_write(device: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
    let file = File::options().write(true).open(device)?;
    file.write_all_at(bytes, at)?;
    file.sync_all()
}

/// Reads bytes from a device.
#[track_caller]
pub fn read(device: &Path, at: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let file = File::open(device).unwrap_or_else(|error| panic!("{}: {error}", device.display()));
    file.read_exact_at(&mut bytes, at).unwrap_or_else(|error| panic!("reading: {error}"));
    bytes
}

/// The names in a folder, sorted.
pub fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The disks that came over iSCSI.
pub fn disks() -> Vec<PathBuf> {
    let disks = names("/sys/block").into_iter().filter(|name| name.starts_with("sd"));
    disks.map(|name| Path::new("/dev").join(name)).collect()
}
