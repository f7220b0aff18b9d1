//! How many programs something starts: counted by the kernel, for this process and all that came
//! from it. Daemons that are started before the counting begins are not in it.

use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's trace of programs that begin.
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Counts from now on. From the thread that starts everything else: what exists already is not
    /// followed.
    pub(crate) fn follow() -> Self {
        let folder = Path::new("/sys/kernel/debug/tracing/instances/bench").to_owned();
        fs::create_dir(&folder).expect("the kernel can trace");
        let put = |name: &str, value: &str| {
            let path = folder.join(name);
            if let Err(error) = fs::write(&path, value) {
                panic!("writing {value:?} to {}: {error}", path.display());
            }
        };
        put("options/event-fork", "1");
        put("set_event_pid", &std::process::id().to_string());
        put("events/sched/sched_process_exec/enable", "1");
        Self { folder }
    }

    /// Forgets what was counted.
    pub(crate) fn clear(&self) {
        fs::write(self.folder.join("trace"), "").expect("a trace can be cleared");
    }

    /// How many programs began since.
    pub(crate) fn count(&self) -> usize {
        let text = fs::read_to_string(self.folder.join("trace")).expect("a trace can be read");
        text.lines().filter(|line| line.contains("sched_process_exec:")).count()
    }
}
