//! One suite per port: each rule is a named test that every implementation runs.

pub mod connector;
pub mod host;
pub mod provider;
pub mod registry;
pub mod store;
