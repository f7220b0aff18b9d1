//! Disconnect: flush, then drop the controllers that nobody needs any more.
//!
//! A namespace itself is taken away by the target. As long as a controller stays for other volumes,
//! so does the device, until the target takes the namespace from this host.

use std::path::PathBuf;
use std::time::Duration;

use hawser_core::Change;
use hawser_core::attach::{AttachRecord, Attached, Detach};
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::book::{self, Book};
use super::connect::pinned;
use super::data::Target;
use super::device::{self, Device};
use super::fabrics;
use super::release::{self, Unseen, Which};
use super::sight::{self, Sight, Truth};
use super::sysfs::Namespace;
use crate::shared::error::AttachError;
use crate::shared::flush;
use crate::shared::multipath;
use crate::shared::release::Failures;
use crate::shared::users::Whole;
use crate::shared::wait::{self, Deadline};

/// How long the kernel may take for controllers that come or go already.
const SETTLE_LIMIT: Duration = Duration::from_secs(6);

/// Detaches one namespace.
pub(super) async fn disconnect(
    host: &dyn Host,
    target: &Target,
    record: &AttachRecord,
    detach: &Detach,
) -> Result<Change<()>> {
    let key = target.wanted.key.clone();
    let attached = record.attached.as_ref().and_then(Attached::identity);
    let known: Vec<_> = target.wanted.named.iter().chain(attached).collect();
    let claim = book::peek(host, &target.nqn, &key)?.filter(|claim| claim.is_of(&known));
    let target = pinned(target, claim.as_ref());
    let mut leave = Leave {
        host,
        target: &target,
        detach,
        deadline: Deadline::after(detach.deadline),
        failures: Failures::new(detach),
    };
    // Without a claim nothing here is ours, whatever can be seen; but a controller that a connect
    // began and did not live to see is taken away.
    let mut free = Vec::new();
    if claim.is_some() {
        let found = leave.look().await?;
        leave.all(&found).await?;
        free.extend(found.into_iter().map(|namespace| namespace.device));
    }
    let mut book = Book::open(host, &target.nqn, leave.deadline).await?;
    let ours = book.claim(&key).is_some_and(|claim| claim.is_of(&known));
    let claimed = ours && book.drop_claim(&key);
    let deleted = leave.drop_controllers(&mut book, &free).await?;
    for device in &free {
        leave.settle(device, claim.as_ref().is_some_and(|claim| claim.read_only)).await?;
    }
    // Claims go with a reboot, and what multipathd remembers does not.
    let mut forgotten = false;
    if claimed || Sight::of(host, &target.nqn, &target.wanted)?.found.is_empty() {
        forgotten = leave.forget().await?;
    }
    book.save().await?;
    drop(book);
    if !claimed && !forgotten && deleted == 0 && leave.failures.is_empty() {
        return Ok(Change::Already(()));
    }
    leave.failures.answer(&format!("detaching {} of {}", target.wanted, target.nqn))
}

/// One disconnect.
struct Leave<'a> {
    host: &'a dyn Host,
    target: &'a Target,
    detach: &'a Detach,
    deadline: Deadline,
    failures: Failures<'a>,
}

impl Leave<'_> {
    /// The namespaces that are the volume's. Of an attach or a detach that was cut off the kernel goes
    /// on with the rest: what comes or goes is waited for, since it is no volume without a way. Who
    /// uses force waits for what goes alone.
    async fn look(&self) -> Result<Vec<Namespace>> {
        let seen = || {
            let mut found = Sight::of(self.host, &self.target.nqn, &self.target.wanted)?.found;
            found.retain(|namespace| self.target.wanted.refuses(&namespace.ids).is_none());
            Result::Ok(found)
        };
        let mut events = self.host.events().subscribe();
        let limit = self.deadline.within(SETTLE_LIMIT);
        let moves = |found: &Namespace| match self.detach.force {
            true => found.leaves(),
            false => !found.works(),
        };
        let settled = async || Ok(Some(seen()?).filter(|all| !all.iter().any(moves)));
        match wait::until(&mut *events, limit, settled).await? {
            Some(found) => Ok(found),
            // What is lost stays so, and is told of as it is.
            None => seen(),
        }
    }

    /// Writes out every device of the volume, and takes a map of them away.
    async fn all(&mut self, found: &[Namespace]) -> Result<()> {
        let mut done: Option<String> = None;
        for namespace in found {
            let device = device::of(self.host.files(), namespace)?;
            // Several namespaces below one map are written out with it.
            if device.map.is_some() && done.as_ref() == Some(&device.disk().name) {
                continue;
            }
            done = Some(device.disk().name.clone());
            self.write_out(found, namespace, &device).await?;
            if let Some(map) = &device.map {
                let removed = multipath::remove(self.host, map, self.deadline).await;
                removed.or_else(|failure| self.failures.take(failure))?;
            }
        }
        Ok(())
    }

    /// Refuses a device that is in use, and writes out what is cached for it.
    async fn write_out(
        &mut self,
        found: &[Namespace],
        namespace: &Namespace,
        device: &Device,
    ) -> Result<()> {
        let node = device.disk().node.clone();
        let below = if device.map.is_some() { found } else { std::slice::from_ref(namespace) };
        // Without a way every reader hangs, udev first of all; that is no use of the device.
        let stuck = !below.iter().any(Namespace::works);
        device.refuse_used(self.host, self.detach.force || stuck, self.deadline).await?;
        if stuck && device.map.is_none() {
            return self.failures.take(match self.detach.force {
                true => lost(node, below),
                false => AttachError::NoPath { device: node },
            });
        }
        for each in below.iter().filter(|each| each.works()) {
            let Truth::Other(ids) = sight::ask(self.host, each).await? else { continue };
            // Whatever is cached belongs to a volume that is no longer there, and must not be
            // written over the one that is. The kernel drops the device when it looks again.
            for way in &each.ways {
                fabrics::rescan(self.host, &way.controller).await;
            }
            if let (true, Some(expected)) = (self.detach.force, each.ids.strongest()) {
                let (device, found) = (node, ids.words());
                self.failures.take(AttachError::WrongIdentity { device, expected, found })?;
            }
            return Ok(());
        }
        let (host, force) = (self.host, self.detach.force);
        flush::flush(host, device.top(), force, &mut self.failures, self.deadline).await
    }

    /// Drops what we made, once no volume needs the subsystem; answers how many are gone.
    async fn drop_controllers(&mut self, book: &mut Book<'_>, free: &[String]) -> Result<usize> {
        if book.is_claimed() {
            return Ok(0);
        }
        let which = Which { nqn: &self.target.nqn, free, unseen: Unseen::Await };
        match release::controllers(self.host, book, &which, |_| true, self.deadline).await {
            Ok(released) => Ok(released.deleted),
            Err(failure) => {
                self.failures.take(failure)?;
                Ok(0)
            }
        }
    }

    /// Makes multipathd forget what it was told to remember for this volume; true when it was.
    async fn forget(&mut self) -> Result<bool> {
        let Some(wwid) = self.target.wanted.wwid() else { return Ok(false) };
        match multipath::forget_wwid(self.host, &wwid).await {
            Ok(forgotten) => Ok(forgotten),
            Err(failure) => self.failures.take(failure).map(|()| true),
        }
    }

    /// Waits until a device without ways is gone. One that stays for others takes writes again.
    async fn settle(&mut self, device: &str, read_only: bool) -> Result<()> {
        let disk = Whole::new(device);
        let files = self.host.files();
        let deadline = self.deadline.within(fabrics::REMOVE_LIMIT);
        let mut events = self.host.events().subscribe();
        let stays = wait::until(&mut *events, deadline, async || {
            let sight = Sight::of(self.host, &self.target.nqn, &self.target.wanted)?;
            if sight.found.iter().any(|namespace| namespace.device == device) {
                return Ok(Some(true));
            }
            let gone = files.resolve(&disk.folder())?.is_none();
            Ok(gone.then_some(false))
        })
        .await?;
        match stays {
            Some(false) => Ok(()),
            Some(true) if read_only => {
                let opened = self.host.disks().set_read_only(&disk.node, false).await;
                opened.or_else(|error| self.failures.take(error))
            }
            Some(true) => Ok(()),
            None => {
                let what = disk.node.display().to_string();
                self.failures.take(AttachError::NotRemoved { what, limit: deadline.limit() })
            }
        }
    }
}

/// What is cached goes with a device that no way leads to.
fn lost(device: PathBuf, namespaces: &[Namespace]) -> AttachError {
    let ways: Vec<String> = namespaces.iter().map(Namespace::words).collect();
    let why = format!("no way to it works: {}", ways.join(", "));
    let attempt = "writing it out".to_owned();
    let source = KernelError::NotBegun { attempt, source: std::io::Error::other(why) };
    AttachError::Lost { device, source }
}
