//! The contract, over every shape of connection.

use hawser_testkit::connector_contract;
use hawser_testkit::fake_host::kernel::FindMultipaths;

connector_contract!(single, crate::iscsi::tests::single());
connector_contract!(with_chap, crate::iscsi::tests::with_chap());
connector_contract!(two_paths, crate::iscsi::tests::two_paths(FindMultipaths::Strict));
connector_contract!(discovered, crate::iscsi::tests::discovered());

/// Another target at another portal leads to the volume too, or to another one.
mod beside {
    use hawser_testkit::contract::connector::ConnectorRig;
    use hawser_testkit::fake_host::kernel::Lun;

    use super::*;
    use crate::iscsi::tests::{Storage, info, one_way, portals};

    fn beside(lun: fn(&Storage) -> Lun) -> ConnectorRig {
        let (mut rig, portals) = portals::beside(&[1], lun);
        rig.info = info(one_way(&portals[0]));
        rig
    }

    connector_contract!(same, super::beside(|storage| storage.volume.clone()));
    connector_contract!(another, super::beside(|storage| storage.other.clone()));
}
