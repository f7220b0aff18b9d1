//! What `hawser doctor` finds: things that do not belong together.

use serde::{Deserialize, Serialize};

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What kind of thing: stable, for scripts.
    pub code: FindingCode,
    /// Which one: a device, a path, an id.
    pub subject: String,
    /// What is wrong and how it may have come about.
    pub explanation: String,
    /// What to do; says whether `--fix` does it.
    pub advice: String,
    /// True when `--fix` may repair it: provably ours and provably unused.
    pub fixable: bool,
    /// What came of a repair that was asked for.
    pub repair: Option<Repair>,
}

/// What came of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "result", content = "reason")]
pub enum Repair {
    /// It is as it should be now.
    Done,
    /// It is not, and why.
    Failed(String),
}

/// What kind of thing is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingCode {
    /// A loop device carries our mark but no attachment record names it.
    LoopWithoutRecord,
    /// An attachment record names a device that is not there.
    RecordWithoutDevice,
    /// A mount of one of our devices or folders that no record names.
    MountWithoutRecord,
    /// A record names a mount that is not there.
    RecordWithoutMount,
    /// A device answers with another identity than the record has.
    IdentityMismatch,
    /// An attachment on this host that no volume knows of.
    AttachmentWithoutVolume,
    /// A volume says it is attached here, and the host knows nothing of it.
    VolumeWithoutAttachment,
    /// An attachment that was begun and never finished.
    HalfMadeAttachment,
    /// A file system that was left frozen.
    LeftFrozen,
    /// The storage holds something that no record names.
    StorageWithoutRecord,
    /// A record names something that the storage does not hold.
    RecordWithoutStorage,
    /// An unfinished file in the pool's staging folder.
    StagingLeftover,
    /// A name that leads to no object.
    NameWithoutObject,
    /// An object that its name does not lead to.
    ObjectWithoutName,
    /// A group and its snapshots do not name each other.
    BrokenGroup,
    /// An operation that has waited long for a known outcome.
    StuckOperation,
    /// A record that cannot be read.
    UnreadableRecord,
}
