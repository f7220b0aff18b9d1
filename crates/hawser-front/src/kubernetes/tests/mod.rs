//! The front end against an API server in memory.

pub(in crate::kubernetes) mod desk;
pub(in crate::kubernetes) mod fake;
mod garbage;
pub(in crate::kubernetes) mod rig;
