//! `multipath`, where it is needed beside its daemon: to remember volumes, and to forget them.

use crate::fake_host::{FakeHost, Ran, ToolCall, Tree};

/// Where volumes are remembered.
const WWIDS: &str = "/etc/multipath/wwids";

/// Gives a host the program; the daemon is the kernel's `multipathd`.
pub fn install(host: &FakeHost) {
    host.tool("multipath", run);
}

fn run(tree: &mut Tree, call: &ToolCall) -> Ran {
    let text = tree.text(WWIDS);
    if let Some(wwid) = call.value(&["-a"]) {
        let line = format!("/{wwid}/");
        if !text.lines().any(|its| its == line) {
            tree.file_mode(WWIDS, format!("{}\n{line}\n", text.trim_end()), 0o600);
        }
        return Ran::ok(format!("wwid '{wwid}' added\n"));
    }
    if let Some(wwid) = call.value(&["-w"]) {
        let line = format!("/{wwid}/");
        let kept: String =
            text.lines().filter(|its| *its != line).map(|its| format!("{its}\n")).collect();
        tree.file_mode(WWIDS, kept, 0o600);
        return Ran::ok(format!("wwid '{wwid}' removed\n"));
    }
    Ran::failed(1, "multipath: not simulated\n")
}
