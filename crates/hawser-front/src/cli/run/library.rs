//! `hawser properties`, `connect`, `disconnect`, `extend`, `lookup`: JSON in, JSON out, no server.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use hawser_core::attach::{Attach, Detach, Encryption, EncryptionFormat, Multipath, SingleWriter};
use hawser_core::connection::{ConnectionInfo, Spelling};
use hawser_core::port::library::{PropertiesRequest, VolumeKey};
use hawser_core::port::{Library, Node};
use hawser_core::secret::Secret;
use hawser_core::{Error, Kind};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::args::library::{
    ConnectArgs, DisconnectArgs, EncryptionWord, PropertiesArgs, VolumeArgs,
};
use super::super::context::Context;
use super::super::error::CliError;
use super::super::output::Format;

/// The name under which the layer of encryption finds the passphrase.
const KEY_FIELD: &str = "encryption_key";

/// No connection info is larger.
const LARGEST: u64 = 4 * 1024 * 1024;

pub(super) async fn properties(
    args: PropertiesArgs,
    context: &Context<'_>,
) -> Result<(), CliError> {
    let node = context.backend.library().await?;
    let wanted = PropertiesRequest {
        multipath: args.multipath,
        enforce_multipath: args.enforce_multipath,
        ip: args.ip,
        host: args.host,
        do_local_attach: args.local_attach,
        platform: args.platform,
        os_type: args.os_type,
        camel_case: args.camel_case,
    };
    let properties = library(&node)?.properties(&wanted).await?;
    context.answer(&properties, Spelling::Snake)
}

pub(super) async fn connect(args: ConnectArgs, context: &Context<'_>) -> Result<(), CliError> {
    let mut info = read_info(args.file.as_deref())?;
    if let Some(path) = &args.key_file {
        let key = std::fs::read_to_string(path).map_err(|source| unreadable(path, &source))?;
        info.secrets.insert(KEY_FIELD.into(), Secret::new(key));
    }
    let attach = Attach {
        deadline: args.deadline,
        read_only: args.read_only,
        mount_flags: args.mount_option,
        multipath: match (args.enforce_multipath, args.multipath) {
            (true, _) => Multipath::Enforced,
            (false, true) => Multipath::Wanted,
            (false, false) => Multipath::Off,
        },
        encryption: args.encryption.map(|format| Encryption {
            format: match format {
                EncryptionWord::Luks => EncryptionFormat::Luks,
                EncryptionWord::Luks2 => EncryptionFormat::Luks2,
            },
            cipher: None,
            key_size: None,
            format_if_blank: args.format_if_blank,
            discards: false,
        }),
        reservation: args.reserve.map(|key| SingleWriter { key, preempt: args.preempt }),
    };
    let node = context.backend.library().await?;
    let change = library(&node)?.connect(&info, &attach).await?;
    let already = !change.is_made();
    let device = change.into_inner();
    if context.quiet && context.format == Format::Table {
        return context.line(&device.path.display().to_string());
    }
    let mut view = object(&device)?;
    view.insert("already".into(), json!(already));
    context.answer(&view, info.spelling)
}

pub(super) async fn disconnect(
    args: DisconnectArgs,
    context: &Context<'_>,
) -> Result<(), CliError> {
    let (key, spelling) = key(&args.volume)?;
    let detach =
        Detach { deadline: args.deadline, force: args.force, ignore_errors: args.ignore_errors };
    let node = context.backend.library().await?;
    let change = library(&node)?.disconnect(&key, &detach).await?;
    let already = !change.is_made();
    context.answer(&json!({ "path": change.into_inner(), "already": already }), spelling)
}

pub(super) async fn extend(args: VolumeArgs, context: &Context<'_>) -> Result<(), CliError> {
    let (key, spelling) = key(&args)?;
    let node = context.backend.library().await?;
    let device = library(&node)?.extend(&key).await?;
    context.answer(&device, spelling)
}

pub(super) async fn lookup(args: VolumeArgs, context: &Context<'_>) -> Result<(), CliError> {
    let (key, spelling) = key(&args)?;
    let node = context.backend.library().await?;
    match library(&node)?.lookup(&key).await? {
        Some(device) if context.quiet && context.format == Format::Table => {
            let path = device.link.as_ref().unwrap_or(&device.path);
            context.line(&path.display().to_string())
        }
        Some(device) => context.answer(&device, spelling),
        None => Err(Error::new(Kind::NotFound, "this volume is not attached on this host").into()),
    }
}

pub(super) fn library(node: &Arc<dyn Node>) -> Result<&dyn Library, CliError> {
    node.library()
        .ok_or_else(|| Error::new(Kind::Unsupported, "this build has no host library").into())
}

fn key(args: &VolumeArgs) -> Result<(VolumeKey, Spelling), CliError> {
    if let Some(volume) = &args.volume {
        return Ok((VolumeKey::Volume(volume.clone()), Spelling::Snake));
    }
    let info = read_info(args.file.as_deref())?;
    let spelling = info.spelling;
    Ok((VolumeKey::Info(info), spelling))
}

/// Reads the file, or standard input.
fn read_info(file: Option<&Path>) -> Result<ConnectionInfo, CliError> {
    let mut text = String::new();
    let (name, read) = match file {
        Some(path) if path != Path::new("-") => {
            let open = std::fs::File::open(path).map_err(|source| unreadable(path, &source))?;
            (path.display().to_string(), open.take(LARGEST).read_to_string(&mut text))
        }
        Some(_) | None => {
            let input = std::io::stdin().lock();
            ("standard input".to_owned(), input.take(LARGEST).read_to_string(&mut text))
        }
    };
    read.map_err(|source| unreadable(Path::new(&name), &source))?;
    serde_json::from_str(&text)
        .map_err(|error| CliError::Usage(format!("{name} has no connection info: {error}")))
}

fn unreadable(path: &Path, source: &std::io::Error) -> CliError {
    CliError::Usage(format!("reading {}: {source}", path.display()))
}

fn object(value: &impl Serialize) -> Result<Map<String, Value>, CliError> {
    match serde_json::to_value(value).map_err(CliError::Json)? {
        Value::Object(map) => Ok(map),
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => Ok(Map::from_iter([("value".to_owned(), other)])),
    }
}

impl Context<'_> {
    /// Prints an answer of the library: JSON unless YAML was asked for, in the caller's spelling.
    fn answer(&self, value: &impl Serialize, spelling: Spelling) -> Result<(), CliError> {
        let map = object(value)?;
        let map = match spelling {
            Spelling::Snake => map,
            Spelling::Camel => map.into_iter().map(|(key, value)| (camel(&key), value)).collect(),
        };
        let text = self.encode(&map)?;
        self.show(&map, || text)
    }

    fn line(&self, line: &str) -> Result<(), CliError> {
        self.show(&line, || format!("{line}\n"))
    }
}

/// `scsi_wwn` becomes `scsiWwn`.
fn camel(snake: &str) -> String {
    let mut parts = snake.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut camel, part| {
        let mut chars = part.chars();
        camel.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        camel.push_str(chars.as_str());
        camel
    })
}
