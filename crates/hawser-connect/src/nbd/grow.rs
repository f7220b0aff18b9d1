//! Making a device as large as its export.
//!
//! Telling the kernel a new size is not enough: most servers fix the size of an export for each
//! connection and refuse what lies beyond on connections that are older. So the last block is read,
//! and where that fails, the device gets new connections. What was under way on the old ones is sent
//! again when the time of a request is over.

use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::{ByteSize, Outcome};

use super::connect::ANSWER;
use super::data::Target;
use super::device::Device;
use super::dial;
use super::error::NbdError;
use super::links::{self, Link, Notes};
use crate::shared::error::AttachError;
use crate::shared::wait::{self, Deadline};

/// How long growing may take.
pub(super) const RESIZE: Duration = Duration::from_secs(30);

/// How often new connections are tried. The kernel takes them only in the place of dead ones, and
/// may not have seen yet that those before are.
const TRIES: usize = 3;

/// One device to grow.
pub(super) struct Grow<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) target: &'a Target,
    pub(super) device: &'a Device,
}

impl Grow<'_> {
    /// Makes the device as large as the export and answers its size. Never shrinks.
    pub(super) async fn run(&self) -> Result<ByteSize> {
        let deadline = Deadline::after(RESIZE);
        let export = dial::learn(self.target, deadline).await?.size;
        let files = self.host.files();
        let size = self.device.disk.size(files)?;
        let block = self.device.block_size(files)?;
        let wanted = export / block * block;
        if wanted < size {
            let device = self.device.disk.node.clone();
            return Err(NbdError::Shrunk { device, export, size }.into());
        }
        if wanted == size {
            return Ok(ByteSize::bytes(size));
        }
        let noted = Notes::of(self.host, self.target).read()?;
        // One block is read on one connection, and proves nothing of others.
        if noted.len() <= 1 {
            self.set_size(wanted, deadline).await?;
            match self.read_last(wanted, ANSWER).await {
                Ok(()) => return Ok(ByteSize::bytes(wanted)),
                Err(source) if noted.is_empty() => {
                    return Err(self.give_up(export, size, source, deadline).await);
                }
                Err(_) => self.set_size(size, deadline).await?,
            }
        }
        self.reconnect(noted, export, wanted, deadline).await
    }

    /// Ends the connections that do not see the new size, and makes others.
    async fn reconnect(
        &self,
        noted: Vec<Link>,
        export: u64,
        wanted: u64,
        deadline: Deadline,
    ) -> Result<ByteSize> {
        let size = self.device.disk.size(self.host.files())?;
        let node = self.device.disk.node.display();
        let attempt = format!("ending the connections of {node}, which do not see the new size");
        if let Err(error) = links::end(noted.clone()).await {
            let source = Error::from_source(hawser_core::Kind::Unsupported, error).context(attempt);
            return Err(self.give_up(export, size, source, deadline).await);
        }
        let mut last = None;
        for _ in 0..TRIES {
            match self.try_new(noted.len(), wanted, deadline).await {
                Ok(()) => return Ok(ByteSize::bytes(wanted)),
                Err(error) => last = Some(error),
            }
        }
        let source = last.unwrap_or_else(|| {
            AttachError::Deadline { attempt: attempt.clone(), limit: RESIZE }.into()
        });
        // The device has lost its connections by now: `connect` gives it new ones, `extend` too.
        let back = self.set_size(size, deadline).await;
        let error = source.context(attempt).with_outcome(Outcome::Unknown);
        match back {
            Ok(()) => Err(error),
            Err(back) => Err(error.context(format!("giving {node} its size back: {back}"))),
        }
    }

    async fn try_new(&self, count: usize, wanted: u64, deadline: Deadline) -> Result<()> {
        let dialled = dial::links(self.target, count, deadline).await?;
        let exported = dialled.export.size;
        if exported < wanted {
            let device = self.device.disk.node.clone();
            return Err(NbdError::Shrunk { device, export: exported, size: wanted }.into());
        }
        Notes::of(self.host, self.target).write(dialled.links).await?;
        let attempt = format!("giving {} new connections", self.device.disk.node.display());
        let given = self.host.nbd().reconfigure(self.device.index, wanted, dialled.sockets).await;
        given.map_err(AttachError::kernel(attempt))?;
        self.wait_for_size(wanted, deadline).await?;
        self.read_last(wanted, deadline.within(ANSWER).left()).await
    }

    async fn set_size(&self, size: u64, deadline: Deadline) -> Result<()> {
        let attempt = format!("resizing {}", self.device.disk.node.display());
        let told = self.host.nbd().reconfigure(self.device.index, size, Vec::new()).await;
        told.map_err(AttachError::kernel(attempt))?;
        self.wait_for_size(size, deadline).await
    }

    async fn wait_for_size(&self, size: u64, deadline: Deadline) -> Result<()> {
        let mut events = self.host.events().subscribe();
        let seen = wait::until(&mut *events, deadline, async || {
            Ok((self.device.disk.size(self.host.files())? == size).then_some(()))
        })
        .await?;
        seen.ok_or_else(|| {
            let attempt = format!("resizing {}", self.device.disk.node.display());
            AttachError::Deadline { attempt, limit: deadline.limit() }.into()
        })
    }

    async fn read_last(&self, size: u64, limit: Duration) -> Result<()> {
        self.device.read_block(self.host, size.saturating_sub(1), limit).await
    }

    /// Leaves the device as it was, and says why.
    async fn give_up(&self, export: u64, size: u64, source: Error, deadline: Deadline) -> Error {
        if let Err(back) = self.set_size(size, deadline).await {
            return back.with_outcome(Outcome::Unknown);
        }
        let (server, device) = (self.target.place.to_string(), self.device.disk.node.clone());
        NbdError::OldConnections { server, device, export, size, source }.into()
    }
}
