//! Snapshots: what the sidecar csi-snapshotter does for contents and contents of groups.
//!
//! The snapshot controller of the cluster stays: it makes a content for each wish of a user, binds
//! the two and says when a content is to go. Here the driver takes the snapshot, and the status of
//! the content tells what came of it. Followed: csi-snapshotter 8.6, whose annotations, finalizers
//! and order of steps are kept, so that either can go on where the other stopped.
//!
//! A content costs three requests: the mark that a snapshot may be under way, its status, and the
//! mark again. The mark cannot go with the status: the API server changes one or the other of a
//! custom object, never both.

mod any;
mod content;
mod group;
mod parameters;
mod patch;
mod secrets;
mod settle;
mod step;
mod time;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::group_controller_server::GroupController;
use tokio_util::sync::CancellationToken;

use super::error::ClusterError;
use super::objects::{Content, GroupClass, GroupContent, Key, Object, SnapshotClass};
use super::office::Office;
use super::queue::Queue;
use super::table::Changed;
use crate::csi::Services;

/// How many contents are worked on at once. Each waits for the driver most of the time; fifty that
/// come together shall not wait for each other.
const WORKERS: usize = 64;

/// How many groups are: each is many snapshots for the driver.
const GROUP_WORKERS: usize = 8;

/// The controller of contents and of contents of groups.
pub(super) struct Snapshots {
    office: Arc<Office>,
    contents: Queue<Key>,
    groups: Queue<Key>,
}

impl Snapshots {
    pub(super) fn new(office: Arc<Office>) -> Arc<Self> {
        Arc::new(Self { office, contents: Queue::default(), groups: Queue::default() })
    }

    /// A content has changed.
    pub(super) fn heard_content(&self, changed: &Changed<Content>) {
        if self.concerns(changed) {
            self.contents.add(changed.key.clone());
        }
    }

    /// The content of a group has changed.
    pub(super) fn heard_group_content(&self, changed: &Changed<GroupContent>) {
        if self.concerns(changed) {
            self.groups.add(changed.key.clone());
        }
    }

    /// A class has changed: contents may wait for it.
    pub(super) fn heard_snapshot_class(&self, changed: &Changed<SnapshotClass>) {
        let Some(class) = &changed.now else { return };
        let is = |class: &SnapshotClass| (class.driver.clone(), class.parameters.clone());
        if changed.before.as_deref().map(is) != Some(is(class)) {
            self.wake::<Content>(&self.contents, class.name());
        }
    }

    /// A class of groups has changed: contents may wait for it.
    pub(super) fn heard_group_class(&self, changed: &Changed<GroupClass>) {
        let Some(class) = &changed.now else { return };
        let is = |class: &GroupClass| (class.driver.clone(), class.parameters.clone());
        if changed.before.as_deref().map(is) != Some(is(class)) {
            self.wake::<GroupContent>(&self.groups, class.name());
        }
    }

    /// Works until it is told to stop. Nothing is done before all classes are known: a missing one
    /// would be told to users.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::join!(self.run_contents(stop.clone()), self.run_groups(stop));
    }

    async fn run_contents(self: &Arc<Self>, stop: CancellationToken) {
        let tables = &self.office.tables;
        let known =
            async { tokio::join!(tables.contents.filled(), tables.snapshot_classes.filled()) };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = known => {}
        }
        let this = self.clone();
        let work = move |key| this.clone().work::<Content>(key);
        self.contents.run(WORKERS, stop, work).await;
    }

    async fn run_groups(self: &Arc<Self>, stop: CancellationToken) {
        let tables = &self.office.tables;
        let known =
            async { tokio::join!(tables.group_contents.filled(), tables.group_classes.filled()) };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = known => {}
        }
        let this = self.clone();
        let work = move |key| this.clone().work::<GroupContent>(key);
        self.groups.run(GROUP_WORKERS, stop, work).await;
    }
}

/// The controller service of a driver of ours.
fn controller(office: &Office, driver: &str) -> Result<impl Controller, ClusterError> {
    let service = office.driver(driver).and_then(Services::controller);
    service.ok_or_else(|| ClusterError::Wrong(format!("the driver {driver} is not served here")))
}

/// The service for groups of a driver of ours.
fn groups(office: &Office, driver: &str) -> Result<impl GroupController, ClusterError> {
    let none = || ClusterError::Wrong(format!("no class of {driver} takes groups of snapshots"));
    office.driver(driver).and_then(Services::groups).ok_or_else(none)
}
