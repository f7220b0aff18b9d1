//! Connector properties: what this host tells a storage system of itself.
//!
//! Read from files alone, without a helper program. The one change it makes is to create the NVMe
//! host name and host id where they are missing, as every NVMe tool does. The keys are those of
//! os-brick 7 `get_connector_properties`; `platform` and `os_type` have the constants of the
//! library, `machine` what `uname -m` says.

pub(crate) mod addresses;
mod system;

use std::path::Path;
use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::connector::Platform;
use hawser_core::port::kernel::Files;
use hawser_core::port::library::PropertiesRequest;
use hawser_core::{Kind, Reason};
use serde_json::{Map, Value, json};

use crate::scaleio;
use crate::shared::nvme_host;

/// A daemon that does not answer such a question in this time answers none.
const MULTIPATHD_LIMIT: Duration = Duration::from_secs(2);

/// Reads them all.
pub(crate) async fn read(
    host: &dyn Host,
    wanted: &PropertiesRequest,
    protocols: Vec<&'static str>,
) -> Result<Map<String, Value>> {
    let facts = host.facts().await?;
    let files = host.files();
    let platform = Platform::of(&facts.machine);
    check(wanted, platform)?;
    let addresses = addresses::all(files)?;
    let own = addresses.first().map_or_else(|| "127.0.0.1".to_owned(), ToString::to_string);

    let mut all = Map::new();
    let mut put = |key: &str, value: Value| all.insert(key.to_owned(), value);
    put("platform", json!(platform.as_str()));
    put("machine", json!(facts.machine));
    put("os_type", json!("LINUX"));
    put("ip", json!(wanted.ip.clone().unwrap_or(own)));
    put("host", json!(wanted.host.clone().unwrap_or_else(|| facts.hostname.clone())));
    put("multipath", json!(wanted.multipath || wanted.enforce_multipath));
    put("enforce_multipath", json!(wanted.enforce_multipath));
    put("do_local_attach", json!(wanted.do_local_attach));
    put("kernel", json!(facts.kernel));
    put("boot_id", json!(facts.boot_id));
    put("protocols", json!(protocols));
    put("multipathd", json!(multipathd_answers(host).await));
    put("nvme_native_multipath", json!(nvme_native_multipath(files)?));
    put("host_ips", json!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>()));
    if let Some(name) = initiator(files)? {
        put("initiator", json!(name));
    }
    let ports = fc_ports(files)?;
    if !ports.is_empty() {
        let (wwpns, mut wwnns): (Vec<_>, Vec<_>) = ports.into_iter().unzip();
        wwnns.dedup();
        put("wwpns", json!(wwpns));
        put("wwnns", json!(wwnns));
    }
    if let Some(guid) = scaleio::own_guid(host).await {
        put("sdc_guid", json!(guid));
    }
    let system = system::uuid(files, platform)?;
    if let Some(uuid) = &system {
        put("system uuid", json!(uuid));
        put("system_uuid", json!(uuid));
    }
    if let Some(uuid) = system::root_filesystem_uuid(host).await? {
        put("uuid", json!(uuid));
    }
    if let Some(nvme) = nvme_host::read_or_create(host, system.as_deref()).await? {
        if let Some(warning) = nvme.warning(system.as_deref()) {
            put("warnings", json!([warning]));
        }
        put("nqn", json!(nvme.nqn));
        put("nvme_hostid", json!(nvme.id));
    }
    Ok(if wanted.camel_case { camel(all) } else { all })
}

/// The machine's own UUID, where its firmware tells one.
pub(crate) async fn system_uuid(host: &dyn Host) -> Result<Option<String>> {
    let platform = Platform::of(&host.facts().await?.machine);
    system::uuid(host.files(), platform)
}

/// Refuses platforms and systems that this is not.
fn check(wanted: &PropertiesRequest, platform: Platform) -> Result<()> {
    let refuse = |message: String| {
        let error = Error::new(Kind::Unsupported, message);
        Err(error.with_reason(Some(Reason::UnsupportedProtocol)))
    };
    match wanted.os_type.as_deref().map(str::to_ascii_uppercase).as_deref() {
        None | Some("LINUX" | "ALL") => {}
        Some("WIN") => {
            return refuse(
                "the operating system WIN is not supported: Hawser runs on Linux only".into(),
            );
        }
        Some(other) => {
            return refuse(format!(
                "the operating system {other:?} is not known; expected LINUX or ALL"
            ));
        }
    }
    match wanted.platform.as_deref().map(str::to_ascii_uppercase).as_deref() {
        None | Some("ALL") => Ok(()),
        Some(name) if name == platform.as_str() => Ok(()),
        Some(name @ ("X86" | "S390" | "PPC64")) => {
            refuse(format!("this host is {}, not {name}", platform.as_str()))
        }
        Some(other) => {
            refuse(format!("the platform {other:?} is not known; expected X86, S390, PPC64 or ALL"))
        }
    }
}

/// The name by which iSCSI targets know this host.
pub(crate) fn initiator(files: &dyn Files) -> Result<Option<String>> {
    let text = match files.read_text(Path::new("/etc/iscsi/initiatorname.iscsi")) {
        Ok(text) => text,
        // Readable by root only, and properties are for everyone.
        Err(error) if error.errno() == Some(13) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(text.and_then(|text| initiator_name(&text).map(str::to_owned)))
}

fn initiator_name(text: &str) -> Option<&str> {
    let mut names = text.lines().filter_map(|line| line.trim().strip_prefix("InitiatorName="));
    names.next().map(str::trim).filter(|name| !name.is_empty())
}

/// Port and node names of every Fibre Channel port that is online.
fn fc_ports(files: &dyn Files) -> Result<Vec<(String, String)>> {
    let folder = Path::new("/sys/class/fc_host");
    let mut ports = Vec::new();
    for host in files.list(folder)? {
        let read = |name: &str| files.read_text(&folder.join(&host).join(name));
        if read("port_state")?.as_deref() != Some("Online") {
            continue;
        }
        let bare = |text: String| text.trim_start_matches("0x").to_ascii_lowercase();
        if let (Some(port), Some(node)) = (read("port_name")?, read("node_name")?) {
            ports.push((bare(port), bare(node)));
        }
    }
    Ok(ports)
}

fn nvme_native_multipath(files: &dyn Files) -> Result<bool> {
    let file = Path::new("/sys/module/nvme_core/parameters/multipath");
    Ok(files.read_text(file)?.as_deref() == Some("Y"))
}

/// True when several paths can become one device here.
async fn multipathd_answers(host: &dyn Host) -> bool {
    host.maps().multipathd("show daemon", MULTIPATHD_LIMIT).await.is_ok()
}

/// `os_type` becomes `osType`; the one key with a blank stays.
fn camel(all: Map<String, Value>) -> Map<String, Value> {
    let key = |snake: String| {
        let mut parts = snake.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |mut camel, part| {
            let mut chars = part.chars();
            camel.extend(chars.next().map(|c| c.to_ascii_uppercase()));
            camel.push_str(chars.as_str());
            camel
        })
    };
    all.into_iter().map(|(name, value)| (key(name), value)).collect()
}

#[cfg(test)]
mod tests;
