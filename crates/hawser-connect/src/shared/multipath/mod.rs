//! Several paths to one volume as one device: device-mapper maps, and multipathd, which makes them
//! and looks after them.
//!
//! What is there is found in the kernel: a map is a `dm-` device whose uuid begins with `mpath-`,
//! never just any holder of a path, which may be LUKS or LVM. multipathd is asked through its
//! socket; `multipath` itself runs only to write its file of remembered volumes, which has a lock
//! that only it knows.
//!
//! The steps of an attach are [`join`]; those of a detach are [`refuse_used`], a flush of the map
//! ([`flush`](super::flush)), [`remove`], the removal of the paths, and [`forgotten`].

mod daemon;
mod forget;
mod grow;
mod join;
mod map;
mod remove;
mod status;
mod stop_waiting;
#[cfg(test)]
mod tests;
mod wwids;

pub(crate) use daemon::{is_running, reload};
pub(crate) use forget::forgotten;
pub(crate) use grow::grow;
pub(crate) use join::{Join, clear_leftover};
pub(crate) use map::Map;
pub(crate) use remove::{refuse_used, remove};
pub(crate) use stop_waiting::stop_waiting;
pub(crate) use wwids::forget_wwid;
