//! Why a call about a block device failed.

use std::path::PathBuf;

use hawser_core::filesystem::FsKind;
use hawser_core::port::host::ToolFailed;
use hawser_core::{Classify, Kind, Outcome, Reason};

use crate::errno::kind_of_io;
use crate::exec::ExecError;
use crate::mount::MountError;
use crate::workers::WorkerError;

/// Why a call about a block device failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlockError {
    #[error("opening {path:?}")]
    Open { path: PathBuf, source: std::io::Error },
    #[error("{path:?} is neither a block device nor a regular file")]
    NotADevice { path: PathBuf },
    #[error("asking for the size of {path:?}")]
    Size { path: PathBuf, source: std::io::Error },
    #[error("the mark {mark:?} does not fit: at most 55 bytes without control characters")]
    Mark { mark: String },
    #[error("a sector size of {sector_size} is not possible: use 512 or 4096")]
    SectorSize { sector_size: u32 },
    #[error("{path:?} is not a regular file")]
    NotAFile { path: PathBuf },
    #[error("locking {path:?} while it gets a loop device")]
    Lock { path: PathBuf, source: std::io::Error },
    #[error("listing loop devices")]
    List(#[source] std::io::Error),
    #[error("asking for a free loop device")]
    NoFreeDevice(#[source] std::io::Error),
    #[error("making a loop device for {file:?}: others took every free device {attempts} times")]
    Raced { file: PathBuf, attempts: usize },
    #[error("making the device node {path:?}")]
    Node { path: PathBuf, source: std::io::Error },
    #[error("giving {device:?} the file {file:?}")]
    Configure { device: PathBuf, file: PathBuf, source: std::io::Error },
    #[error("{file:?} has the loop device {device:?} of another owner{}", named(mark))]
    OtherOwner { file: PathBuf, device: PathBuf, mark: Option<String> },
    #[error("{file:?} has the loop device {device:?} with other access; detach it first")]
    OtherAccess { file: PathBuf, device: PathBuf },
    #[error("{device:?} no longer has the file {file:?}")]
    Gone { device: PathBuf, file: PathBuf },
    #[error("detaching {device:?}, which is mounted on {target:?}")]
    Mounted { device: PathBuf, target: PathBuf },
    #[error("detaching {device:?}, which is open by {}", by.join(", "))]
    InUse { device: PathBuf, by: Vec<String> },
    #[error("{device:?}: cached data could not be written out; nothing was detached")]
    Flush { device: PathBuf, source: std::io::Error },
    #[error("{device:?}: cached data was lost by the forced detach")]
    Lost { device: PathBuf, source: std::io::Error },
    #[error("{attempt} {device:?}")]
    Ioctl { attempt: &'static str, device: PathBuf, source: std::io::Error },
    #[error(
        "the kernel has not let go of {device:?}: another process has just opened it; it goes when that closes it"
    )]
    StillThere { device: PathBuf },
    #[error("reading {device:?} at byte {at}")]
    Read { device: PathBuf, at: u64, source: std::io::Error },
    #[error("reading {device:?} at byte {at} ended {missing} bytes too early")]
    ShortRead { device: PathBuf, at: u64, missing: u64 },
    #[error("{device:?} has no size, so nothing can be said about its content")]
    Empty { device: PathBuf },
    #[error("{device:?} has signatures of several file systems or tables; look at it with `wipefs {}`", device.display())]
    Ambivalent { device: PathBuf },
    #[error("what blkid says of {device:?} is not understood: {line:?}")]
    Malformed { device: PathBuf, line: String },
    #[error("probing {device:?}")]
    Probe { device: PathBuf, source: ToolFailed },
    #[error("making {fs} on {device:?}")]
    Make { fs: FsKind, device: PathBuf, source: ToolFailed },
    #[error("checking {fs} on {device:?}, which is mounted on {target:?}")]
    CheckMounted { fs: FsKind, device: PathBuf, target: PathBuf },
    #[error("checking {fs} on {device:?}: it is damaged and needs a person: run `e2fsck {}`", device.display())]
    Damaged { fs: FsKind, device: PathBuf, source: ToolFailed },
    #[error("checking {fs} on {device:?}")]
    Check { fs: FsKind, device: PathBuf, source: ToolFailed },
    #[error("growing {fs} on {device:?}: it is not what is mounted on {mounted:?}")]
    NotMounted { fs: FsKind, device: PathBuf, mounted: PathBuf },
    #[error("growing {fs} on {device:?}")]
    Grow { fs: FsKind, device: PathBuf, source: ToolFailed },
    #[error(
        "growing ext4 on {device:?}: while it is mounted this needs the capability CAP_SYS_RESOURCE, which this process lacks, and it could not be unmounted for it"
    )]
    NotWhileMounted { device: PathBuf, source: MountError },
    #[error(
        "growing ext4 on {device:?}: while it is mounted this needs the capability CAP_SYS_RESOURCE, which this process lacks, and it cannot be unmounted for it, because {by}; it grows the next time that it is mounted"
    )]
    MountedElsewhere { device: PathBuf, by: String },
    #[error("mounting {device:?} again after it had to be unmounted for growing")]
    MountAgain { device: PathBuf, source: MountError },
    #[error("{device:?} has no ext4 superblock")]
    NoSuperblock { device: PathBuf },
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

fn named(mark: &Option<String>) -> String {
    mark.as_ref().map(|mark| format!(", {mark:?}")).unwrap_or_default()
}

impl Classify for BlockError {
    fn kind(&self) -> Kind {
        match self {
            Self::NotADevice { .. }
            | Self::Mark { .. }
            | Self::SectorSize { .. }
            | Self::NotAFile { .. } => Kind::Invalid,
            Self::Open { source, .. }
            | Self::Size { source, .. }
            | Self::Lock { source, .. }
            | Self::NoFreeDevice(source)
            | Self::Node { source, .. }
            | Self::Configure { source, .. }
            | Self::Ioctl { source, .. }
            | Self::Read { source, .. }
            | Self::List(source) => kind_of_io(source),
            Self::Gone { .. } => Kind::NotFound,
            Self::Raced { .. }
            | Self::Mounted { .. }
            | Self::InUse { .. }
            | Self::StillThere { .. }
            | Self::CheckMounted { .. } => Kind::Busy,
            Self::OtherOwner { .. }
            | Self::OtherAccess { .. }
            | Self::Ambivalent { .. }
            | Self::Damaged { .. }
            | Self::NotMounted { .. }
            | Self::MountedElsewhere { .. }
            | Self::Lost { .. }
            | Self::NoSuperblock { .. } => Kind::Precondition,
            Self::Flush { .. }
            | Self::ShortRead { .. }
            | Self::Empty { .. }
            | Self::Probe { .. }
            | Self::Make { .. }
            | Self::Check { .. }
            | Self::Grow { .. } => Kind::Unavailable,
            Self::Malformed { .. } => Kind::Internal,
            Self::Mount(source)
            | Self::NotWhileMounted { source, .. }
            | Self::MountAgain { source, .. } => source.kind(),
            Self::Exec(source) => source.kind(),
            Self::Worker(source) => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            // The kernel has it down to be cleared, and what was taken off is not back.
            Self::StillThere { .. } | Self::MountAgain { .. } | Self::Lost { .. } => {
                Outcome::Unknown
            }
            // A tool that has ended says that it failed, and will say so again: nobody is to wait
            // for another answer. What it wrote is a repair, a part of the growth, or a torso that
            // the volume's record knows of.
            Self::Make { .. } | Self::Damaged { .. } | Self::Check { .. } | Self::Grow { .. } => {
                Outcome::Nothing
            }
            Self::Mount(source) | Self::NotWhileMounted { source, .. } => source.outcome(),
            Self::Exec(source) => source.outcome(),
            Self::Worker(source) => source.outcome(),
            Self::Open { .. }
            | Self::NotADevice { .. }
            | Self::Size { .. }
            | Self::Mark { .. }
            | Self::SectorSize { .. }
            | Self::NotAFile { .. }
            | Self::Lock { .. }
            | Self::List(_)
            | Self::NoFreeDevice(_)
            | Self::Raced { .. }
            | Self::Node { .. }
            | Self::Configure { .. }
            | Self::OtherOwner { .. }
            | Self::OtherAccess { .. }
            | Self::Gone { .. }
            | Self::Mounted { .. }
            | Self::InUse { .. }
            | Self::Flush { .. }
            | Self::Ioctl { .. }
            | Self::Read { .. }
            | Self::ShortRead { .. }
            | Self::Empty { .. }
            | Self::Ambivalent { .. }
            | Self::Malformed { .. }
            | Self::Probe { .. }
            | Self::CheckMounted { .. }
            | Self::NotMounted { .. }
            | Self::MountedElsewhere { .. }
            | Self::NoSuperblock { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::Mounted { .. } | Self::InUse { .. } | Self::MountedElsewhere { .. } => {
                Some(Reason::DeviceBusy)
            }
            Self::Flush { .. } => Some(Reason::FlushFailed),
            Self::Lost { .. } => Some(Reason::DataLost),
            Self::StillThere { .. } => Some(Reason::NotRemoved),
            Self::Mount(source)
            | Self::NotWhileMounted { source, .. }
            | Self::MountAgain { source, .. } => source.reason(),
            Self::Exec(source) => source.reason(),
            Self::Worker(source) => source.reason(),
            Self::Open { .. }
            | Self::NotADevice { .. }
            | Self::Size { .. }
            | Self::Mark { .. }
            | Self::SectorSize { .. }
            | Self::NotAFile { .. }
            | Self::Lock { .. }
            | Self::List(_)
            | Self::NoFreeDevice(_)
            | Self::Raced { .. }
            | Self::Node { .. }
            | Self::Configure { .. }
            | Self::OtherOwner { .. }
            | Self::OtherAccess { .. }
            | Self::Gone { .. }
            | Self::Ioctl { .. }
            | Self::Read { .. }
            | Self::ShortRead { .. }
            | Self::Empty { .. }
            | Self::Ambivalent { .. }
            | Self::Malformed { .. }
            | Self::Probe { .. }
            | Self::Make { .. }
            | Self::CheckMounted { .. }
            | Self::Damaged { .. }
            | Self::Check { .. }
            | Self::NotMounted { .. }
            | Self::Grow { .. }
            | Self::NoSuperblock { .. } => None,
        }
    }
}
