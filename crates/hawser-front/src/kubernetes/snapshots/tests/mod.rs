//! Contents against an API server, a driver and storage in memory.

mod contents;
mod decisions;
mod groups;
mod removal;
mod rig;
