//! A driver on a real socket, over storage, control half and host in memory. The rows of csi-sanity
//! 5.5 that are named are those of the table of its cases.

mod attacks;
mod callers;
mod controller;
pub(crate) mod fake;
mod garbage;
mod groups;
mod identity;
pub(crate) mod inside;
mod life;
mod listing;
mod local;
mod node;
mod publishing;
mod rig;
mod secrets;
mod snapshots;
mod sockets;
mod staging;
