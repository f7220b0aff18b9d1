//! Ids that follow from a name.
//!
//! CSI gives a name to one volume and never to another, and asks for a volume by that name until it
//! is told the id. So the id is a hash of the name, and the record itself is what reserves the name:
//! one write less for each volume, which counts where the store is an API server.

use sha2::{Digest, Sha256};

use hawser_core::id::{GroupId, SnapshotId, VolumeId};
use hawser_core::name::{Alias, Scope};

/// What a new object is called: by its name where its world has ids like that, else anew.
pub(crate) trait Named {
    fn named(alias: &Alias) -> Self;
}

const VOLUME: &str = "volume";
const SNAPSHOT: &str = "snapshot";
const GROUP: &str = "group";

impl Named for VolumeId {
    fn named(alias: &Alias) -> Self {
        bits(VOLUME, alias).map_or_else(Self::generate, Self::from_bits)
    }
}

impl Named for SnapshotId {
    fn named(alias: &Alias) -> Self {
        bits(SNAPSHOT, alias).map_or_else(Self::generate, Self::from_bits)
    }
}

impl Named for GroupId {
    fn named(alias: &Alias) -> Self {
        bits(GROUP, alias).map_or_else(Self::generate, Self::from_bits)
    }
}

/// The id that a name leads to without being written down.
pub(crate) fn of_name(of: &str, alias: &Alias) -> Option<String> {
    let bits = bits(of, alias)?;
    match of {
        VOLUME => Some(VolumeId::from_bits(bits).into()),
        SNAPSHOT => Some(SnapshotId::from_bits(bits).into()),
        GROUP => Some(GroupId::from_bits(bits).into()),
        _ => None,
    }
}

fn bits(of: &str, alias: &Alias) -> Option<u128> {
    if alias.scope() != Scope::Csi {
        return None;
    }
    let mut hash = Sha256::new();
    hash.update(of.as_bytes());
    hash.update([0]);
    hash.update(alias.name().as_bytes());
    let first = hash.finalize()[..16].try_into().ok()?;
    Some(u128::from_be_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csi(name: &str) -> Alias {
        Alias::new(Scope::Csi, name).unwrap()
    }

    #[test]
    fn a_csi_name_always_leads_to_one_id_and_two_names_to_two() {
        let id = VolumeId::named(&csi("pvc-1"));

        assert_eq!(VolumeId::named(&csi("pvc-1")), id);
        assert_ne!(VolumeId::named(&csi("pvc-2")), id);
        assert_eq!(of_name("volume", &csi("pvc-1")), Some(id.to_string()));
        assert_ne!(of_name("snapshot", &csi("pvc-1")).unwrap()[5..], id.as_str()[4..]);
    }

    #[test]
    fn names_of_people_can_be_given_again() {
        let name = Alias::native("data").unwrap();

        assert_ne!(VolumeId::named(&name), VolumeId::named(&name));
        assert_eq!(of_name("volume", &name), None);
    }
}
