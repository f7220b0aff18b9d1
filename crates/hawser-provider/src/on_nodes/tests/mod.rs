//! The contract over a node with a local pool, and what is special to storage on several nodes.

mod forwarding;
mod placing;
mod rig;

mod image {
    hawser_testkit::provider_contract!(super::rig::one_node(crate::local::PoolKind::Image));
}

mod folder {
    hawser_testkit::provider_contract!(super::rig::one_node(crate::local::PoolKind::Folder));
}
