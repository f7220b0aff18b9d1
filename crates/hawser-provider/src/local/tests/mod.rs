//! The contract on a fake host, and what is special to local pools.

mod opening;
mod placing;
mod real;
mod removing;
pub(crate) mod rig;
mod volumes;

mod image {
    hawser_testkit::provider_contract!(super::rig::fake(super::super::PoolKind::Image));
}

mod folder {
    hawser_testkit::provider_contract!(super::rig::fake(super::super::PoolKind::Folder));
}

mod on_a_node {
    hawser_testkit::provider_contract!(super::rig::on_node(super::super::PoolKind::Image));
}
