//! The control half as a node reaches it: whichever link is up now.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::Result;
use hawser_core::id::VolumeId;
use hawser_core::name::NodeId;
use hawser_core::port::Upstream;
use hawser_core::port::upstream::{Claim, Grant, Report};
use tokio::sync::watch;

use super::call::Call;
use super::error::LinkError;
use super::peer::Peer;
use super::upstream::{GrantRead, ReleaseParams, UpstreamCall};

/// Whether a link to the control half is up.
enum Link {
    Up(Peer),
    /// Not now, and why.
    Down(Arc<str>),
}

/// The dialler's end: says which link is up.
pub(super) struct Uplink(watch::Sender<Link>);

impl Default for Uplink {
    fn default() -> Self {
        Self(watch::Sender::new(Link::Down("it was not dialled yet".into())))
    }
}

impl Uplink {
    /// The end for those who call.
    pub(super) fn client(&self, patience: Duration) -> UpstreamClient {
        UpstreamClient { link: self.0.subscribe(), patience }
    }

    /// Gives calls to this link, until the answer is dropped.
    pub(super) fn raise(&self, peer: &Peer) -> Raised<'_> {
        self.0.send_replace(Link::Up(peer.clone()));
        Raised(self)
    }

    /// Says why there is no link.
    pub(super) fn down(&self, reason: &str) {
        self.0.send_replace(Link::Down(reason.into()));
    }
}

/// A link that is up.
pub(super) struct Raised<'a>(&'a Uplink);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.down("the link was lost");
    }
}

/// The control half, for a node's own use; made by [`Dialler::upstream`](super::Dialler::upstream).
///
/// It outlives links: a call goes over the link that is up, or waits a short while for the next one.
/// Without one it is `Kind::Unavailable` and nothing was changed. A link that is lost while a call is
/// under way leaves the outcome of `report`, `release` and of a `grant` that publishes unknown.
/// Cheap to clone; all clones are the same way up.
#[derive(Clone)]
pub struct UpstreamClient {
    link: watch::Receiver<Link>,
    patience: Duration,
}

impl std::fmt::Debug for UpstreamClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let up = matches!(*self.link.borrow(), Link::Up(_));
        f.debug_struct("UpstreamClient").field("up", &up).finish_non_exhaustive()
    }
}

impl UpstreamClient {
    /// The link that is up, or the next one if it comes soon.
    async fn peer(&self) -> Result<Peer, LinkError> {
        let mut link = self.link.clone();
        let up = link.wait_for(|link| matches!(link, Link::Up(_)));
        // Down after all this while, or for ever: whoever dials has stopped.
        let _ = tokio::time::timeout(self.patience, up).await;
        match &*link.borrow() {
            Link::Up(peer) => Ok(peer.clone()),
            Link::Down(reason) => {
                Err(LinkError::NoControl { waited: self.patience, reason: reason.to_string() })
            }
        }
    }
}

#[async_trait]
impl Upstream for UpstreamClient {
    async fn grant(&self, claim: &Claim) -> Result<Grant> {
        let call = UpstreamCall::Grant(claim.clone());
        let changes = call.changes();
        let read: GrantRead = self.peer().await?.call(&Call::Upstream(call)).await?;
        Ok(read.into_grant(changes)?)
    }

    async fn report(&self, report: &Report) -> Result<()> {
        let call = UpstreamCall::Report(Box::new(report.clone()));
        self.peer().await?.call(&Call::Upstream(call)).await
    }

    async fn release(&self, volume: &VolumeId, node: &NodeId) -> Result<()> {
        let params = ReleaseParams { volume: volume.clone(), node: node.clone() };
        self.peer().await?.call(&Call::Upstream(UpstreamCall::Release(params))).await
    }
}
