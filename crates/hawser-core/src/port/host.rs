//! The host port: Linux, as connectors, providers and the node half use it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::change::Change;
use crate::error::Result;
use crate::filesystem::FsKind;
use crate::port::kernel::{Disks, Events, Files, Iscsid, Locks, Maps, Nbd};
use crate::port::progress::Progress;
use crate::secret::Secret;
use crate::size::ByteSize;

/// What this machine can do with programs, mounts, devices and files.
///
/// # Contract
///
/// Every implementation passes `host_contract!`:
/// - nothing blocks the caller's runtime, and no call outlives its limit: what may hang for ever
///   runs on bounded workers and answers `Kind::Timeout` with `Outcome::Unknown`;
/// - paths are absolute; the last component of a mount target is never followed as a symlink, nor is
///   any component below a folder that others may write;
/// - a probe that fails, is short or times out is an error, never [`Content::Blank`];
/// - a call that finds its work done answers `Change::Already`.
#[async_trait]
pub trait Host: Send + Sync {
    /// What is fixed while the host runs.
    async fn facts(&self) -> Result<HostFacts>;

    /// Runs a program to its end. A non-zero exit is not an error here; see [`ToolOutput::ok`].
    async fn run(&self, tool: &Tool) -> Result<ToolOutput>;

    /// The mount table of this process's mount namespace, in mount order.
    async fn mounts(&self) -> Result<Vec<MountEntry>>;

    /// Mounts a device, binds a folder, or shows a device itself in a file. `Already` when the same
    /// source is mounted there with the same access; `Kind::Precondition` when something else is.
    /// What is on a volume is not trusted: programs and device nodes in it get no rights of this
    /// host (`nosuid`, `nodev`), and an option that asks for them is `Kind::Invalid`.
    async fn mount(&self, request: &HostMount) -> Result<Change<()>>;

    /// Unmounts the topmost mount at the target. Nothing mounted there is `Already`;
    /// `Kind::Busy` when files are open.
    async fn unmount(&self, target: &Path) -> Result<Change<()>>;

    /// Takes the topmost mount at the target out of the tree although files may be open or its
    /// server dead; what hangs goes on hanging out of sight. Only for a forced detach.
    async fn abandon_mount(&self, target: &Path) -> Result<Change<()>>;

    /// Makes a folder to mount on (its parents must exist); `Already` when it is there.
    async fn make_target(&self, target: &Path) -> Result<Change<()>>;

    /// Makes an empty file to show a device in (its parents must exist); `Already` when a file or a
    /// device is there.
    async fn make_target_file(&self, target: &Path) -> Result<Change<()>>;

    /// Removes what [`Host::make_target`] or [`Host::make_target_file`] made, if it is empty and
    /// nothing is mounted on it; absent is `Already`, anything else there is left alone and is
    /// `Already` too.
    async fn remove_target(&self, target: &Path) -> Result<Change<()>>;

    /// Makes a folder with exactly this mode (its parents must exist); `Already` when it is there,
    /// whatever its mode.
    async fn make_folder(&self, folder: &Path, mode: u32) -> Result<Change<()>>;

    /// What is at a path, asked of its file system and not of a cache; a symlink there is not
    /// followed, nothing there is `None`. Where a dead server makes this hang, it is waited for
    /// at most so long.
    async fn look(&self, path: &Path, limit: Duration) -> Result<Option<Seen>>;

    /// Loop devices that have a backing file.
    async fn loop_devices(&self) -> Result<Vec<LoopDevice>>;

    /// Gives a file a loop device, direct I/O where the file system can. `Already` when a device
    /// with the same file and mark is there.
    async fn attach_loop(&self, request: &LoopAttach) -> Result<Change<LoopDevice>>;

    /// Takes a loop device from its file, if it still has that file and mark; absent is `Already`,
    /// [`Reason::DeviceBusy`] when it is open or mounted, whatever `force` says. Answers when the
    /// kernel has let go.
    ///
    /// What is cached is written out first. When that fails, the device stays
    /// ([`Reason::FlushFailed`]); with `force` it goes all the same, and the answer is
    /// [`Reason::DataLost`].
    ///
    /// [`Reason::DeviceBusy`]: crate::Reason::DeviceBusy
    /// [`Reason::FlushFailed`]: crate::Reason::FlushFailed
    /// [`Reason::DataLost`]: crate::Reason::DataLost
    async fn detach_loop(&self, device: &LoopDevice, force: bool) -> Result<Change<()>>;

    /// Makes a loop device as large as its file and answers the size.
    async fn resize_loop(&self, device: &LoopDevice) -> Result<ByteSize>;

    /// The size of a block device.
    async fn device_size(&self, device: &Path) -> Result<ByteSize>;

    /// What is on a device. Reads the device itself, past the page cache.
    async fn probe(&self, device: &Path) -> Result<Content>;

    /// Makes a file system. The caller has made sure that it may.
    async fn make_filesystem(&self, device: &Path, fs: FsKind, uuid: Uuid) -> Result<()>;

    /// Checks an unmounted file system by the rules of its kind (ext4: preen; xfs: the mount replays
    /// the log; btrfs: nothing) and answers what was repaired. Damage that needs a person is
    /// `Kind::Precondition`.
    async fn check_filesystem(&self, device: &Path, fs: FsKind) -> Result<Change<()>>;

    /// Makes a mounted file system as large as its device; `Already` when it is.
    async fn grow_filesystem(
        &self,
        device: &Path,
        fs: FsKind,
        mounted: &Path,
    ) -> Result<Change<()>>;

    /// Stops writes to a mounted file system with all data on the device; `Already` when stopped.
    async fn freeze(&self, mounted: &Path) -> Result<Change<()>>;

    /// Lets writes go on; `Already` when they do.
    async fn thaw(&self, mounted: &Path) -> Result<Change<()>>;

    /// Writes everything of one file system to its device.
    async fn sync_filesystem(&self, path: &Path) -> Result<()>;

    /// Gives everything below a folder to a group that may write, and new files in it too; `Already`
    /// when the folder itself has it. No symlink is followed, no other mount entered.
    async fn give_to_group(&self, folder: &Path, group: u32) -> Result<Change<()>>;

    /// How full the file system below a path is.
    async fn usage(&self, path: &Path) -> Result<FsUsage>;

    /// Copies a file to a name that must not exist: shares the blocks where the file system can,
    /// else copies the data and keeps the holes. Durable when it answers; a failed copy leaves
    /// nothing.
    async fn copy_file(&self, from: &Path, to: &Path, progress: &dyn Progress) -> Result<Copied>;

    /// Copies a folder with all that is in it (owners, modes, links, extended attributes) to a name
    /// that must not exist. Durable when it answers; a failed copy leaves nothing.
    async fn copy_tree(&self, from: &Path, to: &Path, progress: &dyn Progress) -> Result<Copied>;

    /// Small files: sysfs, settings, notes of our own.
    fn files(&self) -> &dyn Files;

    /// Device events.
    fn events(&self) -> &dyn Events;

    /// Block devices.
    fn disks(&self) -> &dyn Disks;

    /// Device maps.
    fn maps(&self) -> &dyn Maps;

    /// Network block devices.
    fn nbd(&self) -> &dyn Nbd;

    /// The daemon of iSCSI sessions.
    fn iscsid(&self) -> &dyn Iscsid;

    /// Locks shared by every process of this host.
    fn locks(&self) -> &dyn Locks;
}

/// What is fixed while the host runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// The host name.
    pub hostname: String,
    /// Changes with each boot.
    pub boot_id: String,
    /// As `uname -m` says.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
    /// True when this process may mount and make loop devices.
    pub privileged: bool,
}

/// A program to run: never a shell, an absolute path found at start, an empty environment.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The program's bare name, such as `mkfs.ext4`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// What it reads.
    pub stdin: Option<Secret>,
    /// When it is killed.
    pub limit: Duration,
    /// It leaves a daemon behind on purpose, which must outlive us.
    pub leaves_daemon: bool,
}

/// One argument.
#[derive(Clone, Debug)]
pub enum Arg {
    /// May be logged.
    Plain(OsString),
    /// Prints as `***`. Visible to other users of the host while the program runs: use stdin
    /// where the program can.
    Hidden(Secret),
}

impl Tool {
    /// A program with a limit of 60 seconds.
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            stdin: None,
            limit: Duration::from_secs(60),
            leaves_daemon: false,
        }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(Arg::Plain(arg.into()));
        self
    }

    /// Several more arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| Arg::Plain(arg.into())));
        self
    }

    /// Another limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The program's name.
    pub program: String,
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it said, decoded lossily, cut at 1 MiB.
    pub stdout: String,
    /// What it complained of, decoded lossily, cut at 64 KiB.
    pub stderr: String,
}

/// A program that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{program} failed ({}): {stderr}", code.map_or_else(|| "killed by a signal".to_owned(), |c| format!("exit code {c}")))]
pub struct ToolFailed {
    /// The program's name.
    pub program: String,
    /// Its exit code.
    pub code: Option<i32>,
    /// The last lines of its complaint.
    pub stderr: String,
}

impl ToolOutput {
    /// Refuses every exit code but 0.
    pub fn ok(self) -> std::result::Result<Self, ToolFailed> {
        if self.code == Some(0) { Ok(self) } else { Err(self.failed()) }
    }

    /// This output as an error.
    pub fn failed(&self) -> ToolFailed {
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<_> = said.trim().lines().collect();
        let stderr = lines[lines.len().saturating_sub(6)..].join("; ");
        ToolFailed { program: self.program.clone(), code: self.code, stderr }
    }
}

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel's id of the mount.
    pub id: u64,
    /// The id of the mount it stands on.
    pub parent: u64,
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// Which folder of that file system is the root of this mount.
    pub root: PathBuf,
    /// Where.
    pub target: PathBuf,
    /// Options of this mount.
    pub options: Vec<String>,
    /// Propagation tags.
    pub propagation: Vec<String>,
    /// The file system's type.
    pub fs_type: String,
    /// What was mounted, as the kernel tells it.
    pub source: String,
    /// Options of the file system.
    pub super_options: Vec<String>,
}

impl MountEntry {
    /// What the kernel puts behind the root of a mount that was removed from its file system.
    const REMOVED: &'static str = "//deleted";

    /// True when this mount refuses writes.
    pub fn read_only(&self) -> bool {
        self.options.iter().chain(&self.super_options).any(|option| option == "ro")
    }

    /// True when its file system has stopped by itself, after an error. It has to be unmounted wherever
    /// it is mounted, and mounted again.
    pub fn has_stopped(&self) -> bool {
        self.super_options.iter().any(|option| option == "shutdown" || option == "emergency_ro")
    }

    /// True when this mount shows what is at a path of the tree: a folder that is bound elsewhere, or
    /// the node of a device in a file. `path` has no symlinks, `table` is the whole table.
    ///
    /// Neither has a name of its own in the table: it is a place in some file system, which is found
    /// through the mount that the path lies on.
    pub fn binds(&self, path: &Path, table: &[Self]) -> bool {
        // The entry itself may cover the path, when it is bound onto itself.
        let below = table
            .iter()
            .filter(|other| other.id != self.id && path.starts_with(&other.target))
            // Later mounts cover earlier ones, and max_by_key answers the last of equals.
            .max_by_key(|other| other.target.components().count());
        let root = self.root_without_mark();
        match below {
            Some(below) => {
                let inside = path.strip_prefix(&below.target).unwrap_or(Path::new(""));
                // `join` leaves a trailing slash when it joins nothing.
                let place = match inside.as_os_str().is_empty() {
                    true => below.root.clone(),
                    false => below.root.join(inside),
                };
                self.device == below.device && root == place
            }
            None => root == path,
        }
    }

    /// True when what it shows was removed from its file system since, such as the node of a device
    /// that went: what has its name now is something else.
    pub fn shows_removed(&self) -> bool {
        self.root_without_mark() != self.root
    }

    fn root_without_mark(&self) -> &Path {
        let root = self.root.as_os_str().as_bytes();
        let plain = root.strip_suffix(Self::REMOVED.as_bytes()).unwrap_or(root);
        Path::new(OsStr::from_bytes(plain))
    }
}

/// What to mount where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// What.
    pub source: MountSource,
    /// On which folder, or file for [`MountSource::Raw`]; it must exist and must not be a symlink.
    pub target: PathBuf,
    /// Without the right to write.
    pub read_only: bool,
    /// Options: `noatime`, `nodev` and so on, the rest goes to the file system.
    pub flags: Vec<String>,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A device with a file system.
    Device {
        /// The device.
        device: PathBuf,
        /// What is on it.
        fs: FsKind,
    },
    /// A folder of this host's tree.
    Bind {
        /// The folder.
        path: PathBuf,
    },
    /// A device itself, shown in a file. Without the right to write it is only seen to be so: what
    /// stops writes is the device's own mark, see [`Disks::set_read_only`].
    Raw {
        /// The device.
        device: PathBuf,
    },
    /// A file system of the kernel that is reached over a network: `nfs4`, `cifs`.
    Network {
        /// Its type.
        fs_type: String,
        /// What, as the kernel's file system wants it: `server:/export`, `//server/share`.
        source: String,
        /// Options whose values are secret, such as `password`; the others are among the flags.
        secrets: Vec<(String, Secret)>,
    },
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub kind: SeenKind,
    /// Who may do what with it: the nine bits, and those above them.
    pub mode: u32,
    /// The length of a file, in bytes.
    pub length: u64,
    /// Major and minor number of the file system it lies in, as in [`MountEntry::device`].
    pub device: (u32, u32),
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenKind {
    /// A plain file.
    File,
    /// A folder.
    Folder,
    /// A symlink.
    Symlink,
    /// A block device.
    BlockDevice,
    /// Something else.
    Other,
}

/// A loop device that has a backing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    /// Its node, such as `/dev/loop3`.
    pub device: PathBuf,
    /// The file, by the path that leads to it now; ends in ` (deleted)` when the file is gone.
    pub backing_file: PathBuf,
    /// Our mark in the device's label; `None` for devices of others.
    pub mark: Option<String>,
    /// Was made to refuse writes; one that only bears the mark of [`Disks::set_read_only`] was not.
    pub read_only: bool,
    /// Bypasses the page cache.
    pub direct_io: bool,
    /// Logical sector size.
    pub sector_size: u32,
}

/// A loop device to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopAttach {
    /// The file.
    pub file: PathBuf,
    /// What to write in the device's label, at most 55 bytes: who owns it.
    pub mark: String,
    /// Refuses writes.
    pub read_only: bool,
    /// Logical sector size: 512 or 4096.
    pub sector_size: u32,
}

/// What is on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Read, and everything that must be zero is.
    Blank,
    /// A file system that Hawser knows.
    Filesystem {
        /// Which.
        fs: FsKind,
        /// Its UUID, where the probe could tell.
        uuid: Option<Uuid>,
    },
    /// A signature of something else: its type, such as `LVM2_member` or `gpt`.
    Other(String),
    /// No known signature, and not blank.
    Data,
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsUsage {
    /// Its size.
    pub total: ByteSize,
    /// What an ordinary user may still write.
    pub available: ByteSize,
    /// What is used.
    pub used: ByteSize,
    /// How many files it can hold; 0 where it has no such limit.
    pub files: u64,
    /// How many more.
    pub files_free: u64,
}

/// How a copy was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// True when the copy shares its blocks with the original.
    pub shared: bool,
    /// How much was read and written.
    pub bytes: ByteSize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, device: u32, root: &str, target: &str) -> MountEntry {
        MountEntry {
            id,
            parent: 1,
            device: (0, device),
            root: root.into(),
            target: target.into(),
            options: Vec::new(),
            propagation: Vec::new(),
            fs_type: "devtmpfs".into(),
            source: "devtmpfs".into(),
            super_options: Vec::new(),
        }
    }

    #[test]
    fn a_device_shown_in_a_file_is_known_by_its_place_below_dev() {
        let table = [
            entry(1, 1, "/", "/"),
            entry(2, 6, "/", "/dev"),
            entry(3, 6, "/loop3", "/mnt/a"),
            entry(4, 6, "/loop33", "/mnt/other"),
            entry(5, 1, "/loop3", "/mnt/other-filesystem"),
            entry(6, 6, "/sdb//deleted", "/mnt/gone"),
        ];
        let shown = |path: &str| {
            let path = Path::new(path);
            table.iter().filter(|e| e.binds(path, &table)).map(|e| e.id).collect::<Vec<_>>()
        };

        assert_eq!(shown("/dev/loop3"), [3]);
        assert_eq!(shown("/dev/sdb"), [6]);
        assert!(shown("/dev/sdc").is_empty());
        let removed: Vec<_> = table.iter().filter(|e| e.shows_removed()).map(|e| e.id).collect();
        assert_eq!(removed, [6]);
    }
}
