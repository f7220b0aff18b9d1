//! Attachments, over an API server and a control half in memory.

mod attaching;
mod detaching;
mod drifting;
mod rig;
mod rules;
