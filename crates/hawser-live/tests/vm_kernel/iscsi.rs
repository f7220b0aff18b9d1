//! One disk of an iSCSI target, seen by two initiators of different names, as two hosts see it.

use std::fs;
use std::path::{Path, PathBuf};

use hawser_live::lab::guest::{self, Daemon, cmd, lio, settle, wait_for};

use crate::LIMIT;

const IQN: &str = "iqn.2004-10.com.example:kernel";
const PORTAL: &str = "127.0.1.1:3260";
const OTHER: &str = "iqn.2004-10.com.example:other";

/// The disk and the sessions; gone when dropped.
pub(crate) struct TwoHosts {
    nodes: [PathBuf; 2],
    _target: lio::Target,
    _iscsid: Daemon,
}

impl TwoHosts {
    #[track_caller]
    pub(crate) fn new() -> Self {
        let disk = lio::Disk::new("kernel", 32);
        crate::scsi::keep_registrations();
        let own = guest::initiator();
        let mut target = lio::Target::new(IQN);
        target.add_portal(PORTAL).add_lun(0, &disk).allow(&own).allow(OTHER).enable();
        let iscsid = guest::iscsid();
        let iface = cmd("iscsiadm").args(["-m", "iface", "-I", "other"]);
        iface.clone().args(["-o", "new"]).ok();
        let name = ["-o", "update", "-n", "iface.initiatorname", "-v", OTHER];
        iface.args(name).ok();
        for iface in ["default", "other"] {
            node(iface).args(["-o", "new"]).ok();
            node(iface).arg("--login").ok();
        }
        let nodes = [own.as_str(), OTHER].map(find);
        settle();
        Self { nodes, _target: target, _iscsid: iscsid }
    }

    /// The disk as the first host sees it, or the second.
    pub(crate) fn node(&self, host: usize) -> &Path {
        &self.nodes[host]
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for iface in ["default", "other"] {
            node(iface).arg("--logout").run();
            node(iface).args(["-o", "delete"]).run();
        }
        cmd("iscsiadm").args(["-m", "iface", "-I", "other", "-o", "delete"]).run();
    }
}

fn node(iface: &str) -> guest::Cmd {
    cmd("iscsiadm").args(["-m", "node", "-T", IQN, "-p", PORTAL, "-I", iface])
}

/// The node of the disk in the session of an initiator.
#[track_caller]
fn find(initiator: &str) -> PathBuf {
    let first = |folder: &Path, start: &str| {
        let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        entries.into_iter().find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
        })
    };
    wait_for("disk in its session", LIMIT, || {
        let sessions = fs::read_dir("/sys/class/iscsi_session").ok()?.flatten();
        let session = sessions.map(|entry| entry.path()).find(|session| {
            let name = fs::read_to_string(session.join("initiatorname"));
            name.is_ok_and(|name| name.trim() == initiator)
        })?;
        let target = first(&session.join("device"), "target")?;
        let host: String = target.file_name()?.to_str()?.trim_start_matches("target").into();
        let block = first(&target.join(format!("{host}:0/block")), "sd")?;
        Some(Path::new("/dev").join(block.file_name()?)).filter(|node| node.exists())
    })
}
