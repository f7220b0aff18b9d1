//! A control half that remembers what nodes asked it, and values to ask it with.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hawser_core::filesystem::{Filesystem, FormatState, FsKind};
use hawser_core::id::VolumeId;
use hawser_core::name::NodeId;
use hawser_core::port::Upstream;
use hawser_core::port::upstream::{Claim, Fact, Grant, Report};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Error, Result};
use tokio::sync::watch;

use super::fake::{attach_work, attached, publication};

/// Answers fixed values; can be told to fail, and to hold every call back.
pub(super) struct FakeControl {
    pub(super) seen: Mutex<Vec<String>>,
    pub(super) fail: Mutex<Option<fn() -> Error>>,
    pub(super) gate: watch::Sender<bool>,
    pub(super) finished: watch::Sender<usize>,
}

impl FakeControl {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
            fail: Mutex::default(),
            gate: watch::Sender::new(true),
            finished: watch::Sender::new(0),
        })
    }

    pub(super) async fn wait_seen(&self, count: usize) {
        while self.seen.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    }

    async fn enter(&self, what: String) -> Result<()> {
        self.seen.lock().unwrap().push(what);
        let _ = self.gate.subscribe().wait_for(|open| *open).await;
        self.finished.send_modify(|count| *count += 1);
        let fail = *self.fail.lock().unwrap();
        fail.map_or(Ok(()), |make| Err(make()))
    }
}

#[async_trait]
impl Upstream for FakeControl {
    async fn grant(&self, claim: &Claim) -> Result<Grant> {
        self.enter(format!("grant {claim:?}")).await?;
        Ok(grant())
    }

    async fn report(&self, report: &Report) -> Result<()> {
        self.enter(format!("report {report:?}")).await
    }

    async fn release(&self, volume: &VolumeId, node: &NodeId) -> Result<()> {
        self.enter(format!("release {volume} {node}")).await
    }
}

pub(super) fn volume() -> VolumeId {
    attach_work().volume
}

pub(super) fn claim(node: &str, publish: bool) -> Claim {
    Claim { volume: volume(), node: node.parse().unwrap(), read_only: true, publish }
}

pub(super) fn report(node: &str, fact: Fact) -> Report {
    Report { volume: volume(), publication: publication(), node: node.parse().unwrap(), fact }
}

pub(super) fn facts() -> [Fact; 4] {
    [Fact::Attached(attached()), Fact::FormatBegins, Fact::Formatted, Fact::Detached]
}

/// With a secret in its connection info.
pub(super) fn grant() -> Grant {
    Grant {
        volume: volume(),
        publication: publication(),
        read_only: true,
        info: attach_work().info,
        access: Access::Filesystem(FsKind::Xfs),
        filesystem: Some(Filesystem {
            kind: FsKind::Xfs,
            uuid: uuid::Uuid::nil(),
            state: FormatState::Started,
        }),
        size: ByteSize::gib(1),
    }
}
