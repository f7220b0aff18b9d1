//! The other side of a link as a [`Node`].

use std::path::Path;

use async_trait::async_trait;
use hawser_core::attach::{AttachRecord, Attached, Detach, Health};
use hawser_core::doctor::Finding;
use hawser_core::id::PublicationId;
use hawser_core::name::ClassName;
use hawser_core::node::NodeRecord;
use hawser_core::port::host::FsUsage;
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::port::pools::{PoolAnswer, PoolCall};
use hawser_core::port::{Library, Node, Pools};
use hawser_core::{ByteSize, Change, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use super::behind::Behind;
use super::call::{
    AtTarget, Call, DetachParams, ExtendParams, OfPublication, PoolsParams, SurveyParams,
};
use super::drive::{Service, drive, handshake};
use super::error::LinkError;
use super::message::{Hello, Role};
use super::peer::Peer;
use super::tasks::Tasks;

/// A node at the other end of a link.
///
/// Any number of calls may be in flight. A link that is lost fails them with `Kind::Unavailable`,
/// and with `Outcome::Unknown` where the call may have changed the host. Dropping a call's future
/// leaves the work over there running; the node's own rules make it safe to ask again.
pub struct NodeClient {
    peer: Peer,
    /// Ends the link with the client, where the client owns it.
    driver: Option<AbortHandle>,
}

impl Drop for NodeClient {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

impl std::fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeClient").finish_non_exhaustive()
    }
}

impl NodeClient {
    /// Speaks to the node at the other end of a stream, as a caller: the library socket of
    /// `hawser node`. The link ends when the client is dropped.
    pub async fn open<S>(stream: S) -> Result<Self, LinkError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let check = |theirs: &Hello| match theirs.role {
            Role::Node => Ok(()),
            Role::Control | Role::Caller => {
                Err(LinkError::Role { ours: Role::Caller, theirs: theirs.role })
            }
        };
        let (connection, theirs) = handshake(stream, &Hello::plain(Role::Caller), check).await?;
        let label = match theirs.node {
            Some(record) => format!("node {}", record.id),
            None => "the node".to_owned(),
        };
        let (peer, frames) = Peer::new(label);
        let driven = peer.clone();
        let driver = tokio::spawn(async move {
            let service = Service {
                behind: Behind::Nobody.into(),
                tasks: Tasks::default(),
                keep_alive: None,
            };
            drive(connection, &driven, frames, &service).await;
        });
        Ok(Self { peer, driver: Some(driver.abort_handle()) })
    }

    /// The link.
    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// A client over a link that somebody else carries.
    pub(super) fn over(peer: Peer) -> Self {
        Self { peer, driver: None }
    }
}

fn of(publication: &PublicationId) -> OfPublication {
    OfPublication { publication: publication.clone() }
}

fn at(publication: &PublicationId, target: &Path) -> AtTarget {
    AtTarget { publication: publication.clone(), target: target.to_path_buf() }
}

#[async_trait]
impl Node for NodeClient {
    async fn describe(&self) -> Result<NodeRecord> {
        self.peer.call(&Call::Describe).await
    }

    async fn attach(&self, work: &AttachWork) -> Result<Change<Attached>> {
        self.peer.call(&Call::Attach(Box::new(work.clone()))).await
    }

    async fn detach(&self, publication: &PublicationId, detach: &Detach) -> Result<Change<()>> {
        let params = DetachParams { publication: publication.clone(), detach: detach.clone() };
        self.peer.call(&Call::Detach(params)).await
    }

    async fn format(&self, work: &FormatWork) -> Result<Change<()>> {
        self.peer.call(&Call::Format(work.clone())).await
    }

    async fn mount(&self, work: &MountWork) -> Result<Change<()>> {
        self.peer.call(&Call::Mount(work.clone())).await
    }

    async fn unmount(&self, publication: &PublicationId, target: &Path) -> Result<Change<()>> {
        self.peer.call(&Call::Unmount(at(publication, target))).await
    }

    async fn extend(&self, publication: &PublicationId, size: ByteSize) -> Result<ByteSize> {
        let params = ExtendParams { publication: publication.clone(), size };
        self.peer.call(&Call::Extend(params)).await
    }

    async fn freeze(&self, publication: &PublicationId) -> Result<Change<()>> {
        self.peer.call(&Call::Freeze(of(publication))).await
    }

    async fn thaw(&self, publication: &PublicationId) -> Result<Change<()>> {
        self.peer.call(&Call::Thaw(of(publication))).await
    }

    async fn attachments(&self) -> Result<Vec<AttachRecord>> {
        self.peer.call(&Call::Attachments).await
    }

    async fn usage(&self, publication: &PublicationId, target: &Path) -> Result<FsUsage> {
        self.peer.call(&Call::Usage(at(publication, target))).await
    }

    async fn health(&self, publication: &PublicationId) -> Result<Health> {
        self.peer.call(&Call::Health(of(publication))).await
    }

    async fn survey(&self, fix: bool) -> Result<Vec<Finding>> {
        self.peer.call(&Call::Survey(SurveyParams { fix })).await
    }

    fn library(&self) -> Option<&dyn Library> {
        Some(self)
    }

    /// Whether the node has storage of its own is known when it answers.
    fn pools(&self) -> Option<&dyn Pools> {
        Some(self)
    }
}

#[async_trait]
impl Pools for NodeClient {
    async fn call(&self, class: &ClassName, call: PoolCall) -> Result<PoolAnswer> {
        let params = PoolsParams { class: class.clone(), call };
        self.peer.call(&Call::Pools(Box::new(params))).await
    }
}
