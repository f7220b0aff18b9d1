//! What contents of snapshots and contents of groups have in common.

use serde_json::Value;

use super::super::error::ClusterError;
use super::super::objects::{Object, ObjectRef};
use super::super::office::{Office, Tables};
use super::super::table::Table;

/// Where the snapshot of a content comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// It is to be taken.
    ToTake,
    /// It is there: somebody took it elsewhere, or it was taken with its group.
    There,
    /// It is taken with its group, and not told yet.
    WithGroup,
    /// The content does not say.
    Unknown,
}

/// The names of a kind of contents in objects and events.
pub(super) struct Names {
    pub(super) finalizer: &'static str,
    pub(super) being_created: &'static str,
    pub(super) being_deleted: &'static str,
    /// The reasons of events.
    pub(super) not_taken: &'static str,
    pub(super) not_seen: &'static str,
    pub(super) not_removed: &'static str,
}

/// A content of either kind.
pub(super) trait AnyContent: Object {
    const NAMES: Names;

    /// What the driver is asked for.
    type Order: Send;

    fn table(tables: &Tables) -> &Table<Self>;

    fn driver(&self) -> &str;

    fn class_name(&self) -> Option<&str>;

    /// The driver of the class, if the class is there.
    fn class_driver(&self, tables: &Tables) -> Option<String>;

    /// True when what is on the storage goes with the content.
    fn is_for_removal(&self) -> bool;

    /// The wish of the user that it is bound to.
    fn wish(&self) -> &ObjectRef;

    /// True when somebody wrote it for a snapshot that was there.
    fn is_given(&self) -> bool;

    fn source(&self) -> Source;

    /// What on the storage has to be removed by itself.
    fn handle(&self) -> Option<&str>;

    fn is_ready(&self) -> bool;

    /// The error that users were told of last.
    fn told(&self) -> Option<&str>;

    fn has_same_spec(&self, other: &Self) -> bool;

    /// The status of a content whose snapshot is removed.
    fn cleared() -> Value;

    /// What to ask the driver for.
    fn order(
        &self,
        office: &Office,
    ) -> impl Future<Output = Result<Self::Order, ClusterError>> + Send;

    /// Has the snapshot taken; answers what changes in the status.
    fn take(
        &self,
        office: &Office,
        order: Self::Order,
    ) -> impl Future<Output = Result<Value, ClusterError>> + Send;

    /// Looks at what is there; answers what changes in the status.
    fn look(&self, office: &Office) -> impl Future<Output = Result<Value, ClusterError>> + Send;

    /// Has it removed from the storage.
    fn remove(&self, office: &Office) -> impl Future<Output = Result<(), ClusterError>> + Send;
}
