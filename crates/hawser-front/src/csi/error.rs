//! What the driver itself refuses.

use std::io;
use std::path::PathBuf;

use hawser_core::id::{GroupId, VolumeId};
use hawser_core::name::{ClassName, NodeId};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Classify, Kind, Outcome};

/// Why a call is refused before or beside the ports.
#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    /// A field that the call needs.
    #[error("the field {field} is missing")]
    Missing {
        /// Its name in the protocol.
        field: &'static str,
    },
    /// A number below 0.
    #[error("{field} is {value}, and cannot be negative")]
    Negative {
        /// Its name in the protocol.
        field: &'static str,
        /// What was given.
        value: i64,
    },
    /// A range that nothing is in.
    #[error("at least {required} and at most {limit} are asked for, which nothing can be")]
    EmptyRange {
        /// The lower end.
        required: ByteSize,
        /// The upper end.
        limit: ByteSize,
    },
    /// A volume that came out larger than it may be.
    #[error(
        "the smallest volume of at least {required} has {there}, and at most {limit} are asked for"
    )]
    AboveLimit {
        /// The lower end.
        required: ByteSize,
        /// The upper end.
        limit: ByteSize,
        /// What the storage makes of it.
        there: ByteSize,
    },
    /// A volume of the name that is larger than it may be.
    #[error("volume {volume} has {there}, and at most {limit} are asked for")]
    LargerThere {
        /// Which one.
        volume: VolumeId,
        /// What it has.
        there: ByteSize,
        /// The upper end.
        limit: ByteSize,
    },
    /// A volume of the name that is used as something else.
    #[error("volume {volume} exists and is used as {there}")]
    UsedOtherwise {
        /// Which one.
        volume: VolumeId,
        /// As what.
        there: Access,
    },
    /// No such object; also for texts that are no id of ours.
    #[error("{what} {id:?} does not exist")]
    Unknown {
        /// Which kind of object.
        what: &'static str,
        /// Its id, cut where it is long.
        id: String,
    },
    /// A capability without an access type.
    #[error("a volume capability says neither block nor mount")]
    NoAccessType,
    /// A capability without an access mode, or with one that this version does not know.
    #[error("{mode} is not an access mode of a volume capability")]
    NoAccessMode {
        /// Its number.
        mode: i32,
    },
    /// Capabilities that no volume can have together.
    #[error("the volume capabilities do not go together: {why}")]
    Mixed {
        /// Which.
        why: &'static str,
    },
    /// A file system that many nodes write.
    #[error(
        "{fs} cannot be written by several nodes: ask for a block volume, or for a class that serves folders and no file system type"
    )]
    SharedFilesystem {
        /// Which one.
        fs: String,
    },
    /// A capability that the volume does not have.
    #[error("volume {volume} cannot be used like this: {why}")]
    Unfit {
        /// Which one.
        volume: VolumeId,
        /// In words.
        why: String,
    },
    /// A use on a node that goes beyond what the volume is.
    #[error("volume {volume} cannot be used on this node like this: {why}")]
    Exceeds {
        /// Which one.
        volume: VolumeId,
        /// In words.
        why: String,
    },
    /// A parameter of the plug-in that it does not know.
    #[error("{field} has the unknown key {key:?}; known are {known}")]
    UnknownKey {
        /// The map.
        field: &'static str,
        /// The key, cut where it is long.
        key: String,
        /// What is known.
        known: &'static str,
    },
    /// A class that is not configured.
    #[error("there is no class {class:?}; there are {known}")]
    UnknownClass {
        /// What was asked for, cut where it is long.
        class: String,
        /// What is there.
        known: String,
    },
    /// No class was asked for, and none is the default.
    #[error("no class is the default: name one as the parameter class; there are {known}")]
    NoDefaultClass {
        /// What is there.
        known: String,
    },
    /// A class of the other driver.
    #[error("class {class} is not on the nodes: use the driver {driver}")]
    OtherDriver {
        /// Which class.
        class: ClassName,
        /// The name of the other driver.
        driver: &'static str,
    },
    /// A topology key of somebody else.
    #[error("the topology key {key:?} is none of this driver's")]
    UnknownTopology {
        /// The key, cut where it is long.
        key: String,
    },
    /// Something that this version does not take.
    #[error("{field} is not supported by this driver")]
    UnsupportedField {
        /// Its name in the protocol.
        field: &'static str,
    },
    /// A token of another list.
    #[error("{token:?} is not a token of this list: begin at its start")]
    BadToken {
        /// The token, cut where it is long.
        token: String,
    },
    /// A node that has as many volumes as it may.
    #[error("node {node} has {there} volumes, and {most} are the most it may have")]
    NodeFull {
        /// Which node.
        node: NodeId,
        /// How many it has.
        there: usize,
        /// How many it may have.
        most: u32,
    },
    /// A change that goes on.
    #[error("{what}; repeat the call to find out more")]
    Pending {
        /// What is being done, and how far it is.
        what: String,
    },
    /// Another call is at work on the same thing.
    #[error("another call is at work on {what}")]
    InFlight {
        /// On what.
        what: String,
    },
    /// Work that goes on behind the caller.
    #[error("the work goes on; repeat the call to find out more")]
    StillAtWork,
    /// A fault in our own code.
    #[error("a task ended in a panic: {words}")]
    Panicked {
        /// Its words.
        words: String,
    },
    /// A path that is not used.
    #[error("{field} {path:?} is not used: {why}")]
    Path {
        /// Its name in the protocol.
        field: &'static str,
        /// The path, cut where it is long.
        path: String,
        /// The rule.
        why: String,
    },
    /// A call that needs a staged volume.
    #[error("volume {volume} is not staged on this node: stage it first")]
    NotStaged {
        /// Which one.
        volume: VolumeId,
    },
    /// A call that needs the path of a staged volume.
    #[error("the field staging_target_path is missing: stage the volume first")]
    NoStagingPath,
    /// A volume for one pod alone that another has.
    #[error("volume {volume} has one writer on this node and is published at {target:?} already")]
    PublishedElsewhere {
        /// Which one.
        volume: VolumeId,
        /// Where.
        target: PathBuf,
    },
    /// A volume that is not at a path.
    #[error("volume {volume} is not at {path:?} on this node")]
    NotThere {
        /// Which one.
        volume: VolumeId,
        /// The path, cut where it is long.
        path: String,
    },
    /// A mount option that is not passed on.
    #[error("the mount option {flag:?} is not allowed: {why}")]
    Flag {
        /// The option, cut where it is long.
        flag: String,
        /// The rule.
        why: &'static str,
    },
    /// A volume that was brought here with other options: they cannot be changed below its users.
    #[error("volume {volume} is staged with other mount options: unstage it first")]
    StagedOtherwise {
        /// Which one.
        volume: VolumeId,
    },
    /// A group of users that is no number.
    #[error("volume_mount_group {group:?} is not the number of a group")]
    MountGroup {
        /// What was given, cut where it is long.
        group: String,
    },
    /// A list of snapshots that is not that of the group.
    #[error("the snapshots that are named are not those of group {group}")]
    OtherMembers {
        /// Which one.
        group: GroupId,
    },
    /// A process that may not mount.
    #[error("this process may not mount: run it as root, with the mounts of the host shared")]
    NotPrivileged,
    /// A publish context that was not made by this driver.
    #[error("the publish context has a {key} that cannot be read")]
    Context {
        /// Which key.
        key: &'static str,
    },
    /// An address that is not listened on.
    #[error("the endpoint {endpoint:?} cannot be used: {why}")]
    Endpoint {
        /// The address, cut where it is long.
        endpoint: String,
        /// The rule.
        why: &'static str,
    },
    /// A driver with nothing to serve.
    #[error("a driver needs the control half, the node half, or both")]
    NothingToServe,
    /// A file where the socket should be.
    #[error("{path:?} is there and is no socket: remove it")]
    NotASocket {
        /// Where.
        path: PathBuf,
    },
    /// Another process on the socket.
    #[error("another process listens on {path:?}")]
    Taken {
        /// Where.
        path: PathBuf,
    },
    /// A socket that cannot be made.
    #[error("listening on {path:?}")]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A server that ended.
    #[error("serving on {path:?}")]
    Serve {
        /// Where.
        path: PathBuf,
        /// Why.
        source: tonic::transport::Error,
    },
    /// Numbers that cannot be written.
    #[error("writing the metrics")]
    Metrics(#[source] std::fmt::Error),
}

impl Classify for CsiError {
    fn kind(&self) -> Kind {
        match self {
            Self::Missing { .. }
            | Self::Negative { .. }
            | Self::NoAccessType
            | Self::NoAccessMode { .. }
            | Self::Mixed { .. }
            | Self::SharedFilesystem { .. }
            | Self::Unfit { .. }
            | Self::UnknownKey { .. }
            | Self::UnknownClass { .. }
            | Self::NoDefaultClass { .. }
            | Self::OtherDriver { .. }
            | Self::UnknownTopology { .. }
            | Self::UnsupportedField { .. }
            | Self::Path { .. }
            | Self::Flag { .. }
            | Self::MountGroup { .. }
            | Self::OtherMembers { .. }
            | Self::Context { .. }
            | Self::Endpoint { .. } => Kind::Invalid,
            Self::EmptyRange { .. } | Self::AboveLimit { .. } => Kind::OutOfRange,
            Self::LargerThere { .. }
            | Self::UsedOtherwise { .. }
            | Self::StagedOtherwise { .. } => Kind::Exists,
            Self::Unknown { .. } | Self::NotThere { .. } => Kind::NotFound,
            // A list is begun again: the protocol says ABORTED.
            Self::BadToken { .. }
            | Self::Pending { .. }
            | Self::InFlight { .. }
            | Self::StillAtWork
            | Self::Taken { .. } => Kind::Busy,
            Self::NodeFull { .. } => Kind::NoSpace,
            Self::NotStaged { .. }
            | Self::NoStagingPath
            | Self::Exceeds { .. }
            | Self::PublishedElsewhere { .. }
            | Self::NotPrivileged
            | Self::NotASocket { .. } => Kind::Precondition,
            Self::Socket { .. } | Self::Serve { .. } => Kind::Unavailable,
            Self::Panicked { .. } | Self::NothingToServe | Self::Metrics(_) => Kind::Internal,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Pending { .. } | Self::StillAtWork | Self::Panicked { .. } => Outcome::Unknown,
            Self::AboveLimit { .. } => Outcome::RolledBack,
            Self::Missing { .. }
            | Self::Negative { .. }
            | Self::EmptyRange { .. }
            | Self::LargerThere { .. }
            | Self::UsedOtherwise { .. }
            | Self::Unknown { .. }
            | Self::NoAccessType
            | Self::NoAccessMode { .. }
            | Self::Mixed { .. }
            | Self::SharedFilesystem { .. }
            | Self::Unfit { .. }
            | Self::Exceeds { .. }
            | Self::UnknownKey { .. }
            | Self::UnknownClass { .. }
            | Self::NoDefaultClass { .. }
            | Self::OtherDriver { .. }
            | Self::UnknownTopology { .. }
            | Self::UnsupportedField { .. }
            | Self::BadToken { .. }
            | Self::NodeFull { .. }
            | Self::InFlight { .. }
            | Self::Path { .. }
            | Self::NotStaged { .. }
            | Self::NoStagingPath
            | Self::PublishedElsewhere { .. }
            | Self::NotThere { .. }
            | Self::Flag { .. }
            | Self::StagedOtherwise { .. }
            | Self::MountGroup { .. }
            | Self::OtherMembers { .. }
            | Self::NotPrivileged
            | Self::Context { .. }
            | Self::Endpoint { .. }
            | Self::NothingToServe
            | Self::NotASocket { .. }
            | Self::Taken { .. }
            | Self::Socket { .. }
            | Self::Serve { .. }
            | Self::Metrics(_) => Outcome::Nothing,
        }
    }
}

/// The most that is said of a text from outside.
const SHOWN: usize = 80;

/// A text from outside, short enough for a message.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Refuses an empty text.
pub(super) fn required(field: &'static str, text: &str) -> Result<(), CsiError> {
    if text.is_empty() { Err(CsiError::Missing { field }) } else { Ok(()) }
}
