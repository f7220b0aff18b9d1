//! A file system of its own for one bench, so that nobody else's writes are flushed with it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use hawser_live::process::{Ground, command};

/// A kind of pool, and how a person would copy an image on it.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    mkfs: &'static [&'static str],
    /// How the peer copies.
    pub(crate) copy: &'static str,
}

/// With and without shared blocks.
pub(crate) const KINDS: [Kind; 2] = [
    Kind {
        name: "xfs",
        mkfs: &["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
        copy: "cp --reflink=always",
    },
    Kind {
        name: "ext4",
        // Everything is made now, not by a thread of the kernel's during the measurement.
        mkfs: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        copy: "cp --sparse=always",
    },
];

/// Room for a source of 1 GiB and a copy, and for what overcommit and reserve keep free.
const POOL_BYTES: u64 = 5 << 30;

/// Makes the file system and mounts it; the ground takes both away.
pub(crate) fn make(ground: &Ground, kind: &Kind) -> PathBuf {
    let image = ground.path().join("pool.img");
    let file = File::create_new(&image).expect("a new file");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, POOL_BYTES)
        .expect("room for a pool");
    let folder = ground.path().join("pool");
    fs::create_dir(&folder).expect("a new folder");
    // Direct, or every block would be in memory twice and memory would be what is measured.
    let mut losetup = command("losetup");
    let device = said(losetup.args(["--find", "--show", "--direct-io=on"]).arg(&image));
    let (program, args) = kind.mkfs.split_first().expect("a program");
    said(command(program).args(args).arg(&device));
    said(command("mount").args(["-t", kind.name, &device]).arg(&folder));
    folder
}

/// Runs a command that must succeed; answers its first line.
pub(crate) fn said(command: &mut Command) -> String {
    let output = command.output().expect("a program that is there");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {} {error}", output.status);
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
