//! The contract, over every shape of connection.

use hawser_testkit::connector_contract;
use hawser_testkit::fake_host::kernel::FindMultipaths;

connector_contract!(single, crate::iscsi::tests::single());
connector_contract!(with_chap, crate::iscsi::tests::with_chap());
connector_contract!(two_paths, crate::iscsi::tests::two_paths(FindMultipaths::Strict));
connector_contract!(discovered, crate::iscsi::tests::discovered());
