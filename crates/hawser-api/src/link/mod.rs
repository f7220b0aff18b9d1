//! The node link: one protocol between the control half, the node half and programs on a host.
//!
//! Frames are JSON objects, one per line, over any stream. Both sides say hello with the versions
//! they speak and what they are; from then on either side sends calls, and answers come in any
//! order. Who opened the stream does not matter. `docs/node-link.md` describes it for people who
//! write the other side in another language.
//!
//! - [`serve_node`] answers calls for a node; [`Dialler`] keeps a node connected to its control half.
//! - [`UpstreamClient`] is the control half as its nodes see it, whichever link is up.
//! - [`Hub`] is the control half: every node that is connected, by id.
//! - [`NodeClient`] is a node at the other end of a stream.
//! - [`listen_for_nodes`] and [`listen_for_callers`] accept on Unix sockets, [`TlsListener`] on TCP
//!   with mutual TLS.
//!
//! Secrets of an attach or a grant travel beside its connection info, in the frame and nowhere else.

mod behind;
mod call;
mod client;
mod dial;
mod drive;
mod error;
mod frame;
mod hub;
mod library;
mod listen;
mod message;
mod options;
mod peer;
mod secrets;
mod serve;
mod tasks;
mod tls;
mod uplink;
mod upstream;

#[cfg(test)]
mod tests;

pub use client::NodeClient;
pub use dial::{Destination, DialOptions, Dialler, dial, dial_with};
pub use drive::KeepAlive;
pub use error::LinkError;
pub use frame::LARGEST_FRAME;
pub use hub::{Hub, NodeChange};
pub use listen::{Reception, listen_for_callers, listen_for_nodes};
pub use message::{Hello, OLDEST_VERSION, Role, VERSION, Versions};
pub use serve::serve_node;
pub use tls::{TlsError, TlsFiles, TlsLimits, TlsListener, TlsTarget};
pub use uplink::UpstreamClient;
