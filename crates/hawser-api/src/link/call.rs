//! The methods of the ports as calls on the wire: name, params, result.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hawser_core::attach::{Attach, Detach};
use hawser_core::connection::ConnectionInfo;
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::name::ClassName;
use hawser_core::port::Node;
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::port::pools::PoolCall;
use hawser_core::{ByteSize, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::behind::Behind;
use super::error::LinkError;
use super::library::LibraryCall;
use super::upstream::UpstreamCall;
use super::{options, secrets};

/// One call of the node port, or of what a node or a control half has beside it. Its `Debug` shows secrets as stars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// `describe`
    Describe,
    /// `attach`
    Attach(Box<AttachWork>),
    /// `detach`
    Detach(DetachParams),
    /// `format`
    Format(FormatWork),
    /// `mount`
    Mount(MountWork),
    /// `unmount`
    Unmount(AtTarget),
    /// `extend`
    Extend(ExtendParams),
    /// `freeze`
    Freeze(OfPublication),
    /// `thaw`
    Thaw(OfPublication),
    /// `attachments`
    Attachments,
    /// `usage`
    Usage(AtTarget),
    /// `health`
    Health(OfPublication),
    /// `survey`
    Survey(SurveyParams),
    /// `pools`
    Pools(Box<PoolsParams>),
    /// A method of the library.
    Library(LibraryCall),
    /// A method of the upstream port.
    Upstream(UpstreamCall),
}

/// Params of the methods that need nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfPublication {
    /// Which attachment.
    pub(super) publication: PublicationId,
}

/// Params of `detach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DetachParams {
    /// Which attachment.
    pub(super) publication: PublicationId,
    /// How; the usual way when left out.
    #[serde(default, deserialize_with = "options::detach")]
    pub(super) detach: Detach,
}

/// Params of `unmount` and `usage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AtTarget {
    /// Which attachment.
    pub(super) publication: PublicationId,
    /// In which folder or file it is shown.
    pub(super) target: PathBuf,
}

/// Params of `extend`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtendParams {
    /// Which attachment.
    pub(super) publication: PublicationId,
    /// At least so large.
    pub(super) size: ByteSize,
}

/// Params of `survey`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SurveyParams {
    /// Repair what is provably safe.
    #[serde(default)]
    pub(super) fix: bool,
}

/// Params of `pools`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolsParams {
    /// On the storage of which class.
    pub(super) class: ClassName,
    /// What.
    pub(super) call: PoolCall,
}

/// `attach` as it is read: the work, and beside it the secrets that the type itself never carries.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AttachRead {
    publication: PublicationId,
    volume: VolumeId,
    info: ConnectionInfo,
    #[serde(default, deserialize_with = "options::attach")]
    attach: Attach,
    secrets: Option<Box<RawValue>>,
}

/// `attach` as it is written.
#[derive(Serialize)]
struct AttachWritten<'a> {
    #[serde(flatten)]
    work: &'a AttachWork,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

impl Call {
    /// The method's name on the wire.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::Attach(_) => "attach",
            Self::Detach(_) => "detach",
            Self::Format(_) => "format",
            Self::Mount(_) => "mount",
            Self::Unmount(_) => "unmount",
            Self::Extend(_) => "extend",
            Self::Freeze(_) => "freeze",
            Self::Thaw(_) => "thaw",
            Self::Attachments => "attachments",
            Self::Health(_) => "health",
            Self::Survey(_) => "survey",
            Self::Usage(_) => "usage",
            Self::Pools(_) => "pools",
            Self::Library(call) => call.method(),
            Self::Upstream(call) => call.method(),
        }
    }

    /// True when nobody knows what became of the world once the link is lost during this call.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Attach(_)
            | Self::Detach(_)
            | Self::Format(_)
            | Self::Mount(_)
            | Self::Unmount(_)
            | Self::Extend(_)
            | Self::Freeze(_)
            | Self::Thaw(_)
            | Self::Survey(SurveyParams { fix: true }) => true,
            Self::Describe
            | Self::Attachments
            | Self::Health(_)
            | Self::Usage(_)
            | Self::Survey(SurveyParams { fix: false }) => false,
            Self::Pools(params) => params.call.changes(),
            Self::Library(call) => call.changes(),
            Self::Upstream(call) => call.changes(),
        }
    }

    /// The params as text.
    pub(super) fn params(&self) -> Result<Box<RawValue>, LinkError> {
        let raw = match self {
            Self::Describe | Self::Attachments => to_raw_value(&Nothing {}),
            Self::Attach(work) => {
                to_raw_value(&AttachWritten { work, secrets: secrets::beside(&work.info) })
            }
            Self::Detach(params) => to_raw_value(params),
            Self::Format(work) => to_raw_value(work),
            Self::Mount(work) => to_raw_value(work),
            Self::Unmount(params) | Self::Usage(params) => to_raw_value(params),
            Self::Extend(params) => to_raw_value(params),
            Self::Freeze(params) | Self::Thaw(params) | Self::Health(params) => {
                to_raw_value(params)
            }
            Self::Survey(params) => to_raw_value(params),
            Self::Pools(params) => to_raw_value(params),
            Self::Library(call) => call.params(),
            Self::Upstream(call) => call.params(),
        };
        let what = || format!("the call {}", self.method());
        raw.map_err(|source| LinkError::Encode { what: what(), source })
    }

    /// Reads a call of the other side.
    pub(super) fn parse(method: &str, params: Option<&RawValue>) -> Result<Self, LinkError> {
        let text = params.map_or("{}", RawValue::get);
        Ok(match method {
            "describe" => read::<Nothing>("describe", text).map(|_| Self::Describe)?,
            "attach" => Self::Attach(Box::new(read_attach(text)?)),
            "detach" => Self::Detach(read("detach", text)?),
            "format" => Self::Format(read("format", text)?),
            "mount" => Self::Mount(read("mount", text)?),
            "unmount" => Self::Unmount(read("unmount", text)?),
            "extend" => Self::Extend(read("extend", text)?),
            "freeze" => Self::Freeze(read("freeze", text)?),
            "thaw" => Self::Thaw(read("thaw", text)?),
            "attachments" => read::<Nothing>("attachments", text).map(|_| Self::Attachments)?,
            "health" => Self::Health(read("health", text)?),
            "survey" => Self::Survey(read("survey", text)?),
            "usage" => Self::Usage(read("usage", text)?),
            "pools" => Self::Pools(read("pools", text)?),
            other => return Self::parse_other(other, text),
        })
    }

    /// Methods with a dot in their name: those of the other ports.
    fn parse_other(method: &str, text: &str) -> Result<Self, LinkError> {
        if let Some(call) = LibraryCall::parse(method, text) {
            return call.map(Self::Library);
        }
        if let Some(call) = UpstreamCall::parse(method, text) {
            return call.map(Self::Upstream);
        }
        Err(LinkError::UnknownMethod { method: method.chars().take(64).collect() })
    }

    /// Does it, and answers the result as text.
    pub(super) async fn run(&self, behind: &Behind) -> Result<Box<RawValue>> {
        if let Self::Upstream(call) = self {
            let (upstream, from) = behind.upstream()?;
            let written = call.run(upstream, from).await?;
            return Ok(written.map_err(|source| self.unwritable(source))?);
        }
        self.run_on(behind.node()?).await
    }

    async fn run_on(&self, node: &dyn Node) -> Result<Box<RawValue>> {
        match self {
            Self::Describe => self.answer(&node.describe().await?),
            Self::Attach(work) => self.answer(&node.attach(work).await?),
            Self::Detach(p) => self.answer(&node.detach(&p.publication, &p.detach).await?),
            Self::Format(work) => self.answer(&node.format(work).await?),
            Self::Mount(work) => self.answer(&node.mount(work).await?),
            Self::Unmount(p) => self.answer(&node.unmount(&p.publication, &p.target).await?),
            Self::Extend(p) => self.answer(&node.extend(&p.publication, p.size).await?),
            Self::Freeze(p) => self.answer(&node.freeze(&p.publication).await?),
            Self::Thaw(p) => self.answer(&node.thaw(&p.publication).await?),
            Self::Attachments => self.answer(&node.attachments().await?),
            Self::Usage(p) => self.answer(&node.usage(&p.publication, &p.target).await?),
            Self::Health(p) => self.answer(&node.health(&p.publication).await?),
            Self::Survey(p) => self.answer(&node.survey(p.fix).await?),
            Self::Pools(p) => {
                let pools = node.pools().ok_or(LinkError::NoPools)?;
                self.answer(&pools.call(&p.class, p.call.clone()).await?)
            }
            Self::Library(call) => {
                let library = node.library().ok_or(LinkError::NoLibrary)?;
                Ok(call.run(library).await?.map_err(|source| self.unwritable(source))?)
            }
            Self::Upstream(_) => Err(LinkError::NoUpstream.into()),
        }
    }

    fn answer(&self, value: &impl Serialize) -> Result<Box<RawValue>> {
        Ok(to_raw_value(value).map_err(|source| self.unwritable(source))?)
    }

    fn unwritable(&self, source: serde_json::Error) -> LinkError {
        LinkError::Encode { what: format!("the answer to {}", self.method()), source }
    }
}

/// Reads params; what is wrong is said with the method.
pub(super) fn read<T: DeserializeOwned>(method: &'static str, text: &str) -> Result<T, LinkError> {
    serde_json::from_str(text).map_err(|source| LinkError::Params { method, source })
}

fn read_attach(text: &str) -> Result<AttachWork, LinkError> {
    let AttachRead { publication, volume, mut info, attach, secrets } = read("attach", text)?;
    let wrong = LinkError::Secrets { method: "attach" };
    secrets::put_back(&mut info, secrets.as_deref(), wrong)?;
    Ok(AttachWork { publication, volume, info, attach })
}
