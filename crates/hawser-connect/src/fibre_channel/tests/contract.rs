//! The contract, over every kind of machine and connection.

use hawser_testkit::connector_contract;

connector_contract!(single, crate::fibre_channel::tests::single());
connector_contract!(two_paths, crate::fibre_channel::tests::two_paths());
connector_contract!(s390x_with_units, crate::fibre_channel::tests::s390x(false));
connector_contract!(s390x_with_npiv, crate::fibre_channel::tests::s390x(true));
connector_contract!(ppc64, crate::fibre_channel::tests::ppc64());
