//! What of a volume is on this host, without changing anything.

use hawser_core::ByteSize;
use hawser_core::attach::{Attached, Identity};
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::data::{Target, Volume};
use super::notes::{Claim, Notes};
use super::session::Session;
use crate::shared::multipath::Map;
use crate::shared::scsi::{self, Route, ScsiDisk, Verdict};

/// A disk at the place of a volume.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) target: Target,
    pub(super) session: Session,
    pub(super) disk: ScsiDisk,
}

/// Every way to a volume that this host knows of: those that were given, those that were found when
/// it was attached, and, where only one was given, those of sessions with the same target. One that was
/// only tried may lead to anybody's volume.
pub(super) fn ways(host: &dyn Host, volume: &Volume, claims: &[Claim]) -> Result<Vec<Target>> {
    let mut ways = volume.targets.clone();
    let mut add = |target: Target| {
        if !ways.contains(&target) {
            ways.push(target);
        }
    };
    let found = claims.iter().filter(|claim| claim.wwid.is_some());
    found.map(|claim| claim.target.clone()).for_each(&mut add);
    if let (true, Some(given)) = (volume.discover, volume.targets.first()) {
        for session in Session::named(host.files(), |iqn| iqn == given.iqn)? {
            if session.transport == given.transport {
                add(Target { portal: session.portal, ..given.clone() });
            }
        }
    }
    Ok(ways)
}

/// The disks at the place of a volume, whatever they are.
pub(super) fn disks(host: &dyn Host, ways: &[Target]) -> Result<Vec<Found>> {
    let files = host.files();
    let sessions = Session::named(files, |iqn| ways.iter().any(|way| way.iqn == iqn))?;
    let mut found: Vec<Found> = Vec::new();
    for target in ways {
        for session in sessions.iter().filter(|session| session.leads_to(target)) {
            if let Some(disk) = session.route(target.lun).disk(files)?
                && !found.iter().any(|found| found.disk == disk)
            {
                found.push(Found { target: target.clone(), session: session.clone(), disk });
            }
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
    let claims = Notes::claims(host, &volume.key)?;
    let ways = ways(host, volume, &claims)?;
    let mut wrong = None;
    for Found { disk, .. } in disks(host, &ways)? {
        match scsi::judge(host, &disk, &volume.expected).await? {
            Verdict::Ours(names) => {
                let map = Map::above(host.files(), &disk.disk)?;
                let top = map.as_ref().map_or(&disk.disk, |map| &map.disk);
                return Ok(Some(Attached::Block {
                    device: top.node.clone(),
                    identity: Some(scsi::told(&names, given)),
                    size: ByteSize::bytes(top.size(host.files())?),
                }));
            }
            Verdict::Other(names) | Verdict::Reused { is: names, .. } => {
                let refused = scsi::refusal(&disk, &names, &volume.expected);
                wrong.get_or_insert(refused);
            }
        }
    }
    match wrong {
        Some(wrong) => Err(wrong),
        None => Ok(None),
    }
}
