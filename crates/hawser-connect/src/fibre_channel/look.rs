//! What of a volume is on this host, without changing anything.

use std::fmt;
use std::path::Path;

use hawser_core::ByteSize;
use hawser_core::attach::{Attached, Identity};
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::data::{Port, Volume};
use super::fabric::{Adapter, Remote};
use crate::shared::multipath::Map;
use crate::shared::scsi::{self, Address, Place, Route, ScsiDisk, Verdict};

/// One way to a volume: a port of ours, and one of the storage system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) adapter: Adapter,
    pub(super) port: Port,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} behind {}", self.port.wwpn, self.adapter.wwpn)
    }
}

impl Way {
    /// The port of the storage system, where ours sees it.
    pub(super) fn remote(&self, files: &dyn Files) -> Result<Option<Remote>> {
        Remote::find(files, self.adapter.number, self.port.wwpn)
    }

    /// True when the volume can be reached over it now.
    pub(super) fn is_up(&self, files: &dyn Files) -> Result<bool> {
        let remote = self.remote(files)?;
        Ok(self.adapter.is_online() && remote.is_some_and(|remote| remote.is_online()))
    }

    /// Why the volume cannot be reached over it.
    pub(super) fn why_down(&self, files: &dyn Files) -> Result<String> {
        Ok(match self.remote(files)? {
            _ if !self.adapter.is_online() => {
                format!("the port {} is {}", self.adapter.wwpn, self.adapter.state())
            }
            Some(remote) => format!("the port {self} is {}", remote.state),
            None => format!("the port {} does not see {}", self.adapter.wwpn, self.port.wwpn),
        })
    }
}

impl Route for Way {
    fn place(&self, files: &dyn Files) -> Result<Option<Place>> {
        let remote = self.remote(files)?.filter(Remote::is_online);
        Ok(remote.map(|remote| Place {
            host: self.adapter.number,
            channel: Some(remote.channel),
            target: Some(remote.target),
            lun: self.port.lun.kernel(),
        }))
    }

    fn address(&self, files: &dyn Files) -> Result<Option<Address>> {
        let Some(Remote { channel, target, .. }) = self.remote(files)? else { return Ok(None) };
        let (host, lun) = (self.adapter.number, self.port.lun.kernel());
        let address = Address { host, channel, target, lun };
        let device = format!("/sys/class/scsi_device/{address}");
        Ok(files.resolve(Path::new(&device))?.map(|_| address))
    }
}

/// Every way to a volume that there can be on this host, up or not.
pub(super) fn ways(files: &dyn Files, volume: &Volume) -> Result<Vec<Way>> {
    let mut ways = Vec::new();
    for adapter in Adapter::list(files)? {
        for port in volume.ports_for(adapter.wwpn) {
            ways.push(Way { adapter: adapter.clone(), port: *port });
        }
    }
    Ok(ways)
}

/// A disk at the place of a volume.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) way: Way,
    pub(super) disk: ScsiDisk,
}

/// The disks at the place of a volume, whatever they are.
pub(super) fn disks(files: &dyn Files, ways: &[Way]) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for way in ways {
        if let Some(disk) = way.disk(files)? {
            found.push(Found { way: way.clone(), disk });
        }
    }
    Ok(found)
}

/// The device of a volume, as its user has it.
pub(super) async fn attached(
    host: &dyn Host,
    volume: &Volume,
    given: Option<&Identity>,
) -> Result<Option<Attached>> {
    let files = host.files();
    let mut wrong = None;
    for Found { disk, .. } in disks(files, &ways(files, volume)?)? {
        match scsi::judge(host, &disk, &volume.expected).await? {
            Verdict::Ours(names) => {
                let map = Map::above(files, &disk.disk)?;
                let top = map.as_ref().map_or(&disk.disk, |map| &map.disk);
                return Ok(Some(Attached::Block {
                    device: top.node.clone(),
                    identity: Some(scsi::told(&names, given)),
                    size: ByteSize::bytes(top.size(files)?),
                }));
            }
            Verdict::Other(names) | Verdict::Reused { is: names, .. } => {
                wrong.get_or_insert(scsi::refusal(&disk, &names, &volume.expected));
            }
        }
    }
    match wrong {
        Some(wrong) => Err(wrong),
        None => Ok(None),
    }
}
