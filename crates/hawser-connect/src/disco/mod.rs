//! DISCO: volumes of ITRI's DISCO, through the client that listens on this host.
//!
//! Data: `{"disco_id": …, "conf": {"server_ip": …, "server_port": …}}`. The disk is `/dev/dmsID`.
//! The client takes messages in network order: the length of what follows (24), 1 to attach or 2 to
//! detach, the id, and the text `DEFAULT-INSTID`; it answers four bytes, all zero when it is done.
//! A client that does not answer has not done it: that is an error. Follows os-brick 2
//! `disco.py`.
//!
//! Needs the vendor's client. Proven against a simulator only.

mod wire;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use async_trait::async_trait;
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Platform, Proof, Proofs,
};

use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::vendor::Client;
use crate::shared::wait::Deadline;

/// DISCO's client; keeps nothing.
pub(crate) struct Disco;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["DISCO"],
    maturity: Maturity::Legacy,
    note: "through the socket of the vendor's client, which cannot be had; proven against a \
           simulator of it",
    platforms: &[Platform::X86],
    abilities: Abilities { extend: false, multipath: None, encryption: true, reservation: false },
    proofs: Proofs::of(Proof::Simulator),
    own: &[],
    needs: &[Need::Root],
};

/// A volume and who brings it.
pub(crate) struct Volume {
    id: u64,
    client: SocketAddr,
}

#[async_trait]
impl Client for Disco {
    type Volume = Volume;

    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn read(&self, _: &ConnectionInfo, fields: &Fields) -> Result<Volume, AttachError> {
        let id = fields.need_number("disco_id", 0..=u64::MAX)?;
        let conf = fields.object("conf")?.ok_or_else(|| invalid("conf", "is missing"))?;
        let text = |snake, camel| Ok(conf.text(snake)?.or(conf.text(camel)?));
        let ip: Option<&str> = text("server_ip", "serverIp")?;
        let ip = ip.ok_or_else(|| invalid("server_ip", "is missing"))?;
        let ip: IpAddr = ip.parse().map_err(|_| invalid("server_ip", "must be an address"))?;
        let port = match conf.number("server_port", 1..=65535)? {
            Some(port) => port,
            None => conf.need_number("serverPort", 1..=65535)?,
        };
        let port = u16::try_from(port).map_err(|_| invalid("server_port", "is no port"))?;
        Ok(Volume { id, client: SocketAddr::new(ip, port) })
    }

    fn name(&self, volume: &Volume) -> String {
        format!("dms{}", volume.id)
    }

    async fn node(&self, _: &dyn Host, volume: &Volume) -> Result<Option<PathBuf>> {
        Ok(Some(PathBuf::from(format!("/dev/dms{}", volume.id))))
    }

    async fn attach(&self, _: &dyn Host, volume: &Volume, deadline: Deadline) -> Result<()> {
        Ok(wire::ask(volume.client, wire::ATTACH, volume.id, deadline).await?)
    }

    async fn detach(&self, _: &dyn Host, volume: &Volume, deadline: Deadline) -> Result<bool> {
        wire::ask(volume.client, wire::DETACH, volume.id, deadline).await?;
        Ok(true)
    }
}
