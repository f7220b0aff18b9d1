//! What goes wrong in the middle, over iSCSI: programs that are killed, daemons that stop, and many
//! attaches at once. Whatever happens, the next call finishes the job, and nothing is left.
//!
//! Each test prints how many faults it tried and counts what was left. How programs are killed between
//! two steps is said in `hawser_live::lab::guest::faults`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_faults/daemons.rs"]
mod daemons;
#[path = "vm_faults/kills.rs"]
mod kills;
#[path = "vm_faults/many.rs"]
mod many;
