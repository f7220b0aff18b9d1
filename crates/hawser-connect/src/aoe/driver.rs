//! The driver's files: `/dev/etherd` and sysfs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::attach::{Attached, Identity};
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::DeviceEvents;
use serde::{Deserialize, Serialize};

use super::data::Target;
use super::error::AoeError;
use super::ident::{Ident, LENGTH};
use crate::shared::error::AttachError;
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// Where the driver has its files.
pub(super) const FOLDER: &str = "/dev/etherd";
/// How long a write to the driver may take; it sends a packet.
const WRITE: Duration = Duration::from_secs(10);
/// How long a working device may take to read a block.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// How long a device may take to go.
const REMOVAL: Duration = Duration::from_secs(30);
/// How long after a question a target's device may still turn up.
const LATE: Duration = Duration::from_secs(4);
/// `HDIO_GET_IDENTITY`: what the target answered to the last IDENTIFY DEVICE.
const GET_IDENTITY: u32 = 0x030d;

/// One target on this host.
pub(super) struct Driver<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) target: &'a Target,
}

/// What was done with a target here. The driver makes a device of everything that it hears of, so
/// only this tells what is attached from what is merely there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) read_only: bool,
    /// Who it was; unknown until it was seen.
    pub(super) identity: Option<Identity>,
}

impl Driver<'_> {
    /// True when the driver has a device, whether its target answers or not.
    pub(super) fn is_there(&self) -> Result<bool> {
        Ok(self.target.disk().attribute(self.host.files(), "dev")?.is_some())
    }

    /// True when the driver has a device, or gets one within the time that a target takes to answer
    /// a question that was asked already.
    pub(super) async fn turns_up(&self) -> Result<bool> {
        let mut events = self.host.events().subscribe();
        let there = wait::until(&mut *events, Deadline::after(LATE), async || {
            Ok(self.is_there()?.then_some(()))
        });
        Ok(there.await?.is_some())
    }

    /// True when the device can be used.
    pub(super) fn is_up(&self) -> Result<bool> {
        let (files, disk) = (self.host.files(), self.target.disk());
        let state = disk.attribute(files, "state")?.unwrap_or_default();
        let up = state.split(',').next() == Some("up");
        Ok(up && disk.size(files)? > 0 && disk.has_node(files)?)
    }

    /// Asks every target on the network who is there; the driver knows no narrower question for a
    /// target that it has not met.
    pub(super) async fn discover(&self) -> Result<()> {
        self.tell("discover", b"1", WRITE).await
    }

    /// Asks the target what it is now. The driver waits until it has a request to spare, and those
    /// that a target did not answer are sent again before they are: that takes seconds.
    pub(super) async fn revalidate(&self, limit: Duration) -> Result<()> {
        self.tell("revalidate", self.target.name().as_bytes(), limit).await
    }

    /// Makes the driver forget the device, and waits until it has. The name goes with a closing NUL:
    /// without one the driver takes it for the beginning of a name, and `e7.3` would take `e7.30`
    /// along; with a newline it means nothing at all.
    pub(super) async fn forget(&self, deadline: Deadline) -> Result<()> {
        let disk = self.target.disk();
        let mut events = self.host.events().subscribe();
        self.let_it_rest(&mut *events, deadline.within(LATE)).await?;
        let before = disk.attribute(self.host.files(), "diskseq")?;
        let name = format!("{}\0", self.target.name());
        let told = self.tell("flush", name.as_bytes(), WRITE).await;
        let deadline = deadline.within(if told.is_ok() { REMOVAL } else { Duration::ZERO });
        // A target that goes on answering is found again, as another disk of the same name.
        let gone = wait::until(&mut *events, deadline, async || {
            let now = disk.attribute(self.host.files(), "diskseq")?;
            Ok((!self.is_there()? || now != before).then_some(()))
        })
        .await?;
        match (gone, told) {
            (Some(()), _) => Ok(()),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => {
                let what = disk.node.display().to_string();
                Err(AttachError::NotRemoved { what, limit: REMOVAL }.into())
            }
        }
    }

    /// Waits until udev has read a device, and nothing that was asked of it is under way. The driver of
    /// Linux 6.12 waits for that with a lock held that the answers need: it stops for ever, and its
    /// processor with it.
    async fn let_it_rest(&self, events: &mut dyn DeviceEvents, deadline: Deadline) -> Result<()> {
        let (disk, files) = (self.target.disk(), self.host.files());
        let known = async || {
            let done = !self.is_there()? || disk.is_known_to_udev(files)?;
            Ok(done.then_some(()))
        };
        wait::until(&mut *events, deadline, known).await?;
        users::wait_for_udev(self.host, &disk, deadline).await?;
        let quiet = async || Ok(disk.is_quiet(files)?.then_some(()));
        wait::until(events, deadline, quiet).await.map(drop)
    }

    async fn tell(&self, file: &str, words: &[u8], limit: Duration) -> Result<()> {
        let path = Path::new(FOLDER).join(file);
        let told = self.host.files().write(&path, words, limit).await;
        let attempt = || format!("telling the AoE driver: {file} {}", self.target.name());
        told.map_err(|error| AttachError::kernel(attempt())(error).into())
    }

    /// Reads the first block through the device: an answer of the target itself.
    pub(super) async fn read_block(&self, limit: Duration) -> Result<()> {
        let disk = self.host.disks().open(&self.target.disk().node).await?;
        disk.read(0, 4096, limit).await.map(drop).map_err(Error::from)
    }

    /// Who the device is, as the target told the driver last.
    pub(super) async fn identity(&self) -> Result<Identity> {
        let node = self.target.disk().node;
        let asked = self.host.files().control(&node, GET_IDENTITY, vec![0; LENGTH], ANSWER).await;
        match asked {
            Ok(bytes) => {
                let told = Ident::parse(&bytes).identity();
                Ok(told.unwrap_or_else(|| self.target.address()))
            }
            Err(error) => Err(AoeError::NoIdentity { device: node, source: error.into() }.into()),
        }
    }

    /// Refuses a device that is not the one that is meant.
    pub(super) fn check(&self, found: &Identity) -> Result<(), AttachError> {
        let is = |expected: &&Identity| *expected == found || **expected == self.target.address();
        match self.target.expected.iter().find(|expected| !is(expected)) {
            None => Ok(()),
            Some(expected) => Err(AttachError::WrongIdentity {
                device: self.target.disk().node,
                expected: expected.clone(),
                found: found.to_string(),
            }),
        }
    }

    /// True when the block layer refuses writes.
    pub(super) fn is_read_only(&self) -> Result<bool> {
        let mode = self.target.disk().attribute(self.host.files(), "ro")?;
        Ok(mode.as_deref() == Some("1"))
    }

    /// What a caller is told.
    pub(super) fn describe(&self, identity: Identity) -> Result<Attached> {
        let disk = self.target.disk();
        let size = ByteSize::bytes(disk.size(self.host.files())?);
        Ok(Attached::Block { device: disk.node, identity: Some(identity), size })
    }

    fn note_file(&self) -> PathBuf {
        self.host.files().run_dir().join(format!("aoe-{}.json", self.target.name()))
    }

    /// What was noted; a note that cannot be read says only that there is one.
    pub(super) fn note(&self) -> Result<Option<Note>> {
        let bytes = self.host.files().read(&self.note_file())?;
        let unreadable = Note { read_only: false, identity: None };
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap_or(unreadable)))
    }

    /// Written before the act.
    pub(super) async fn write_note(&self, note: &Note) -> Result<()> {
        let bytes = serde_json::to_vec(note).unwrap_or_default();
        Ok(self.host.files().store(&self.note_file(), &bytes, 0o600).await?)
    }

    /// Removed after it; false when there was none.
    pub(super) async fn remove_note(&self) -> Result<bool> {
        if self.host.files().read(&self.note_file())?.is_none() {
            return Ok(false);
        }
        Ok(self.host.files().remove(&self.note_file()).await?)
    }
}
