//! LUKS and reservations above a device, on a real kernel and a real target.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_layers/luks.rs"]
mod luks;
#[path = "vm_layers/reserve.rs"]
mod reserve;

use std::time::Duration;

use hawser_live::lab::guest::library::{Host, device, info};

const LIMIT: Duration = Duration::from_secs(60);
/// Where the targets are reached.
const PORTALS: [&str; 2] = ["127.0.1.1:3260", "127.0.1.2:3260"];

/// What becomes a map: every SCSI disk, also with one path. Without a path it does as `no_path` says.
fn maps(no_path: &str) -> String {
    format!(
        "defaults {{\n find_multipaths no\n polling_interval 1\n user_friendly_names no\n}}\n\
         overrides {{\n no_path_retry {no_path}\n}}\n\
         blacklist {{\n devnode \"^(vd|loop|dm-|ram)\"\n}}\n"
    )
}
