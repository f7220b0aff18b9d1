//! What the doctor found, and whether the server is ready, on the wire.

use hawser_core::doctor::{Finding, FindingCode, Repair};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::mirror::mirror;

mirror!(
    /// What kind of thing is not as it should be.
    #[schema(as = FindingCode)]
    FindingCodeView = FindingCode {
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
        /// An attachment on a host that no volume knows of.
        AttachmentWithoutVolume,
        /// A volume says it is attached, and the host knows nothing of it.
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
);

/// What came of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "result", content = "reason")]
#[schema(as = Repair)]
pub enum RepairView {
    /// It is as it should be now.
    Done,
    /// It is not, and why.
    Failed(String),
}

impl From<Repair> for RepairView {
    fn from(repair: Repair) -> Self {
        match repair {
            Repair::Done => Self::Done,
            Repair::Failed(reason) => Self::Failed(reason),
        }
    }
}

impl From<RepairView> for Repair {
    fn from(view: RepairView) -> Self {
        match view {
            RepairView::Done => Self::Done,
            RepairView::Failed(reason) => Self::Failed(reason),
        }
    }
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Finding)]
pub struct FindingView {
    /// What kind of thing.
    pub code: FindingCodeView,
    /// Which one: a device, a path, an id.
    pub subject: String,
    /// What is wrong and how it may have come about.
    pub explanation: String,
    /// What to do.
    pub advice: String,
    /// True when it may be repaired by itself.
    pub fixable: bool,
    /// What came of a repair that was asked for.
    pub repair: Option<RepairView>,
}

impl From<Finding> for FindingView {
    fn from(finding: Finding) -> Self {
        Self {
            code: finding.code.into(),
            subject: finding.subject,
            explanation: finding.explanation,
            advice: finding.advice,
            fixable: finding.fixable,
            repair: finding.repair.map(Into::into),
        }
    }
}

impl From<FindingView> for Finding {
    fn from(view: FindingView) -> Self {
        Self {
            code: view.code.into(),
            subject: view.subject,
            explanation: view.explanation,
            advice: view.advice,
            fixable: view.fixable,
            repair: view.repair.map(Into::into),
        }
    }
}

/// Whether the server takes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Ready)]
pub struct ReadyView {
    /// True when start-up recovery is through.
    pub ready: bool,
}
