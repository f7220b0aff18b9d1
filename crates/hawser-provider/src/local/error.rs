//! What can go wrong in a local pool.

use std::path::PathBuf;

use hawser_core::{ByteSize, Classify, Kind, Outcome};
use rustix::io::Errno;

/// What can go wrong in a local pool.
#[derive(Debug, thiserror::Error)]
pub(super) enum LocalError {
    #[error("pool path {} is not absolute", path.display())]
    RelativePath { path: PathBuf },
    #[error("pool path {} is not valid UTF-8, so it cannot be handed to a node", path.display())]
    PathText { path: PathBuf },
    #[error("an overcommit of {value} is not possible: choose more than 0 and at most {most}")]
    Overcommit { value: f64, most: f64 },
    #[error(
        "folder {} is not empty and holds no pool.json, so it is not a pool: choose an empty folder",
        path.display()
    )]
    Foreign { path: PathBuf },
    #[error(
        "pool {} has format {found}, and this version reads formats up to {known}: use the version \
         that wrote it or a newer one",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: u64, known: u64 },
    #[error("reading {}", path.display())]
    PoolFile { path: PathBuf, source: serde_json::Error },
    #[error(
        "pool {} holds {found} volumes, and the settings of its class say {wanted}: correct the \
         settings or choose another folder",
        path.display()
    )]
    OtherKind { path: PathBuf, found: &'static str, wanted: &'static str },
    #[error("pool {} is in use by another process or class", path.display())]
    InUse { path: PathBuf },
    #[error("provider local takes no parameters, and {name:?} was given")]
    UnknownParameter { name: String },
    #[error("a pool of {kind} volumes cannot make a volume used as {access}: it makes {possible}")]
    Access { kind: &'static str, access: String, possible: &'static str },
    #[error("a volume of {size} bytes is not possible: the largest is {largest} bytes")]
    TooLarge { size: u64, largest: u64 },
    #[error("a volume of 0 bytes is not possible")]
    Zero,
    #[error("a volume of {size} is too small for {fs}: the smallest is {smallest}")]
    TooSmall { size: ByteSize, fs: &'static str, smallest: ByteSize },
    #[error("a volume of {size} cannot hold a copy of {origin}, which has {needed}")]
    SmallerThanSource { size: ByteSize, origin: String, needed: ByteSize },
    #[error("volume {id} is there with {found}, and {wanted} was asked for")]
    OtherSize { id: String, found: ByteSize, wanted: ByteSize },
    #[error("handle {handle:?} is not of this pool: {id} has the handle {expected:?}")]
    OtherHandle { handle: String, id: String, expected: String },
    #[error(
        "pool {} has room for {available} more, and {wanted} is needed (promised {promised} of \
         {total})",
        path.display()
    )]
    Full {
        path: PathBuf,
        wanted: ByteSize,
        available: ByteSize,
        promised: ByteSize,
        total: ByteSize,
    },
    #[error(
        "the file system of pool {} has {free} free, and a copy of {wanted} is needed",
        path.display()
    )]
    NoRoomForCopy { path: PathBuf, wanted: ByteSize, free: ByteSize },
    #[error("pool {} is on node {here}, and the volume must be reached from {wanted}", path.display())]
    Elsewhere { path: PathBuf, here: String, wanted: String },
    #[error("pool {} is on node {here}, and what was asked for is at {there}", path.display())]
    OtherPlace { path: PathBuf, here: String, there: String },
    #[error("pool {} is on no node that is known by name", path.display())]
    Unplaced { path: PathBuf },
    #[error("pool {} is on node {here} and cannot be reached from node {user}", path.display())]
    OtherUser { path: PathBuf, here: String, user: String },
    #[error("{} is not in the pool", path.display())]
    Missing { path: PathBuf },
    #[error("{} is not {expected}, so it was not made by this pool and is left alone", path.display())]
    WrongType { path: PathBuf, expected: &'static str },
    #[error("the record {} of a volume cannot be read", path.display())]
    Record { path: PathBuf, source: serde_json::Error },
    #[error("the record {} of a volume is longer than any of ours", path.display())]
    RecordTooLong { path: PathBuf },
    #[error("{} is still in use by {user}: detach it first (hawser doctor shows who holds it)", path.display())]
    StillUsed { path: PathBuf, user: String },
    #[error(
        "it is in use as a raw device, and the file system of pool {} cannot copy it at one instant: \
         stop what uses it first, or use a pool on a file system that shares blocks (xfs, btrfs)",
        path.display()
    )]
    Torn { path: PathBuf },
    #[error("it is in use, and a folder cannot be copied at one instant: stop what uses it first")]
    TornFolder,
    #[error("{} holds something, and was to be removed only if it holds nothing", path.display())]
    NotBlank { path: PathBuf },
    #[error("{verb} {}", path.display())]
    Io { verb: &'static str, path: PathBuf, source: Errno },
    #[error("{verb} {}: something is mounted inside; unmount it first", path.display())]
    MountInside { verb: &'static str, path: PathBuf },
    #[error("{verb} {}: it is immutable or belongs to another user (see lsattr and ls -l)", path.display())]
    NotAllowed { verb: &'static str, path: PathBuf, source: Errno },
    #[error("making {} durable; it may or may not be there after a power cut", path.display())]
    NotDurable { path: PathBuf, source: Errno },
    #[error("{} could not be taken back after a failure ({failure})", path.display())]
    LeftBehind { path: PathBuf, failure: String, source: Box<LocalError> },
    #[error("the work on the pool was cut off because the process is stopping")]
    CutOff,
}

impl LocalError {
    /// For `map_err`: the step that failed and its subject.
    pub(super) fn io(verb: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(Errno) -> Self {
        let path = path.into();
        move |source| Self::Io { verb, path, source }
    }

    /// What the kernel said, where it said something.
    pub(super) fn errno(&self) -> Option<Errno> {
        if let Self::Io { source, .. } = self { Some(*source) } else { None }
    }
}

impl Classify for LocalError {
    fn kind(&self) -> Kind {
        match self {
            Self::RelativePath { .. }
            | Self::PathText { .. }
            | Self::Overcommit { .. }
            | Self::UnknownParameter { .. }
            | Self::OtherHandle { .. } => Kind::Invalid,
            Self::Foreign { .. }
            | Self::NewerFormat { .. }
            | Self::OtherKind { .. }
            | Self::OtherPlace { .. }
            | Self::OtherUser { .. }
            | Self::NotBlank { .. }
            | Self::Torn { .. }
            | Self::TornFolder
            | Self::WrongType { .. } => Kind::Precondition,
            Self::InUse { .. } | Self::StillUsed { .. } | Self::MountInside { .. } => Kind::Busy,
            Self::Access { .. } | Self::Unplaced { .. } => Kind::Unsupported,
            Self::TooLarge { .. }
            | Self::Zero
            | Self::TooSmall { .. }
            | Self::SmallerThanSource { .. } => Kind::OutOfRange,
            Self::OtherSize { .. } => Kind::Exists,
            Self::Full { .. } | Self::NoRoomForCopy { .. } | Self::Elsewhere { .. } => {
                Kind::NoSpace
            }
            Self::Missing { .. } => Kind::NotFound,
            Self::PoolFile { .. } | Self::Record { .. } | Self::RecordTooLong { .. } => {
                Kind::Internal
            }
            Self::NotAllowed { .. } => Kind::Denied,
            Self::Io { source, .. } | Self::NotDurable { source, .. } => errno_kind(*source),
            Self::LeftBehind { source, .. } => source.kind(),
            Self::CutOff => Kind::Unavailable,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::NotDurable { .. } | Self::LeftBehind { .. } | Self::CutOff => Outcome::Unknown,
            Self::RelativePath { .. }
            | Self::PathText { .. }
            | Self::Overcommit { .. }
            | Self::Foreign { .. }
            | Self::NewerFormat { .. }
            | Self::PoolFile { .. }
            | Self::OtherKind { .. }
            | Self::InUse { .. }
            | Self::UnknownParameter { .. }
            | Self::Access { .. }
            | Self::TooLarge { .. }
            | Self::Zero
            | Self::TooSmall { .. }
            | Self::SmallerThanSource { .. }
            | Self::OtherSize { .. }
            | Self::OtherHandle { .. }
            | Self::Full { .. }
            | Self::NoRoomForCopy { .. }
            | Self::Elsewhere { .. }
            | Self::OtherPlace { .. }
            | Self::OtherUser { .. }
            | Self::Unplaced { .. }
            | Self::Missing { .. }
            | Self::WrongType { .. }
            | Self::Record { .. }
            | Self::RecordTooLong { .. }
            | Self::StillUsed { .. }
            | Self::NotBlank { .. }
            | Self::Torn { .. }
            | Self::TornFolder
            | Self::Io { .. }
            | Self::MountInside { .. }
            | Self::NotAllowed { .. } => Outcome::Nothing,
        }
    }
}

fn errno_kind(errno: Errno) -> Kind {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Kind::NoSpace,
        Errno::FBIG => Kind::OutOfRange,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Kind::Denied,
        Errno::BUSY | Errno::TXTBSY => Kind::Busy,
        Errno::INVAL | Errno::NOTSUP | Errno::NOSYS => Kind::Unsupported,
        // The medium failed or limits of the host are reached: a person or time may mend it.
        _ => Kind::Unavailable,
    }
}
