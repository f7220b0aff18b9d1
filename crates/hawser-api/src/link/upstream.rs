//! The methods of the upstream port as calls on the wire: what a node asks of the control half.

use std::collections::BTreeMap;

use hawser_core::connection::ConnectionInfo;
use hawser_core::filesystem::Filesystem;
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::name::NodeId;
use hawser_core::port::Upstream;
use hawser_core::port::upstream::{Claim, Grant, Report};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::call::read;
use super::error::LinkError;
use super::secrets;

/// One call of the upstream port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpstreamCall {
    /// `upstream.grant`
    Grant(Claim),
    /// `upstream.report`
    Report(Box<Report>),
    /// `upstream.release`
    Release(ReleaseParams),
}

/// Params of `upstream.release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseParams {
    /// Which volume.
    pub(super) volume: VolumeId,
    /// From which node.
    pub(super) node: NodeId,
}

/// A grant as it is written: the type, and beside it the secrets that it never carries itself.
#[derive(Serialize)]
struct GrantWritten<'a> {
    #[serde(flatten)]
    grant: &'a Grant,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<&'a str, &'a str>,
}

/// A grant as it is read. Has no `Debug`: its secrets are still text.
#[derive(Deserialize)]
pub(super) struct GrantRead {
    volume: VolumeId,
    publication: PublicationId,
    read_only: bool,
    info: ConnectionInfo,
    access: Access,
    filesystem: Option<Filesystem>,
    size: ByteSize,
    secrets: Option<Box<RawValue>>,
}

impl GrantRead {
    /// The grant with its secrets in their place; `changes` as of the call that it answers.
    pub(super) fn into_grant(self, changes: bool) -> Result<Grant, LinkError> {
        let Self { volume, publication, read_only, mut info, access, filesystem, size, secrets } =
            self;
        secrets::put_back(
            &mut info,
            secrets.as_deref(),
            LinkError::AnswerSecrets { method: "upstream.grant", changes },
        )?;
        Ok(Grant { volume, publication, read_only, info, access, filesystem, size })
    }
}

impl UpstreamCall {
    /// The method's name on the wire.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Grant(_) => "upstream.grant",
            Self::Report(_) => "upstream.report",
            Self::Release(_) => "upstream.release",
        }
    }

    /// True when nobody knows what became of the records once the link is lost during this call.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Grant(claim) => claim.publish,
            Self::Report(_) | Self::Release(_) => true,
        }
    }

    /// The params as text.
    pub(super) fn params(&self) -> serde_json::Result<Box<RawValue>> {
        match self {
            Self::Grant(claim) => to_raw_value(claim),
            Self::Report(report) => to_raw_value(report),
            Self::Release(params) => to_raw_value(params),
        }
    }

    /// Reads a call of the other side; `None` when it is no method of the upstream port.
    pub(super) fn parse(method: &str, text: &str) -> Option<Result<Self, LinkError>> {
        Some(match method {
            "upstream.grant" => read("upstream.grant", text).map(Self::Grant),
            "upstream.report" => read("upstream.report", text).map(Self::Report),
            "upstream.release" => read("upstream.release", text).map(Self::Release),
            _ => return None,
        })
    }

    /// Does it for the node `from`, and answers the result as JSON.
    pub(super) async fn run(
        &self,
        upstream: &dyn Upstream,
        from: &NodeId,
    ) -> Result<serde_json::Result<Box<RawValue>>> {
        self.check_speaker(from)?;
        Ok(match self {
            Self::Grant(claim) => {
                let grant = upstream.grant(claim).await?;
                let secrets = secrets::beside(&grant.info);
                to_raw_value(&GrantWritten { grant: &grant, secrets })
            }
            Self::Report(report) => {
                upstream.report(report).await?;
                to_raw_value(&())
            }
            Self::Release(params) => {
                upstream.release(&params.volume, &params.node).await?;
                to_raw_value(&())
            }
        })
    }

    /// A node gets no right, and no secret, of another one; and it cannot say that another one has
    /// formatted or given back a volume.
    fn check_speaker(&self, from: &NodeId) -> Result<(), LinkError> {
        let named = match self {
            Self::Grant(claim) => &claim.node,
            Self::Report(report) => &report.node,
            Self::Release(params) => &params.node,
        };
        if named == from {
            return Ok(());
        }
        Err(LinkError::OtherNode {
            method: self.method(),
            from: from.to_string(),
            named: named.to_string(),
        })
    }
}
