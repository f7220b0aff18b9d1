//! Quobyte's mount program, from its specification alone: `mount -t quobyte [-o OPTIONS]
//! REGISTRY/VOLUME FOLDER`. It refuses everything else.
//!
//! What the mount table shows is not in the specification; the type and the prefix of the source are
//! those that OpenStack's own drivers look for.

use std::path::{Path, PathBuf};

use crate::fake_host::{FakeHost, Ran, Remote};

/// mount(8): wrong usage.
const USAGE: i32 = 1;
/// mount(8): the mount failed.
const FAILED: i32 = 32;

/// A host with the client, which knows one volume.
pub fn install(host: &FakeHost, volume: &str, content: &Path) {
    let (volume, content) = (volume.to_owned(), content.to_owned());
    host.mounting_tool("mount", move |_, call| {
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        let (options, export, folder) = match args.as_slice() {
            ["-t", "quobyte", "-o", options, export, folder] => (*options, *export, *folder),
            ["-t", "quobyte", export, folder] => ("", *export, *folder),
            _ => return (Ran::failed(USAGE, "mount: bad usage"), None),
        };
        if export != volume {
            return (Ran::failed(FAILED, "mount.quobyte: volume not found"), None);
        }
        let remote = Remote {
            fs_type: "fuse.quobyte".into(),
            source: format!("quobyte@{export}"),
            super_options: vec!["rw".into()],
            folder: content.clone(),
        };
        let read_only = options.split(',').any(|option| option == "ro");
        (Ran::ok(""), Some((PathBuf::from(folder), remote, read_only)))
    });
}
