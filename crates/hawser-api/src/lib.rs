//! Wire formats and the clients that speak them.
//!
//! [`rest`] is the JSON of the native REST API: one file per resource, each with the conversions
//! from and to the words of `hawser-core`, and the OpenAPI schemas derived from the same types.
//! [`client`] implements the `Control` port over that API, so a caller does not see whether the
//! engine is in its process or behind a socket. [`link`] is what the two halves of Hawser say to
//! each other. `csi`, a feature, is the protocol of the Container Storage Interface.

pub mod client;
#[cfg(feature = "csi")]
pub mod csi;
pub mod link;
pub mod rest;

pub use client::{Endpoint, RestClient};
