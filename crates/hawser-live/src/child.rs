//! Children of a test: waited for by descriptor, killed with what they started.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How long a killed program may take to be gone; one that waits in the kernel takes for ever.
const DEATH_LIMIT: Duration = Duration::from_secs(5);

/// Waits for the end of a child; `None` when it takes longer.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let descriptor = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
    let until = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return None,
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return child.wait().ok(),
        }
    }
}

/// Kills a child, which leads a process group, and whatever it started in that group.
pub(crate) fn kill(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    // It may end by itself in this moment.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    wait(child, DEATH_LIMIT);
}
