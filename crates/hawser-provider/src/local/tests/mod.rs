//! The contract on a fake host, and what is special to local pools.

mod opening;
mod real;
mod removing;
mod rig;
mod volumes;

mod image {
    hawser_testkit::provider_contract!(super::rig::fake(super::super::PoolKind::Image));
}

mod folder {
    hawser_testkit::provider_contract!(super::rig::fake(super::super::PoolKind::Folder));
}
