//! Daemons that the initiators need.

use std::fs;
use std::time::Duration;

use super::{Daemon, cmd, modprobe, wait_for};

/// How long a daemon may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Starts `iscsid` and waits until `iscsiadm` can reach it.
#[track_caller]
pub fn iscsid() -> Daemon {
    modprobe(&["iscsi_tcp"]);
    let mut daemon = cmd("iscsid").arg("-f").start();
    wait_for("iscsid", START_LIMIT, || {
        daemon.assert_alive();
        has_socket("@ISCSIADM_ABSTRACT_NAMESPACE")
    });
    daemon
}

/// Starts `multipathd` and waits until it answers. It takes every SCSI disk that appears.
#[track_caller]
pub fn multipathd() -> Daemon {
    // Before the daemon, which asks for them once.
    modprobe(&["dm_multipath", "dm_service_time", "scsi_dh_alua"]);
    let mut daemon = cmd("multipathd").args(["-d", "-s"]).start();
    wait_for("multipathd", START_LIMIT, || {
        daemon.assert_alive();
        has_socket("@/org/kernel/linux/storage/multipathd")?;
        cmd("multipathd").args(["show", "daemon"]).run().stdout.contains("idle").then_some(())
    });
    daemon
}

/// Some when somebody listens on this Unix socket.
fn has_socket(name: &str) -> Option<()> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    sockets.lines().any(|line| line.ends_with(name)).then_some(())
}
