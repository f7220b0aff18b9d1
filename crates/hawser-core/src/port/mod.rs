//! The seams between the layers: one trait per file, its contract in its doc.

pub mod connector;
pub mod control;
pub mod host;
pub mod kernel;
pub mod library;
pub mod node;
pub mod pools;
pub mod progress;
pub mod provider;
pub mod registry;
pub mod store;
pub mod upstream;

pub use connector::Connector;
pub use control::Control;
pub use host::Host;
pub use library::Library;
pub use node::{Node, Nodes};
pub use pools::Pools;
pub use progress::Progress;
pub use provider::Provider;
pub use registry::Registry;
pub use store::Store;
pub use upstream::Upstream;
