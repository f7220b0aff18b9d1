//! The words and the ports of Hawser.
//!
//! Every other crate speaks in these types. A value that exists is valid: names, ids and sizes are
//! checked when they are made, so nothing below a front end checks them again. The traits in
//! [`port`] are the seams between the layers; each states its contract, and every implementation
//! passes the matching suite of `hawser-testkit`.
//!
//! This crate does no I/O and knows no runtime, no transport and no implementation.

pub mod attach;
pub mod change;
pub mod class;
pub mod connection;
pub mod doctor;
mod embedded_secret;
pub mod error;
pub mod event;
pub mod filesystem;
pub mod group;
pub mod id;
pub mod name;
pub mod node;
pub mod operation;
pub mod page;
pub mod place;
pub mod port;
pub mod publication;
pub mod reason;
pub mod secret;
pub mod size;
pub mod snapshot;
pub mod volume;

pub use change::Change;
pub use error::{Classify, Error, Kind, Outcome, Result};
pub use jiff::Timestamp;
pub use reason::Reason;
pub use size::ByteSize;
