//! Attaching an export, and finding it attached.

use std::time::Duration;

use hawser_core::attach::Attached;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::NbdAttach;
use hawser_core::port::registry::LockGuard;
use hawser_core::{Change, Outcome};

use super::data::Target;
use super::device::{self, Device};
use super::dial::{self, Dialled};
use super::error::NbdError;
use super::handshake::Export;
use super::links::{self, Link, Notes};
use super::wire;
use crate::shared::error::AttachError;
use crate::shared::locks;
use crate::shared::modules;
use crate::shared::wait::{self, Deadline};

/// How long a working device may take to read a block.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// How long a new device may take to appear and to answer.
const READY: Duration = Duration::from_secs(10);
/// How long taking back may take, whatever the deadline says.
const UNDO: Duration = Duration::from_secs(10);

/// One attach.
pub(super) struct Connect<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) target: &'a Target,
    pub(super) read_only: bool,
    pub(super) deadline: Deadline,
}

/// Waits for the export's lock, which keeps every other work on it away.
pub(super) async fn lock(
    host: &dyn Host,
    target: &Target,
    deadline: Deadline,
) -> Result<Box<dyn LockGuard>> {
    locks::alone(host, &target.lock(), &target.uri(), deadline).await
}

impl Connect<'_> {
    /// Attaches the export, or finds it attached and working.
    pub(super) async fn run(&self) -> Result<Change<Attached>> {
        modules::need(self.host, "nbd").await?;
        let _lock = lock(self.host, self.target, self.deadline).await?;
        let found = device::find(self.host.files(), self.target)?;
        if let Some(device) = found.ours.first() {
            return self.keep(device).await.map(Change::Already);
        }
        if let Some(other) = found.others.into_iter().next() {
            let (device, backend) = (other.disk.node, other.backend);
            return Err(NbdError::Taken { device, backend }.into());
        }
        let count = self.target.connections;
        let dialled = dial::links(self.target, count, self.deadline).await?;
        self.make(dialled).await
    }

    /// A device that is there: it must be as it was asked for, and answer on every connection.
    async fn keep(&self, device: &Device) -> Result<Attached> {
        let files = self.host.files();
        if device.is_read_only(files)? != self.read_only {
            let (device, read_only) = (device.disk.node.clone(), self.read_only);
            return Err(NbdError::OtherMode { device, read_only }.into());
        }
        let limit = self.deadline.within(ANSWER).left();
        if let Some(wrong) = complaint(self.host, self.target, device, limit).await? {
            tracing::warn!(
                device = %device.disk.node.display(), wrong,
                "a network block device gets new connections"
            );
            renew(self.host, self.target, device, self.deadline).await?;
        }
        device.describe(files, self.target)
    }

    async fn make(&self, dialled: Dialled) -> Result<Change<Attached>> {
        let export = dialled.export;
        let block_size = self.block_size(&export)?;
        if export.read_only() && !self.read_only {
            return Err(AttachError::ReadOnly { device: self.target.uri().into() }.into());
        }
        let mut flags = export.flags | wire::HAS_FLAGS;
        if self.read_only {
            flags |= wire::READ_ONLY;
        }
        let attach = NbdAttach {
            sockets: dialled.sockets,
            size: export.size / u64::from(block_size) * u64::from(block_size),
            block_size,
            server_flags: u64::from(flags),
            timeout: self.target.timeout,
            dead_connection_timeout: self.target.dead_timeout,
            backend: self.target.backend(),
        };
        let notes = Notes::of(self.host, self.target);
        let before = notes.read()?;
        let made = match notes.write(dialled.links).await {
            Ok(()) => self.host.nbd().attach(attach).await.map_err(|error| {
                let attempt = format!("making a network block device of {}", self.target.uri());
                Error::from(AttachError::kernel(attempt)(error))
            }),
            Err(error) => Err(error),
        };
        let index = match made {
            Ok(index) => index,
            Err(error) => return Err(self.undo(None, error).await),
        };
        let found = device::find(self.host.files(), self.target).map(|found| found.ours);
        if let Some(first) = found.iter().flatten().find(|device| device.index != index) {
            return self.give_way(index, first, before).await.map(Change::Already);
        }
        match self.ready(index, &export).await {
            Ok(attached) => Ok(Change::Made(attached)),
            Err(error) => Err(self.undo(Some(index), error).await),
        }
    }

    /// An attach whose caller gave it up came through while this one was at work: one export has one
    /// device, and that is the first.
    async fn give_way(&self, index: u32, first: &Device, links: Vec<Link>) -> Result<Attached> {
        if let Some(second) = Device::of_index(self.host.files(), index)? {
            second.take_away(self.host, Deadline::after(UNDO)).await?;
        }
        Notes::of(self.host, self.target).write(links).await?;
        self.keep(first).await
    }

    /// The logical block size: the least that both sides can, so that it is the same each time.
    fn block_size(&self, export: &Export) -> Result<u32, NbdError> {
        let least = export.least_block.max(1).checked_next_power_of_two();
        let least = least.map(|least| least.max(512));
        let wanted = self.target.block_size.or(least).unwrap_or(u32::MAX);
        match least {
            Some(least) if (least..=4096).contains(&wanted) => Ok(wanted),
            Some(_) | None => Err(NbdError::Blocks {
                server: self.target.place.to_string(),
                export: self.target.export.clone(),
                least: export.least_block,
                wanted: wanted.min(4096),
            }),
        }
    }

    /// Waits until a new device can be used, and checks that it is the one that was asked for.
    async fn ready(&self, index: u32, export: &Export) -> Result<Attached> {
        let files = self.host.files();
        let Some(device) = Device::of_index(files, index)? else {
            let name = format!("nbd{index}");
            return Err(NbdError::NoBackend { device: format!("/dev/{name}").into(), name }.into());
        };
        if device.backend != self.target.backend() {
            return Err(NbdError::OtherIdentity {
                target: device.disk.node.display().to_string(),
                expected: self.target.identity(),
                found: hawser_core::attach::Identity::new("nbd", device.backend),
            }
            .into());
        }
        let mut events = self.host.events().subscribe();
        let there = wait::until(&mut *events, self.deadline.within(READY), async || {
            let there = device.disk.size(files)? > 0 && device.disk.has_node(files)?;
            Ok(there.then_some(()))
        })
        .await?;
        if there.is_none() {
            let attempt = format!("waiting for {}", device.disk.node.display());
            return Err(AttachError::Deadline { attempt, limit: READY }.into());
        }
        self.limit_requests(&device, export).await?;
        if self.read_only && !device.is_read_only(files)? {
            self.host.disks().set_read_only(&device.disk.node, true).await?;
        }
        if !self.read_only && device.is_read_only(files)? {
            return Err(AttachError::ReadOnly { device: device.disk.node }.into());
        }
        let answer = device.read_block(self.host, 0, self.deadline.within(READY).left()).await;
        if let Err(source) = answer {
            let device = device.disk.node;
            return Err(NbdError::Dead { device, renewed: false, source }.into());
        }
        device.describe(files, self.target)
    }

    /// Keeps requests as short as the server wants them.
    async fn limit_requests(&self, device: &Device, export: &Export) -> Result<()> {
        // Not below a page, which the kernel would refuse: an export that is shorter has no longer
        // requests.
        let most = u64::from(export.longest_request / 1024).max(4);
        let file = device.disk.folder().join("queue/max_sectors_kb");
        let now = self.host.files().read_text(&file)?.and_then(|text| text.parse::<u64>().ok());
        if now.is_none_or(|now| now <= most) {
            return Ok(());
        }
        let limit = self.deadline.within(ANSWER).left();
        Ok(self.host.files().write(&file, most.to_string().as_bytes(), limit).await?)
    }

    /// Takes away what a failed attach made, and answers its error with what is known now. There
    /// was no device of this export before, and the lock is still held: one that is there is ours.
    async fn undo(&self, index: Option<u32>, error: Error) -> Error {
        let deadline = Deadline::after(UNDO);
        let mut made = match device::find(self.host.files(), self.target) {
            Ok(found) => found.ours,
            Err(_) => return error.with_outcome(Outcome::Unknown),
        };
        if let Some(index) = index
            && made.is_empty()
        {
            // A kernel that tells no backend: the number is from this very call.
            let disk = crate::shared::users::Whole::new(format!("nbd{index}"));
            made.push(Device { index, disk, backend: self.target.backend() });
        }
        let nothing = made.is_empty();
        for device in made {
            if let Err(undo) = device.take_away(self.host, deadline).await {
                let (device, undo) = (device.disk.node, undo.sentence());
                return NbdError::Undo { device, undo, source: error }.into();
            }
        }
        if Notes::of(self.host, self.target).remove().await.is_err() {
            return error.with_outcome(Outcome::Unknown);
        }
        if nothing { error } else { error.with_outcome(Outcome::RolledBack) }
    }
}

/// Gives a device new connections for its dead ones; its users go on where they wait.
pub(super) async fn renew(
    host: &dyn Host,
    target: &Target,
    device: &Device,
    deadline: Deadline,
) -> Result<()> {
    let notes = Notes::of(host, target);
    let noted = notes.read()?;
    let mut kept = match links::alive(noted.clone()).await {
        Some(alive) => living(&noted, &alive),
        // Then nobody knows which are dead: the kernel takes as many as it needs.
        None => Vec::new(),
    };
    let count = noted.len().max(target.connections) - kept.len();
    let dialled = dial::links(target, count.max(1), deadline).await?;
    let node = || device.disk.node.clone();
    let size = device.disk.size(host.files())?;
    let exported = dialled.export.size;
    if exported < size {
        return Err(NbdError::Shrunk { device: node(), export: exported, size }.into());
    }
    kept.extend(dialled.links);
    notes.write(kept).await?;
    let attempt = format!("giving {} new connections", device.disk.node.display());
    // With the size as it is: the kernel changes a size only when nothing is under way, and what is
    // under way waits for connections.
    let renewed = host.nbd().reconfigure(device.index, size, dialled.sockets).await;
    renewed.map_err(AttachError::kernel(attempt))?;
    let answer = device.read_block(host, 0, deadline.within(READY).left()).await;
    answer.map_err(|source| NbdError::Dead { device: node(), renewed: true, source }.into())
}

/// What is wrong with a device in use, in words: it does not answer, or not on every connection.
pub(super) async fn complaint(
    host: &dyn Host,
    target: &Target,
    device: &Device,
    limit: Duration,
) -> Result<Option<String>> {
    if let Err(error) = device.read_block(host, 0, limit).await {
        return Ok(Some(format!("it does not answer ({})", error.sentence())));
    }
    let noted = Notes::of(host, target).read()?;
    let Some(alive) = links::alive(noted.clone()).await else { return Ok(None) };
    let dead = noted.len() - living(&noted, &alive).len();
    Ok((dead > 0).then(|| format!("{dead} of its {} connections are dead", noted.len())))
}

fn living(links: &[Link], alive: &[bool]) -> Vec<Link> {
    links.iter().zip(alive).filter(|(_, alive)| **alive).map(|(link, _)| *link).collect()
}
