//! What a ConnectionInfo says about a ScaleIO volume.

use std::path::PathBuf;

use hawser_core::attach::{AttachRecord, Attached, Identity};
use hawser_core::connection::ConnectionInfo;
use hawser_core::secret::Secret;

use crate::shared::digest;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};

/// The scheme of the identity that a volume has.
const SCHEME: &str = "scaleio";

/// The port of a gateway where the data name none.
const HTTPS: u16 = 443;

/// A volume and who maps it.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) name: String,
    /// Where it is missing, the gateway knows the volume by its name.
    pub(super) id: Option<String>,
    /// What it was when it was attached: its name may be another volume's by now.
    pub(super) recorded: Option<String>,
    pub(super) way: Way,
    pub(super) read_only: bool,
    expected: Vec<Identity>,
}

/// Who maps the volume.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// Whoever gave the info, to this client.
    Mapped(String),
    /// We do, through the gateway.
    Gateway(Box<Access>),
}

/// How the gateway is reached, and what it is asked for.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) token: Option<Secret>,
    /// The section of the client's own settings that has the password.
    pub(super) group: Option<String>,
    /// The volume is used at the other side of a replication.
    pub(super) failed_over: bool,
    pub(super) verify: bool,
    pub(super) roots: Option<PathBuf>,
    pub(super) iops: Option<u64>,
    /// In KiB per second.
    pub(super) bandwidth: Option<u64>,
}

impl Access {
    /// For errors.
    pub(super) fn words(&self) -> String {
        format!("the ScaleIO gateway at {}", self.at())
    }

    /// Host and port, as in an address.
    pub(super) fn at(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl Volume {
    /// What it is called in errors.
    pub(super) fn words(&self) -> String {
        match &self.id {
            Some(id) => format!("ScaleIO volume {} ({id})", self.name),
            None => format!("ScaleIO volume {}", self.name),
        }
    }

    /// A short name for its lock and its note, the same for each call.
    pub(super) fn key(&self) -> String {
        let at = match &self.way {
            Way::Mapped(_) => String::new(),
            Way::Gateway(access) => access.at(),
        };
        let id = self.id.as_deref().unwrap_or_default();
        digest::short(format!("{at}\n{}\n{id}", self.name).as_bytes())
    }

    /// The first identity that was asked for and is not that of the volume with this id.
    pub(super) fn refuses(&self, id: &str) -> Option<&Identity> {
        let is_it = |expected: &Identity| {
            expected.scheme == SCHEME && expected.value.eq_ignore_ascii_case(id)
        };
        self.expected.iter().find(|expected| !is_it(expected))
    }
}

/// The identity of a volume.
pub(super) fn identity(id: &str) -> Identity {
    Identity::new(SCHEME, id)
}

/// Reads the data, whatever their age.
pub(super) fn read(info: &ConnectionInfo) -> Result<Volume, AttachError> {
    let fields = Fields::of(info)?;
    let name = either(&fields, ["scale_io_volname", "scale_iovolname"], "scaleIO_volname")?
        .ok_or_else(|| invalid("scaleIO_volname", "is missing"))?;
    let id = either(&fields, ["scale_io_volume_id", "scale_iovolume_id"], "scaleIO_volume_id")?;
    if id.is_some_and(|id| !is_id(id)) {
        return Err(invalid("scaleIO_volume_id", "must have letters and digits only"));
    }
    let way = match text(&fields, "sdc_guid")? {
        Some(_) if id.is_none() => {
            return Err(invalid("scaleIO_volume_id", "is missing, and needed with sdc_guid"));
        }
        Some(guid) => Way::Mapped(guid.to_owned()),
        None => Way::Gateway(Box::new(access(info, &fields)?)),
    };
    Ok(Volume {
        name: name.to_owned(),
        id: id.map(str::to_ascii_lowercase),
        recorded: None,
        way,
        read_only: fields.read_only()?.unwrap_or(false),
        expected: fields.expected(info)?,
    })
}

/// The same of a record, which knows what was attached.
pub(super) fn of_record(record: &AttachRecord) -> Result<Volume, AttachError> {
    let known = record.attached.as_ref().and_then(Attached::identity);
    let known = known.filter(|identity| identity.scheme == SCHEME && is_id(&identity.value));
    let recorded = known.map(|identity| identity.value.to_ascii_lowercase());
    Ok(Volume { recorded, ..read(&record.info)? })
}

fn access(info: &ConnectionInfo, fields: &Fields) -> Result<Access, AttachError> {
    let need = |name: &str, called: &str| {
        let why = "is missing, and there is no sdc_guid either";
        text(fields, name)?.map(str::to_owned).ok_or_else(|| invalid(called, why))
    };
    let host = need("server_ip", "serverIP")?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(&host).to_owned();
    if !is_host(&bare) {
        return Err(invalid("serverIP", "must be an address or a host name"));
    }
    let user = need("server_username", "serverUsername")?;
    // What stands before the first colon of an HTTP login is the name.
    if user.contains(':') {
        return Err(invalid("serverUsername", "must not have a colon"));
    }
    let port = fields.number("server_port", 1..=65535)?.and_then(|port| u16::try_from(port).ok());
    let roots = text(fields, "certificate_path")?.map(PathBuf::from);
    if roots.as_ref().is_some_and(|path| !path.is_absolute()) {
        return Err(invalid("certificate_path", "must be an absolute path"));
    }
    let secret = |name: &str| info.secrets.get(name).filter(|s| !s.expose().is_empty()).cloned();
    Ok(Access {
        host: bare,
        port: port.unwrap_or(HTTPS),
        user,
        password: secret("server_password"),
        token: secret("server_token"),
        group: text(fields, "config_group")?.map(str::to_owned),
        failed_over: fields.flag("failed_over")?.unwrap_or(false),
        verify: fields.flag("verify_certificate")?.unwrap_or(true),
        roots,
        iops: fields.number("iops_limit", 0..=u64::from(u32::MAX))?,
        bandwidth: fields.number("bandwidth_limit", 0..=u64::from(u32::MAX))?,
    })
}

/// A text that is not empty.
fn text<'a>(fields: &'a Fields, name: &str) -> Result<Option<&'a str>, AttachError> {
    Ok(fields.text(name)?.map(str::trim).filter(|text| !text.is_empty()))
}

/// A field whose name has capitals that can be read in two ways.
fn either<'a>(
    fields: &'a Fields,
    names: [&str; 2],
    called: &str,
) -> Result<Option<&'a str>, AttachError> {
    match (text(fields, names[0])?, text(fields, names[1])?) {
        (Some(a), Some(b)) if a != b => Err(invalid(called, "is given twice and differs")),
        (a, b) => Ok(a.or(b)),
    }
}

/// An id becomes part of an address, and ends the name of a link.
pub(super) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_host(text: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let address = text.parse::<std::net::IpAddr>().is_ok();
    address || ((1..=253).contains(&text.len()) && text.chars().all(name))
}
