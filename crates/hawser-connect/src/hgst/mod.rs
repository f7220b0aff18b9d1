//! HGST: spaces of an HGST Solutions cluster, through the vendor's `vgc-cluster`.
//!
//! Data: `{"name": …, "noremovehost": …}`. The cluster knows hosts by names of its own: those of
//! `vgc-cluster domain-list -1`, of which the one that is this host (by its name, or by an address that
//! it is or leads to) is made an application host of the space; the disk is then `/dev/NAME`. A host that is named
//! by `noremovehost` keeps its space when it is detached. Follows os-brick 2 `hgst.py`.
//!
//! Needs the vendor's client. Proven against a simulator only.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Packages, Platform, Proof, Proofs,
};
use hawser_core::port::host::Tool;

use crate::properties::addresses;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::remote_fs::server;
use crate::shared::vendor::Client;
use crate::shared::wait::Deadline;

const PROGRAM: &str = "vgc-cluster";

/// How long the name of a host may take to become an address.
const LOOKUP_LIMIT: Duration = Duration::from_secs(3);

/// HGST's client; keeps nothing.
pub(crate) struct Hgst;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["HGST"],
    maturity: Maturity::Legacy,
    note: "through the vendor's vgc-cluster, which cannot be had; proven against a simulator of it",
    platforms: &[Platform::X86],
    abilities: Abilities { extend: false, multipath: None, encryption: true, reservation: false },
    proofs: Proofs::of(Proof::Simulator),
    own: &[],
    needs: &[
        Need::Root,
        Need::Program {
            name: PROGRAM,
            packages: Packages { apt: "", dnf: "", zypper: "", apk: "" },
        },
    ],
};

/// A space.
pub(crate) struct Space {
    name: String,
    keeps: Option<String>,
}

async fn run(host: &dyn Host, args: &[&str], deadline: Deadline) -> Result<String> {
    let tool = Tool::new(PROGRAM).args(args.iter().copied()).limit(deadline.left());
    let attempt = format!("running {PROGRAM} {}", args.join(" "));
    let output = host.run(&tool).await?;
    Ok(output.ok().map_err(AttachError::tool(attempt))?.stdout)
}

fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

/// The name that needs no question: our own, or an address of ours.
fn named<'a>(
    names: &[&'a str],
    hostname: &str,
    is_own: impl Fn(IpAddr) -> bool,
) -> Option<&'a str> {
    let exact = |name: &&&str| **name == hostname || name.parse().is_ok_and(&is_own);
    names.iter().find(exact).copied()
}

/// The name that begins like ours, unless two do.
fn alike<'a>(names: &[&'a str], hostname: &str) -> Option<&'a str> {
    let mut alike = names.iter().filter(|name| short(name) == short(hostname));
    match (alike.next(), alike.next()) {
        (Some(name), None) => Some(name),
        (_, _) => None,
    }
}

/// The name by which the cluster knows this host: one that leads to an address of it.
async fn own_name(host: &dyn Host, deadline: Deadline) -> Result<String> {
    let listed = run(host, &["domain-list", "-1"], deadline).await?;
    let hostname = host.facts().await?.hostname;
    let addresses = addresses::all(host.files())?;
    let names: Vec<&str> = listed.split_whitespace().collect();
    let is_own = |ip: IpAddr| addresses.contains(&ip);
    let mut found = named(&names, &hostname, is_own);
    for name in &names {
        if found.is_some() {
            break;
        }
        let led = server::addresses(name, deadline.within(LOOKUP_LIMIT)).await;
        let here = led.is_ok_and(|led| led.iter().any(|address| is_own(address.ip())));
        found = here.then_some(name);
    }
    let found = found.or_else(|| alike(&names, &hostname)).map(str::to_owned);
    found.ok_or_else(|| {
        AttachError::Missing {
            what: "this host in the HGST cluster".into(),
            advice: format!(
                "add it to the domain of the cluster; {PROGRAM} domain-list has others"
            ),
        }
        .into()
    })
}

fn node(space: &Space) -> PathBuf {
    Path::new("/dev").join(&space.name)
}

#[async_trait]
impl Client for Hgst {
    type Volume = Space;

    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn read(&self, _: &ConnectionInfo, fields: &Fields) -> Result<Space, AttachError> {
        let name = fields.need_text("name")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            return Err(invalid("name", "must have letters, digits, _ and - only"));
        }
        let keeps = fields.text("noremovehost")?.or(fields.text("no_remove_host")?);
        Ok(Space { name: name.to_owned(), keeps: keeps.map(str::to_owned) })
    }

    fn name(&self, space: &Space) -> String {
        space.name.clone()
    }

    async fn node(&self, _: &dyn Host, space: &Space) -> Result<Option<PathBuf>> {
        Ok(Some(node(space)))
    }

    async fn attach(&self, host: &dyn Host, space: &Space, deadline: Deadline) -> Result<()> {
        let own = own_name(host, deadline).await?;
        let args = ["space-set-apphosts", "-n", &space.name, "-A", &own, "--action", "ADD"];
        run(host, &args, deadline).await.map(drop)
    }

    async fn detach(&self, host: &dyn Host, space: &Space, deadline: Deadline) -> Result<bool> {
        let own = own_name(host, deadline).await?;
        if space.keeps.as_deref() == Some(own.as_str()) {
            return Ok(false);
        }
        let args = ["space-set-apphosts", "-n", &space.name, "-A", &own, "--action", "DELETE"];
        run(host, &args, deadline).await.map(|_| true)
    }
}
