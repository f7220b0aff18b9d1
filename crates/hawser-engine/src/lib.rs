//! The use cases of Hawser, over ports alone.
//!
//! [`control::Engine`] is the control half: it decides, journals and talks to storage systems. The
//! node half, which acts on one host, lives with the connectors in `hawser-connect`. They meet as
//! [`hawser_core::port::Node`], in process or across a link. The control half does not know which
//! store, provider or node it has.

pub mod control;
