//! What the node half refuses, and what it says when taking back fails too.

use std::path::PathBuf;
use std::time::Duration;

use hawser_core::attach::Identity;
use hawser_core::filesystem::FsKind;
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::{ByteSize, Classify, Error, Kind, Outcome, Reason};
use uuid::Uuid;

/// Why the node half does not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeError {
    #[error("no connector of this build takes the protocol {protocol}")]
    NoConnector { protocol: String },

    #[error("{protocol} does not exist on {platform}; it does on {others}")]
    NotOnPlatform { protocol: String, platform: &'static str, others: String },

    #[error("{publication} is not known on this host: attach it first")]
    NotKnown { publication: PublicationId },

    #[error("{publication} is not fully attached on this host ({state}): attach it first")]
    NotAttached { publication: PublicationId, state: &'static str },

    #[error(
        "{publication} is there already, but with {what} {there} where {wanted} is asked for: detach it first"
    )]
    AttachedOtherwise {
        publication: PublicationId,
        what: &'static str,
        there: String,
        wanted: String,
    },

    #[error(
        "volume {volume} is {there} on this host by {other} of {instance}, so it cannot be attached {wanted} as well: a writer must be alone"
    )]
    AnotherWriter {
        volume: VolumeId,
        other: PublicationId,
        instance: String,
        there: &'static str,
        wanted: &'static str,
    },

    #[error(
        "volume {volume} is {state} on this host by {other}: repeat when that is through; see `hawser doctor` if it never is"
    )]
    BetweenStates { volume: VolumeId, other: PublicationId, state: &'static str },

    #[error(
        "what {volume} is addressed by is attached on this host as {other_volume} by {other}: detach that first, or use its name"
    )]
    OtherName { volume: VolumeId, other_volume: VolumeId, other: PublicationId },

    #[error(
        "other work on {what} has not ended within {} s, and nothing was done: repeat when it is through",
        limit.as_secs_f64()
    )]
    OtherWork { what: String, limit: Duration },

    #[error(
        "the attachment record {path:?} of this host cannot be read ({why}), so nobody can tell whether it is of this volume: see `hawser doctor`"
    )]
    JournalUnreadable { path: PathBuf, why: String },

    #[error("{device:?} says it is {found}, and {expected} is expected: it is left alone")]
    WrongIdentity { device: PathBuf, expected: Identity, found: String },

    #[error(
        "the volume is recorded at {recorded:?} and found at {found:?} now: it was taken away behind Hawser's back; attach it again"
    )]
    Moved { recorded: PathBuf, found: PathBuf },

    #[error(
        "{recorded:?} is gone: it was taken away behind Hawser's back; attach the volume again"
    )]
    Gone { recorded: PathBuf },

    #[error("it is still mounted on {}: unmount it first", list(.targets))]
    StillMounted { targets: Vec<PathBuf> },

    #[error("{path:?} is not a block device, so it has no file system of its own")]
    NoDevice { path: PathBuf },

    #[error("{device:?} is a raw volume and is not mounted: `attach` gives its device")]
    RawDevice { device: PathBuf },

    #[error("a device that is shown as it is has neither a file system nor a group of its own")]
    RawWithMore,

    #[error(
        "{device:?} is shown {there} on {target:?}, and cannot be shown {wanted} beside that: unmount it there first"
    )]
    Beside { device: PathBuf, target: PathBuf, there: &'static str, wanted: &'static str },

    #[error("the volume of {publication} is not mounted on {target:?}")]
    NotShown { publication: PublicationId, target: PathBuf },

    #[error(
        "what is mounted on {target:?} did not answer within {} s: look for a dead server or device",
        limit.as_secs_f64()
    )]
    Silent { target: PathBuf, limit: Duration },

    #[error("{path:?} is a file and is not mounted: `attach` gives its path")]
    PlainFile { path: PathBuf },

    #[error("{device:?} is attached without the right to write: {what} needs it")]
    ReadOnly { device: PathBuf, what: &'static str },

    #[error("the record says that the file system was made: it is never made again")]
    FormattedBefore,

    #[error(
        "{device:?} is not made a new file system: the record says it was never formatted, and it holds {found}"
    )]
    NotBlank { device: PathBuf, found: String },

    #[error(
        "{device:?} is not made a new file system: an unfinished one of ours ({uuid}) may be there, but it holds {found}"
    )]
    NotOurs { device: PathBuf, uuid: Uuid, found: String },

    #[error(
        "{device:?} shows {found} after mkfs, where {fs} {uuid} was made: look at the device before anything else"
    )]
    MadeOtherwise { device: PathBuf, fs: FsKind, uuid: Uuid, found: String },

    #[error("{device:?} was never formatted: there is nothing to mount")]
    NeverFormatted { device: PathBuf },

    #[error("{device:?} holds {found}, and {fs} {uuid} is expected: it is not mounted")]
    WrongContent { device: PathBuf, fs: FsKind, uuid: Uuid, found: String },

    #[error(
        "{target:?} is not a usable mount target: give an absolute path without `.`, `..`, double or trailing slashes"
    )]
    BadTarget { target: PathBuf },

    #[error(
        "mounting needs root, and this process is not: run Hawser as root, or use the folder itself, whose path `attach` gives"
    )]
    NotPrivileged,

    // Options are not repeated: this becomes an event, which more people may read than the options.
    #[error(
        "it is mounted on {target:?} otherwise than is asked for: {what} differs; unmount it first"
    )]
    MountedOtherwise { target: PathBuf, what: &'static str },

    #[error(
        "{target:?} shows {found}, which is not this volume: it is left alone; whoever mounted it must unmount it"
    )]
    Stranger { target: PathBuf, found: String },

    #[error(
        "{target:?} still shows the volume after {times} unmounts: something mounts it again and again"
    )]
    MountedAgain { target: PathBuf, times: usize },

    #[error("its file system is frozen for a snapshot: repeat when that is done")]
    Frozen,

    #[error(
        "the file system on {target:?} was frozen by somebody else, who may thaw it at any time: repeat when that is done"
    )]
    FrozenByOthers { target: PathBuf },

    #[error("{device:?} has {there} after it was extended, and {wanted} is expected")]
    TooSmall { device: PathBuf, there: ByteSize, wanted: ByteSize },

    #[error("taking back what was done failed too ({undo})")]
    Undo { source: Error, undo: String },

    #[error("{} of {total} attachments were not recovered: {}", .failed.len(), .failed.join("; "))]
    Recover { total: usize, failed: Vec<String>, first: Kind },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(", ")
}

impl Classify for NodeError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoConnector { .. }
            | Self::NotOnPlatform { .. }
            | Self::RawDevice { .. }
            | Self::PlainFile { .. } => Kind::Unsupported,
            Self::NotKnown { .. } | Self::NotShown { .. } => Kind::NotFound,
            Self::Silent { .. } => Kind::Unavailable,
            Self::AttachedOtherwise { .. } | Self::MountedOtherwise { .. } => Kind::Exists,
            Self::NotAttached { .. }
            | Self::AnotherWriter { .. }
            | Self::OtherName { .. }
            | Self::JournalUnreadable { .. }
            | Self::WrongIdentity { .. }
            | Self::Moved { .. }
            | Self::Gone { .. }
            | Self::NoDevice { .. }
            | Self::ReadOnly { .. }
            | Self::FormattedBefore
            | Self::NotBlank { .. }
            | Self::NotOurs { .. }
            | Self::MadeOtherwise { .. }
            | Self::NeverFormatted { .. }
            | Self::WrongContent { .. }
            | Self::Stranger { .. }
            | Self::Beside { .. }
            | Self::TooSmall { .. } => Kind::Precondition,
            Self::StillMounted { .. }
            | Self::BetweenStates { .. }
            | Self::OtherWork { .. }
            | Self::MountedAgain { .. }
            | Self::Frozen
            | Self::FrozenByOthers { .. } => Kind::Busy,
            Self::BadTarget { .. } | Self::RawWithMore => Kind::Invalid,
            Self::NotPrivileged => Kind::Denied,
            Self::Undo { source, .. } => source.kind(),
            Self::Recover { first, .. } => *first,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            // An unmount ran, or nobody knows what is left.
            Self::MountedAgain { .. } | Self::Undo { .. } => Outcome::Unknown,
            // mkfs ran, which the volume's record knows, and would do the same again.
            Self::MadeOtherwise { .. } => Outcome::Nothing,
            Self::NoConnector { .. }
            | Self::NotOnPlatform { .. }
            | Self::NotKnown { .. }
            | Self::NotAttached { .. }
            | Self::AttachedOtherwise { .. }
            | Self::AnotherWriter { .. }
            | Self::BetweenStates { .. }
            | Self::OtherName { .. }
            | Self::OtherWork { .. }
            | Self::JournalUnreadable { .. }
            | Self::WrongIdentity { .. }
            | Self::Moved { .. }
            | Self::Gone { .. }
            | Self::StillMounted { .. }
            | Self::NoDevice { .. }
            | Self::RawDevice { .. }
            | Self::RawWithMore
            | Self::Beside { .. }
            | Self::NotShown { .. }
            | Self::Silent { .. }
            | Self::PlainFile { .. }
            | Self::ReadOnly { .. }
            | Self::FormattedBefore
            | Self::NotBlank { .. }
            | Self::NotOurs { .. }
            | Self::NeverFormatted { .. }
            | Self::WrongContent { .. }
            | Self::BadTarget { .. }
            | Self::NotPrivileged
            | Self::MountedOtherwise { .. }
            | Self::Stranger { .. }
            | Self::Frozen
            | Self::FrozenByOthers { .. }
            | Self::TooSmall { .. }
            | Self::Recover { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::NoConnector { .. } | Self::NotOnPlatform { .. } => {
                Some(Reason::UnsupportedProtocol)
            }
            Self::WrongIdentity { .. } => Some(Reason::IdentityMismatch),
            Self::StillMounted { .. }
            | Self::MountedAgain { .. }
            | Self::AnotherWriter { .. }
            | Self::BetweenStates { .. }
            | Self::OtherName { .. } => Some(Reason::DeviceBusy),
            Self::AttachedOtherwise { .. } => Some(Reason::InvalidParameters),
            Self::OtherWork { .. } => Some(Reason::HostTimeout),
            Self::Undo { source, .. } => source.reason(),
            Self::NotKnown { .. }
            | Self::NotAttached { .. }
            | Self::JournalUnreadable { .. }
            | Self::Moved { .. }
            | Self::Gone { .. }
            | Self::NoDevice { .. }
            | Self::RawDevice { .. }
            | Self::RawWithMore
            | Self::Beside { .. }
            | Self::NotShown { .. }
            | Self::Silent { .. }
            | Self::PlainFile { .. }
            | Self::ReadOnly { .. }
            | Self::FormattedBefore
            | Self::NotBlank { .. }
            | Self::NotOurs { .. }
            | Self::MadeOtherwise { .. }
            | Self::NeverFormatted { .. }
            | Self::WrongContent { .. }
            | Self::BadTarget { .. }
            | Self::NotPrivileged
            | Self::MountedOtherwise { .. }
            | Self::Stranger { .. }
            | Self::Frozen
            | Self::FrozenByOthers { .. }
            | Self::TooSmall { .. }
            | Self::Recover { .. } => None,
        }
    }
}

/// The failure together with that of taking its work back: nobody knows what is left.
pub(super) fn with_undo(failure: Error, undo: &Error) -> Error {
    NodeError::Undo { undo: undo.sentence(), source: failure }.into()
}
