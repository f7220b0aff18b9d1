//! Whether a request asks for what a publication already has on this host.

use hawser_core::Result;
use hawser_core::attach::{AttachRecord, Encryption, EncryptionFormat, Multipath, SingleWriter};
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Connector;
use hawser_core::port::node::AttachWork;
use serde_json::Value;

use super::error::NodeError;
use crate::shared::canonical;
use crate::shared::fields::Fields;

/// The work with what its data asks for beside the options, whatever the protocol.
pub(super) fn with_wishes(work: &AttachWork) -> Result<AttachWork> {
    let mut work = work.clone();
    if Fields::of(&work.info)?.flag("enforce_multipath")? == Some(true) {
        work.attach.multipath = Multipath::Enforced;
    }
    Ok(work)
}

/// The work as it goes on from what is there; refused where it differs.
///
/// Whoever has the device goes on using it as it is. So what decides what he gets, or who else may
/// write, must be the same. More paths may be asked for; a wish for fewer takes none away.
pub(super) fn continued(
    connector: &dyn Connector,
    record: &AttachRecord,
    work: AttachWork,
    boot_id: &str,
) -> Result<AttachWork> {
    // Nothing of an earlier boot is left to differ from, but the volume stays what it was.
    let of_this_boot = record.boot_id == boot_id;
    refuse_difference(connector, record, &work, of_this_boot)?;
    if !of_this_boot {
        return Ok(work);
    }
    let AttachWork { publication, volume, info, mut attach } = work;
    attach.multipath = attach.multipath.max(record.attach.multipath);
    // In the words in which it was attached: names of what is there may be made of them.
    let ConnectionInfo { secrets, identity, .. } = info;
    let info = ConnectionInfo { secrets, identity, ..record.info.clone() };
    Ok(AttachWork { publication, volume, info, attach })
}

/// Refuses work on what is attached otherwise, with both values.
pub(super) fn refuse_difference(
    connector: &dyn Connector,
    record: &AttachRecord,
    work: &AttachWork,
    of_this_boot: bool,
) -> Result<()> {
    match difference(connector, record, work, of_this_boot)? {
        None => Ok(()),
        Some((what, there, wanted)) => {
            let publication = record.publication.clone();
            Err(NodeError::AttachedOtherwise { publication, what, there, wanted }.into())
        }
    }
}

/// What differs, with both values.
type Difference = (&'static str, String, String);

fn difference(
    connector: &dyn Connector,
    record: &AttachRecord,
    work: &AttachWork,
    of_this_boot: bool,
) -> Result<Option<Difference>> {
    if record.volume != work.volume {
        return Ok(Some(("volume", record.volume.to_string(), work.volume.to_string())));
    }
    if !of_this_boot {
        return Ok(None);
    }
    let (there, wanted) = (&record.info, &work.info);
    if there.protocol != wanted.protocol {
        return Ok(Some(("protocol", there.protocol.to_string(), wanted.protocol.to_string())));
    }
    if there.data != wanted.data
        && canonical::fields(connector, there)? != canonical::fields(connector, wanted)?
    {
        let text = |info: &ConnectionInfo| Value::Object(info.data.clone()).to_string();
        return Ok(Some(("data", text(there), text(wanted))));
    }
    let (there, wanted) = (&record.attach, &work.attach);
    let compared = [
        ("access", access(there.read_only), access(wanted.read_only)),
        ("encryption", encryption(&there.encryption), encryption(&wanted.encryption)),
        ("reservation", reservation(&there.reservation), reservation(&wanted.reservation)),
    ];
    Ok(compared.into_iter().find(|(_, there, wanted)| there != wanted))
}

fn access(read_only: bool) -> String {
    if read_only { "read-only" } else { "writable" }.to_owned()
}

/// Of how the header is made only the first attach knows.
fn encryption(encryption: &Option<Encryption>) -> String {
    let Some(Encryption { format, discards, .. }) = encryption else { return "none".to_owned() };
    let format = match format {
        EncryptionFormat::Luks => "luks",
        EncryptionFormat::Luks2 => "luks2",
    };
    format!("{format}{}", if *discards { " with discards" } else { "" })
}

/// How others were thrown out is over.
fn reservation(reservation: &Option<SingleWriter>) -> String {
    reservation.map_or_else(|| "none".to_owned(), |writer| format!("key {:#x}", writer.key))
}
