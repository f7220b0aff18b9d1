//! A Fibre Channel fabric in one guest: FCoE between pairs of virtual Ethernet devices, without a
//! switch (VN2VN), with the kernel's own target (tcm_fc) at the far ends.
//!
//! The fabric is made once and stays for all tests of a guest, as in a data centre: making a port
//! on a live link has crashed libfcoe. Tests show their volumes on it; a [`San`] takes them away.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::lio::{self, make, put, remove, tie};
use super::{Daemon, Leftovers, Volume, cmd, modprobe, multipathd, settle, wait_for};

/// How long the fabric may take to log in.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);

/// How long what was taken away may take to go.
const LIMIT: Duration = Duration::from_secs(30);

/// One cable: our port at one end, one of the storage system's at the other.
#[derive(Clone, Debug)]
pub struct Cable {
    /// The Ethernet device at our end.
    ours: String,
    /// That at their end.
    theirs: String,
    /// The name of our port, 16 digits.
    pub initiator: String,
    /// The name of their port.
    pub target: String,
}

impl Cable {
    fn new(number: u8) -> Self {
        let name = |end: u8| format!("20000200000001{number}{end}");
        Self {
            ours: format!("fci{number}"),
            theirs: format!("fct{number}"),
            initiator: name(1),
            target: name(2),
        }
    }

    /// The group of the target port in configfs.
    fn group(&self) -> PathBuf {
        let name = colons(&self.target);
        PathBuf::from(format!("/sys/kernel/config/target/fc/{name}/tpgt_1"))
    }

    fn acl(&self) -> PathBuf {
        self.group().join("acls").join(colons(&self.initiator))
    }

    /// Lays the cable, dead, and puts a target behind its far end.
    #[track_caller]
    fn lay(&self) {
        let mac = |wwpn: &str| colons(&wwpn[4..]);
        cmd("ip")
            .args(["link", "add", &self.ours, "address", &mac(&self.initiator)])
            .args(["mtu", "2500", "type", "veth", "peer", "name", &self.theirs])
            .args(["address", &mac(&self.target), "mtu", "2500"])
            .ok();
        make(&self.acl());
        // The target before its initiator: who logs in to nothing sees nothing for ever.
        for end in [&self.theirs, &self.ours] {
            put(Path::new("/sys/module/libfcoe/parameters/create_vn2vn"), end);
        }
    }

    /// Plugs it in (`true`) or out.
    #[track_caller]
    pub fn plug(&self, plugged: bool) {
        let state = if plugged { "up" } else { "down" };
        cmd("ip").args(["link", "set", &self.theirs, state]).ok();
        if plugged {
            cmd("ip").args(["link", "set", &self.ours, state]).ok();
        }
    }

    /// Plugs it in after a test, whatever that test has done to it.
    fn plug_again(&self) {
        for end in [&self.theirs, &self.ours] {
            let _ = cmd("ip").args(["link", "set", end, "up"]).try_run();
        }
    }

    /// The state of the far port, as ours sees it.
    pub fn state(&self) -> Option<String> {
        let ours = |folder: &str, file: &str| {
            fs::read_to_string(Path::new(folder).join(file)).unwrap_or_default().trim().to_owned()
        };
        super::san::names("/sys/class/fc_remote_ports").into_iter().find_map(|name| {
            let folder = format!("/sys/class/fc_remote_ports/{name}");
            let seen = ours(&folder, "port_name") == format!("0x{}", self.target)
                && ours(&folder, "scsi_target_id") != "-1";
            seen.then(|| ours(&folder, "port_state"))
        })
    }

    /// Shows a disk under this number.
    #[track_caller]
    fn show(&self, number: u32, disk: &lio::Disk) {
        let lun = self.group().join(format!("lun/lun_{number}"));
        make(&lun);
        tie(disk.object(), &lun.join("disk"));
        let mapped = self.acl().join(format!("lun_{number}"));
        make(&mapped);
        tie(&lun, &mapped.join("lun"));
    }

    /// Shows nothing under it any more.
    #[track_caller]
    fn hide(&self, number: u32) {
        let mapped = self.acl().join(format!("lun_{number}"));
        let lun = self.group().join(format!("lun/lun_{number}"));
        for object in [mapped.join("lun"), mapped, lun.join("disk"), lun] {
            remove(&object);
        }
    }
}

/// `2000020000000111` as configfs and `ip` write it.
fn colons(digits: &str) -> String {
    let bytes: Vec<&str> = (0..digits.len() / 2).map(|at| &digits[2 * at..2 * at + 2]).collect();
    bytes.join(":")
}

/// The fabric of this guest: two cables, plugged in and logged in.
#[track_caller]
fn fabric() -> MutexGuard<'static, Vec<Cable>> {
    static FABRIC: OnceLock<Mutex<Vec<Cable>>> = OnceLock::new();
    let fabric = FABRIC.get_or_init(|| {
        modprobe(&["veth", "fcoe", "tcm_fc", "target_core_iblock"]);
        make(Path::new("/sys/kernel/config/target/fc"));
        let cables: Vec<Cable> = (0..2).map(Cable::new).collect();
        cables.iter().for_each(Cable::lay);
        cables.iter().for_each(|cable| cable.plug(true));
        Mutex::new(cables)
    });
    let cables = fabric.lock().unwrap_or_else(PoisonError::into_inner);
    for cable in cables.iter() {
        cable.plug(true);
        wait_for("login to the fabric", LOGIN_LIMIT, || {
            (cable.state().as_deref() == Some("Online")).then_some(())
        });
    }
    cables
}

/// Volumes of a storage system on the fabric, shown at both of its ports.
///
/// When a test fails, it shows what the kernel and multipathd said, and takes away what was left.
pub struct San {
    /// The cables.
    pub cables: Vec<Cable>,
    /// Its volumes: the first is number 1.
    pub disks: Vec<lio::Disk>,
    /// What there was before anything was attached.
    pub before: Leftovers,
    /// What is shown under which number; a disk goes after its last number.
    shown: Vec<(u32, lio::Disk)>,
    multipathd: Option<Daemon>,
    _fabric: MutexGuard<'static, Vec<Cable>>,
}

impl San {
    /// Volumes of 32 MiB.
    #[track_caller]
    pub fn new(volumes: u32) -> Self {
        let fabric = fabric();
        clean();
        let disks: Vec<_> =
            (1..=volumes).map(|number| lio::Disk::new(&format!("fc{number}"), 32)).collect();
        let mut san = Self {
            cables: fabric.clone(),
            disks: disks.clone(),
            before: Leftovers::snapshot(),
            shown: Vec::new(),
            multipathd: None,
            _fabric: fabric,
        };
        for (number, disk) in (1..).zip(&disks) {
            san.show(number, disk);
        }
        settle();
        san.before = Leftovers::snapshot();
        san
    }

    /// The same with multipathd; `no_path` is what a map without a path does.
    #[track_caller]
    pub fn with_multipath(volumes: u32, no_path: &str) -> Self {
        let text = format!(
            "defaults {{\n find_multipaths no\n polling_interval 1\n no_path_retry {no_path}\n \
             fast_io_fail_tmo 3\n dev_loss_tmo 60\n}}\n\
             overrides {{\n no_path_retry {no_path}\n fast_io_fail_tmo 3\n dev_loss_tmo 60\n}}\n\
             blacklist {{\n devnode \"^(vd|loop|dm-|ram|nvme|nbd)\"\n}}\n"
        );
        fs::write("/etc/multipath.conf", text).expect("a configuration");
        let mut san = Self::new(volumes);
        san.multipathd = Some(multipathd());
        san
    }

    /// Shows a disk under this number at both ports.
    #[track_caller]
    pub fn show(&mut self, number: u32, disk: &lio::Disk) {
        self.cables.iter().for_each(|cable| cable.show(number, disk));
        self.shown.push((number, disk.clone()));
    }

    /// Shows nothing under this number any more.
    #[track_caller]
    pub fn hide(&mut self, number: u32) {
        self.cables.iter().for_each(|cable| cable.hide(number));
        self.shown.retain(|(shown, _)| *shown != number);
    }

    /// The volume over one port.
    pub fn one_port(&self, number: u32) -> Value {
        json!({ "target_wwn": self.cables[0].target, "target_lun": number,
            "volume_id": format!("v{number}") })
    }

    /// The volume over both ports, as a storage system that knows the zones tells it.
    pub fn both_ports(&self, number: u32) -> Value {
        let targets: Vec<&str> = self.cables.iter().map(|cable| cable.target.as_str()).collect();
        let zones: serde_json::Map<String, Value> = self
            .cables
            .iter()
            .map(|cable| (cable.initiator.clone(), json!([cable.target])))
            .collect();
        json!({ "target_wwns": targets, "target_luns": [number, number],
            "initiator_target_map": zones, "volume_id": format!("v{number}") })
    }

    /// The volume over one port.
    #[track_caller]
    pub fn volume(&self, number: u32) -> Volume {
        Volume::new("fibre_channel", self.one_port(number))
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
            let last = |text: &str, count: usize| {
                let lines: Vec<&str> = text.lines().collect();
                println!("--\n{}", lines[lines.len().saturating_sub(count)..].join("\n"));
            };
            // Who waits for what in the kernel, without what merely lay on their stacks.
            let _ = fs::write("/proc/sysrq-trigger", "w");
            let said = cmd("dmesg").try_run().map(|done| done.stdout).unwrap_or_default();
            let frames: Vec<&str> = said.lines().filter(|line| !line.contains("]  ? ")).collect();
            last(&frames.join("\n"), 400);
            if let Some(daemon) = &self.multipathd {
                last(&daemon.log(), 40);
            }
            for (program, args) in [
                ("multipath", ["-ll"].as_slice()),
                ("lsscsi", ["-t"].as_slice()),
                ("sh", &["-c", "grep . /sys/class/fc_*/*/port_* 2>/dev/null"]),
            ] {
                let done = cmd(program).args(args).try_run();
                println!("-- {program}\n{}", done.map(|done| done.stdout).unwrap_or_default());
            }
        }
        self.cables.iter().for_each(Cable::plug_again);
        clean();
        while let Some((number, _)) = self.shown.first() {
            self.hide(*number);
        }
    }
}

/// Takes away what a failed test left: mounts, maps, disks, notes.
fn clean() {
    let _ = cmd("umount").arg("/mnt/fc").try_run();
    let _ = cmd("multipath").arg("-F").try_run();
    let paths = super::san::disks();
    for disk in &paths {
        let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let _ = fs::write(format!("/sys/block/{name}/device/delete"), "1");
    }
    if !paths.is_empty() {
        wait_for("the disks to go", LIMIT, || super::san::disks().is_empty().then_some(()));
    }
    for folder in ["/run/hawser", "/var/lib/hawser"] {
        let _ = fs::remove_dir_all(folder);
    }
}
