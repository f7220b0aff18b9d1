//! What a namespace says of itself, on the wire and in sysfs.

use std::path::PathBuf;

use hawser_core::ByteSize;
use uuid::Uuid;

use crate::fake_host::kernel::{Lun, Tree};

/// The ids of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// UUID.
    pub uuid: Option<Uuid>,
    /// NGUID.
    pub nguid: Option<u128>,
    /// EUI64.
    pub eui: Option<u64>,
}

/// A namespace with a UUID and blocks of 512 bytes.
pub fn namespace(uuid: &str, size: ByteSize) -> Lun {
    let uuid = Uuid::parse_str(uuid).expect("a UUID");
    namespace_with(&Ids { uuid: Some(uuid), ..Ids::default() }, 9, size)
}

/// A namespace with these ids and blocks of two to the power of `exponent` bytes, in the second of
/// two formats.
pub fn namespace_with(ids: &Ids, exponent: u8, size: ByteSize) -> Lun {
    let lun = Lun::new(size);
    let mut identify = vec![0; 4096];
    identify[25] = 1;
    identify[26] = 1;
    identify[128 + 2] = 9;
    identify[132 + 2] = exponent;
    identify[104..120].copy_from_slice(&ids.nguid.unwrap_or(0).to_be_bytes());
    identify[120..128].copy_from_slice(&ids.eui.unwrap_or(0).to_be_bytes());
    lun.set_identify(identify);
    let mut list = Vec::new();
    let mut add = |kind: u8, id: &[u8]| {
        list.extend([kind, u8::try_from(id.len()).expect("an id is short"), 0, 0]);
        list.extend(id);
    };
    if let Some(eui) = ids.eui {
        add(1, &eui.to_be_bytes());
    }
    if let Some(nguid) = ids.nguid {
        add(2, &nguid.to_be_bytes());
    }
    if let Some(uuid) = ids.uuid {
        add(3, uuid.as_bytes());
    }
    list.resize(4096, 0);
    lun.set_descriptors(list);
    lun
}

pub(super) fn ids_of(lun: &Lun) -> Ids {
    let list = lun.descriptors().unwrap_or_default();
    let mut ids = Ids::default();
    let mut rest = list.as_slice();
    while let [kind, length, _, _, more @ ..] = rest {
        if *length == 0 {
            break;
        }
        let (id, after) = more.split_at(usize::from(*length));
        match kind {
            1 => ids.eui = id.try_into().ok().map(u64::from_be_bytes),
            2 => ids.nguid = id.try_into().ok().map(u128::from_be_bytes),
            3 => ids.uuid = Uuid::from_slice(id).ok(),
            _ => {}
        }
        rest = after;
    }
    ids
}

pub(super) fn wwid(ids: &Ids) -> String {
    match (ids.uuid, ids.nguid, ids.eui) {
        (Some(uuid), _, _) => format!("uuid.{uuid}"),
        (None, Some(nguid), _) => format!("eui.{nguid:032x}"),
        (None, None, Some(eui)) => format!("eui.{eui:016x}"),
        (None, None, None) => "nvme.0000-00-00-00000001".into(),
    }
}

pub(super) fn show_ids(tree: &mut Tree, name: &str, nsid: u64, ids: &Ids) {
    let at = PathBuf::from(format!("/sys/block/{name}"));
    tree.value(at.join("wwid"), wwid(ids)).value(at.join("nsid"), nsid);
    let nguid = ids.nguid.map(Uuid::from_u128);
    if let Some(uuid) = ids.uuid.or(nguid) {
        tree.value(at.join("uuid"), uuid);
    }
    if let Some(nguid) = nguid {
        tree.value(at.join("nguid"), nguid);
    }
    if let Some(eui) = ids.eui {
        let bytes = eui.to_be_bytes().map(|byte| format!("{byte:02x}")).join(" ");
        tree.value(at.join("eui"), bytes);
    }
}
