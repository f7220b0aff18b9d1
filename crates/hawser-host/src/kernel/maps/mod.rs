//! Device maps, and the daemon that makes those of several paths.
//!
//! Maps: `linux/dm-ioctl.h`, through `/dev/mapper/control`. The daemon: the socket of multipathd as
//! `libmpathcmd` of multipath-tools speaks it.

mod multipathd;
mod request;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{KernelError, KernelResult, MapTarget, Maps};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use self::request::Request;
use super::{call, no_answer};
use crate::sys::dm::{self, DmCommand, layout};
use crate::workers::Workers;

const CONTROL: &str = "/dev/mapper/control";
/// Enough for the table of a map with a hundred paths; larger ones are asked for again.
const FIRST_BUFFER: usize = 16 << 10;
const MOST_BUFFER: usize = 16 << 20;

/// Device mapper and multipathd of this machine.
#[derive(Debug)]
pub(crate) struct LinuxMaps {
    workers: Workers,
    limit: Duration,
}

impl LinuxMaps {
    pub(crate) fn new(workers: Workers, limit: Duration) -> Self {
        Self { workers, limit }
    }

    async fn targets(&self, what: &str, name: &str, flags: u32) -> KernelResult<Vec<MapTarget>> {
        let attempt = format!("reading the {what} of map {name}");
        let request = Request::new(name, flags);
        let answer = call(&self.workers, &*attempt, self.limit, move || {
            let mut length = FIRST_BUFFER;
            loop {
                let mut buffer = request?.buffer(length);
                send(DmCommand::TableStatus, &mut buffer)?;
                if !request::is_cut_short(&buffer) {
                    return Ok(buffer);
                }
                length *= 4;
                if length > MOST_BUFFER {
                    return Err(Errno::TOOBIG);
                }
            }
        })
        .await?;
        request::targets(&answer).map_err(|why| KernelError::Nonsense { attempt, why: why.into() })
    }
}

/// Hands a request to the kernel. Blocks.
fn send(command: DmCommand, buffer: &mut [u8]) -> Result<(), Errno> {
    let control = open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dm::send(control, command, buffer)
}

#[async_trait]
impl Maps for LinuxMaps {
    async fn status(&self, name: &str) -> KernelResult<Vec<MapTarget>> {
        // A status that flushes first would wait for as long as the map queues.
        self.targets("status", name, layout::FLAG_NO_FLUSH).await
    }

    async fn table(&self, name: &str) -> KernelResult<Vec<MapTarget>> {
        self.targets("table", name, layout::FLAG_TABLE | layout::FLAG_NO_FLUSH).await
    }

    async fn message(&self, name: &str, text: &str) -> KernelResult<()> {
        let attempt = format!("sending {text} to map {name}");
        let request = Request::new(name, 0).and_then(|request| request.message(text));
        call(&self.workers, attempt, self.limit, move || {
            send(DmCommand::TargetMessage, &mut request?)
        })
        .await
    }

    async fn remove(&self, name: &str) -> KernelResult<()> {
        let request = Request::new(name, 0);
        call(&self.workers, format!("removing map {name}"), self.limit, move || {
            send(DmCommand::Remove, &mut request?.buffer(layout::HEADER))
        })
        .await
    }

    async fn multipathd(&self, command: &str, limit: Duration) -> KernelResult<String> {
        let attempt = format!("asking multipathd to {command}");
        let (command, words) = (command.to_owned(), attempt.clone());
        let asked = self.workers.run("a question to multipathd", limit, move || {
            multipathd::ask(&command, limit, words)
        });
        asked.await.unwrap_or_else(|error| Err(no_answer(attempt, error)))
    }
}
