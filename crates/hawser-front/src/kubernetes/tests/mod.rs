//! The front end against an API server in memory.

pub(in crate::kubernetes) mod desk;
pub(in crate::kubernetes) mod fake;
pub(in crate::kubernetes) mod rig;
