//! Scality's mount program, from its specification alone: `mount -t sofs /etc/sfused.conf FOLDER`,
//! once for a host. It refuses everything else.
//!
//! What the mount table shows is not in the specification; the source is the one that OpenStack's own
//! driver looks for.

use std::path::{Path, PathBuf};

use crate::fake_host::{FakeHost, Ran, Remote};

/// mount(8): wrong usage.
const USAGE: i32 = 1;
/// mount(8): the mount failed.
const FAILED: i32 = 32;

/// The settings that the mount is of.
pub const SETTINGS: &str = "/etc/sfused.conf";

/// A host with the client, whose file system holds this.
pub fn install(host: &FakeHost, content: &Path) {
    let content = content.to_owned();
    host.kernel().file(SETTINGS, "{}");
    host.mounting_tool("mount", move |tree, call| {
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        let ["-t", "sofs", settings, folder] = args.as_slice() else {
            return (Ran::failed(USAGE, "mount: bad usage"), None);
        };
        if tree.read(settings).is_none() {
            return (Ran::failed(FAILED, "sfused: no configuration"), None);
        }
        let remote = Remote {
            fs_type: "fuse".into(),
            source: "/dev/fuse".into(),
            super_options: vec!["rw".into()],
            folder: content.clone(),
        };
        (Ran::ok(""), Some((PathBuf::from(folder), remote, false)))
    });
}
