//! The methods of the library port as calls on the wire.
//!
//! A volume is named by `volume`, its outside name, or by `info`, what it is connected with. Secrets
//! may stand in the data of `info`, as storage systems send them, or beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use hawser_core::attach::{Attach, Detach};
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Library;
use hawser_core::port::library::{ConnectorStatus, DeviceInfo, PropertiesRequest, VolumeKey};
use hawser_core::{Change, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::call::{Call, Nothing, read};
use super::client::NodeClient;
use super::error::LinkError;
use super::{options, secrets};

/// One call of the library port. Its `Debug` shows secrets as stars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LibraryCall {
    /// `library.properties`
    Properties(PropertiesRequest),
    /// `library.connect`
    Connect(Box<(ConnectionInfo, Attach)>),
    /// `library.disconnect`
    Disconnect(Box<(VolumeKey, Detach)>),
    /// `library.extend`
    Extend(Box<VolumeKey>),
    /// `library.lookup`
    Lookup(Box<VolumeKey>),
    /// `library.connectors`
    Connectors,
}

/// What every method that names a volume reads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    volume: Option<String>,
    info: Option<ConnectionInfo>,
    secrets: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "options::attach")]
    attach: Attach,
    #[serde(default, deserialize_with = "options::detach")]
    detach: Detach,
}

/// The same, written.
#[derive(Default, Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<&'a ConnectionInfo>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attach: Option<&'a Attach>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detach: Option<&'a Detach>,
}

impl<'a> Written<'a> {
    fn info(info: &'a ConnectionInfo) -> Self {
        Self { info: Some(info), secrets: secrets::beside(info), ..Self::default() }
    }

    fn key(key: &'a VolumeKey) -> Self {
        match key {
            VolumeKey::Volume(name) => Self { volume: Some(name), ..Self::default() },
            VolumeKey::Info(info) => Self::info(info),
        }
    }
}

impl LibraryCall {
    /// The method's name on the wire.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Properties(_) => "library.properties",
            Self::Connect(_) => "library.connect",
            Self::Disconnect(_) => "library.disconnect",
            Self::Extend(_) => "library.extend",
            Self::Lookup(_) => "library.lookup",
            Self::Connectors => "library.connectors",
        }
    }

    /// True when nobody knows what became of the host once the link is lost during this call.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Disconnect(_) | Self::Extend(_) => true,
            Self::Properties(_) | Self::Lookup(_) | Self::Connectors => false,
        }
    }

    /// The params as text.
    pub(super) fn params(&self) -> serde_json::Result<Box<RawValue>> {
        match self {
            Self::Properties(request) => to_raw_value(request),
            Self::Connect(parts) => {
                let (info, attach) = parts.as_ref();
                to_raw_value(&Written { attach: Some(attach), ..Written::info(info) })
            }
            Self::Disconnect(parts) => {
                let (key, detach) = parts.as_ref();
                to_raw_value(&Written { detach: Some(detach), ..Written::key(key) })
            }
            Self::Extend(key) | Self::Lookup(key) => to_raw_value(&Written::key(key)),
            Self::Connectors => to_raw_value(&Nothing {}),
        }
    }

    /// Reads a call of the other side; `None` when it is no method of the library.
    pub(super) fn parse(method: &str, text: &str) -> Option<Result<Self, LinkError>> {
        Some(match method {
            "library.properties" => read("library.properties", text).map(Self::Properties),
            "library.connect" => connect(text),
            "library.disconnect" => named("library.disconnect", text)
                .map(|(key, read)| Self::Disconnect(Box::new((key, read.detach)))),
            "library.extend" => {
                named("library.extend", text).map(|(key, _)| Self::Extend(Box::new(key)))
            }
            "library.lookup" => {
                named("library.lookup", text).map(|(key, _)| Self::Lookup(Box::new(key)))
            }
            "library.connectors" => {
                read::<Nothing>("library.connectors", text).map(|_| Self::Connectors)
            }
            _ => return None,
        })
    }

    /// Does it, and answers the result as JSON.
    pub(super) async fn run(
        &self,
        library: &dyn Library,
    ) -> Result<serde_json::Result<Box<RawValue>>> {
        Ok(match self {
            Self::Properties(wanted) => to_raw_value(&library.properties(wanted).await?),
            Self::Connect(parts) => to_raw_value(&library.connect(&parts.0, &parts.1).await?),
            Self::Disconnect(parts) => to_raw_value(&library.disconnect(&parts.0, &parts.1).await?),
            Self::Extend(key) => to_raw_value(&library.extend(key).await?),
            Self::Lookup(key) => to_raw_value(&library.lookup(key).await?),
            Self::Connectors => to_raw_value(&library.connectors().await?),
        })
    }
}

fn missing(method: &'static str, words: &str) -> LinkError {
    LinkError::Params { method, source: serde::de::Error::custom(words) }
}

/// Puts the secrets that stand beside the info into it.
fn with_secrets(method: &'static str, read: &mut Read) -> Result<(), LinkError> {
    let beside = read.secrets.take();
    let Some(info) = &mut read.info else { return Ok(()) };
    secrets::put_back(info, beside.as_deref(), LinkError::Secrets { method })
}

fn connect(text: &str) -> Result<LibraryCall, LinkError> {
    let mut read: Read = read("library.connect", text)?;
    with_secrets("library.connect", &mut read)?;
    let info = read.info.ok_or_else(|| missing("library.connect", "missing field `info`"))?;
    Ok(LibraryCall::Connect(Box::new((info, read.attach))))
}

fn named(method: &'static str, text: &str) -> Result<(VolumeKey, Read), LinkError> {
    let mut read: Read = read(method, text)?;
    with_secrets(method, &mut read)?;
    match (read.volume.take(), read.info.take()) {
        (Some(name), None) => Ok((VolumeKey::Volume(name), read)),
        (None, Some(info)) => Ok((VolumeKey::Info(info), read)),
        (Some(_), Some(_)) | (None, None) => Err(missing(method, "give either `volume` or `info`")),
    }
}

impl NodeClient {
    async fn library_call<T: DeserializeOwned>(&self, call: LibraryCall) -> Result<T> {
        self.peer().call(&Call::Library(call)).await
    }
}

#[async_trait]
impl Library for NodeClient {
    async fn properties(&self, wanted: &PropertiesRequest) -> Result<Map<String, Value>> {
        self.library_call(LibraryCall::Properties(wanted.clone())).await
    }

    async fn connect(&self, info: &ConnectionInfo, attach: &Attach) -> Result<Change<DeviceInfo>> {
        self.library_call(LibraryCall::Connect(Box::new((info.clone(), attach.clone())))).await
    }

    async fn disconnect(
        &self,
        volume: &VolumeKey,
        detach: &Detach,
    ) -> Result<Change<Option<PathBuf>>> {
        let parts = Box::new((volume.clone(), detach.clone()));
        self.library_call(LibraryCall::Disconnect(parts)).await
    }

    async fn extend(&self, volume: &VolumeKey) -> Result<DeviceInfo> {
        self.library_call(LibraryCall::Extend(Box::new(volume.clone()))).await
    }

    async fn lookup(&self, volume: &VolumeKey) -> Result<Option<DeviceInfo>> {
        self.library_call(LibraryCall::Lookup(Box::new(volume.clone()))).await
    }

    async fn connectors(&self) -> Result<Vec<ConnectorStatus>> {
        self.library_call(LibraryCall::Connectors).await
    }
}
