//! Writing out what is cached, before a volume of one or several paths goes.
//!
//! The traps, all seen on real kernels:
//! - a map without a path that keeps what is written to it lets a flush sleep for ever, and no
//!   signal ends it: so the paths are counted first, and the flush has a deadline;
//! - once such a map is told to fail instead, what waited is thrown away, and removing the map
//!   answers success all the same: so only the flush of a descriptor that was open before counts;
//! - paths below a map are not flushed: their map's flush is enough, and a dead one would fail.

use std::path::Path;
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::error::AttachError;
use super::multipath::{Map, stop_waiting};
use super::release::{FLUSH_LIMIT, Failures};
use super::users::Whole;
use super::wait::{self, Deadline};

/// How long multipathd may take to notice that a path works again: a round of its checker.
const NOTICE_LIMIT: Duration = Duration::from_secs(6);

/// How long what waited may take to fail, once it may not wait any more.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(10);

/// The device that was given to the user.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Top<'a> {
    /// One path.
    Disk(&'a Whole),
    /// A map of several.
    Map(&'a Map),
    /// What stands on such a map, by its node: the clear side of an encrypted volume.
    Above(&'a Path, &'a Map),
}

/// Writes out what is cached for a volume. Without force any failure ends the detach with nothing
/// changed. With force it goes on: a map stops waiting for a path, and what could not be written is
/// reported as lost.
pub(crate) async fn flush(
    host: &dyn Host,
    top: Top<'_>,
    force: bool,
    failures: &mut Failures<'_>,
    deadline: Deadline,
) -> Result<()> {
    let (device, map) = match top {
        Top::Disk(disk) => return failures.flush(host, &disk.node, deadline).await,
        Top::Map(map) => (map.disk.node.clone(), map),
        Top::Above(node, map) => (node.to_path_buf(), map),
    };
    let has_path = has_path(host, map, deadline).await?;
    if !has_path && !force {
        return failures.take(AttachError::NoPath { device });
    }
    // Opened before anything is given up: errors are told to each opening once.
    let opened = host.disks().open(&device).await;
    let disk = match opened {
        Ok(disk) => disk,
        Err(source) if force => return failures.take(AttachError::Lost { device, source }),
        Err(source) => return failures.take(AttachError::Flush { device, source }),
    };
    if !has_path {
        stop_waiting(host, map, deadline).await;
    }
    // A forced detach has more to do after a flush that hangs.
    let share = if force { deadline.left() / 2 } else { deadline.left() };
    let flushed = disk.flush(share.min(FLUSH_LIMIT)).await;
    let flushed = match flushed {
        Err(KernelError::Late { .. }) if force => {
            stop_waiting(host, map, deadline).await;
            // The same flush, which ends now.
            disk.flush(GIVE_UP_LIMIT).await
        }
        flushed => flushed,
    };
    match flushed {
        Ok(()) => Ok(()),
        Err(source) if force => failures.take(AttachError::Lost { device, source }),
        Err(source) => failures.take(AttachError::Flush { device, source }),
    }
}

/// True when a path of the map works. Where the map has given up all of them but one runs, it is
/// waited for: the map hears of it from multipathd, which asks its paths now and then only.
async fn has_path(host: &dyn Host, map: &Map, deadline: Deadline) -> Result<bool> {
    let mut events = host.events().subscribe();
    let limit = deadline.within(NOTICE_LIMIT);
    loop {
        if map.usable(host).await? > 0 {
            return Ok(true);
        }
        if !any_runs(host, map)? || !wait::again(&mut *events, limit).await {
            return Ok(false);
        }
    }
}

/// True when the kernel could send to a device below the map.
fn any_runs(host: &dyn Host, map: &Map) -> Result<bool> {
    for path in map.paths(host.files())? {
        let state = Whole::new(path).attribute(host.files(), "device/state")?;
        // In the words of SCSI and of NVMe.
        if matches!(state.as_deref(), Some("running" | "live")) {
            return Ok(true);
        }
    }
    Ok(false)
}
