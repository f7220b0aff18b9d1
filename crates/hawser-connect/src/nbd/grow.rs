//! Making a device as large as its export.
//!
//! Telling the kernel a new size is not enough: most servers fix the size of an export for each
//! connection and refuse what lies beyond on connections that are older. So the device gets new
//! connections first, where they can be ended, and the last block is read in any case. What was
//! under way on the old ones is sent again when the time of a request is over.

use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::{ByteSize, Outcome};

use super::connect::{ANSWER, complaint, renew};
use super::data::Target;
use super::device::Device;
use super::dial;
use super::error::NbdError;
use super::links::{self, Link, Notes};
use crate::shared::error::AttachError;
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// How long growing may take, beside the time of a request that was under way.
pub(super) const RESIZE: Duration = Duration::from_secs(30);

/// How often it is looked for a moment in which nothing is under way.
const LOOKS: usize = 200;

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
        let deadline = Deadline::after(RESIZE + self.target.timeout);
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
        if !noted.is_empty() {
            self.reconnect(noted, export, size, deadline).await?;
        }
        self.set_size(wanted, deadline).await?;
        match self.read_last(wanted).await {
            Ok(()) => Ok(ByteSize::bytes(wanted)),
            Err(source) => Err(self.give_up(export, size, source, deadline).await),
        }
    }

    /// Ends the connections, which may know the old size only, and makes others.
    async fn reconnect(
        &self,
        noted: Vec<Link>,
        export: u64,
        size: u64,
        deadline: Deadline,
    ) -> Result<()> {
        let (server, device) = (self.target.place.to_string(), self.device.disk.node.clone());
        self.find_quiet_moment(deadline).await?;
        if let Err(error) = links::end(noted.clone()).await {
            let source = Error::from_source(hawser_core::Kind::Unsupported, error);
            return Err(NbdError::OldConnections { server, device, export, size, source }.into());
        }
        let mut wrong = None;
        for _ in 0..TRIES {
            let renewed = renew(self.host, self.target, self.device, deadline).await;
            let found = match renewed {
                Ok(()) => complaint(self.host, self.target, self.device, ANSWER).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(None) => return Ok(()),
                Ok(Some(why)) => wrong = Some(Error::new(hawser_core::Kind::Unavailable, why)),
                Err(error) => wrong = Some(error),
            }
        }
        // The device may have no connection now: `connect` gives it new ones, and `extend` does too.
        let attempt = format!("making new connections for {}", device.display());
        let late = || AttachError::Deadline { attempt: attempt.clone(), limit: RESIZE }.into();
        Err(wrong.unwrap_or_else(late).context(attempt.clone()).with_outcome(Outcome::Unknown))
    }

    /// A request that is under way when its connection ends waits for its whole time before it is
    /// sent again. Where there is a moment without any, that is the moment.
    async fn find_quiet_moment(&self, deadline: Deadline) -> Result<()> {
        users::wait_for_udev(self.host, &self.device.disk, deadline).await?;
        for _ in 0..LOOKS {
            if self.device.disk.is_quiet(self.host.files())? {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
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

    async fn read_last(&self, size: u64) -> Result<()> {
        self.device.read_block(self.host, size.saturating_sub(1), ANSWER).await
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
