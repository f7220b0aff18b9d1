//! The use cases of Hawser, over ports alone.

pub mod node;
