//! The use cases of Hawser, over ports alone.
//!
//! [`control::Engine`] is the control half: it decides, journals and talks to storage systems.
//! [`node::NodeHalf`] is the node half: it acts on one host. They meet as [`hawser_core::port::Node`],
//! in process or across a link. Neither knows which store, provider, connector or host it has.

pub mod control;
pub mod node;
