//! Connect: controllers, then the namespace, then the proof that it is the right one.

use std::time::Duration;

use hawser_core::attach::{Attach, Attached, Multipath};
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;
use hawser_core::{Change, Outcome};

use super::book::{self, Book, Claim};
use super::data::Target;
use super::device::{self, Device};
use super::fabrics;
use super::find::Find;
use super::portal::Portal;
use super::reach::{self, Reach, Undo};
use super::release::{self, Which};
use super::sight::{self, Sight, Truth};
use super::sysfs::{self, State};
use crate::properties;
use crate::shared::error::AttachError;
use crate::shared::modules;
use crate::shared::multipath;
use crate::shared::nvme_host::{self, NvmeHost};
use crate::shared::wait::{self, Deadline};

/// How long a device may refuse writes before that counts.
const WRITABLE_LIMIT: Duration = Duration::from_secs(10);

/// Attaches one namespace.
pub(super) async fn connect(
    host: &dyn Host,
    target: &Target,
    attach: &Attach,
) -> Result<Change<Attached>> {
    let claim = book::peek(host, &target.nqn, &target.wanted.key)?;
    let target = pinned(target, claim.as_ref());
    let mut modules_needed: Vec<_> = target.portals.iter().map(|p| p.transport.module()).collect();
    modules_needed.dedup();
    for module in modules_needed {
        modules::need(host, module).await?;
    }
    need_authentication(host, &target).await?;
    let own = own_name(host, &target).await?;
    let native = sysfs::native_multipath(host.files())?;
    let ways = reach::ways(host.files(), &target)?;
    let deadline = Deadline::after(attach.deadline);
    let call = Call {
        host,
        target: &target,
        own: &own,
        ways: &ways,
        all: device::is_for_all(host, native, attach.multipath, &ways, deadline).await?,
        native,
        multipath: attach.multipath,
        read_only: attach.read_only || target.read_only,
        deadline,
    };
    if let Some(attached) = call.as_it_is(claim.as_ref()).await? {
        return Ok(Change::Already(attached));
    }
    let seen = Sight::of(host, &target.nqn, &target.wanted)?.usable().is_some();
    let mut undo = Undo::default();
    match call.make(claim.as_ref(), &mut undo).await {
        // What another call made, or what was there, this one did not make.
        Ok(attached) if undo.portals.is_empty() && (seen || !undo.claimed) => {
            Ok(Change::Already(attached))
        }
        Ok(attached) => Ok(Change::Made(attached)),
        Err(error) => Err(call.undo(undo, error).await),
    }
}

/// What was found before is what is meant; a number may have been given to another volume since.
pub(super) fn pinned(target: &Target, claim: Option<&Claim>) -> Target {
    match claim.and_then(|claim| claim.pinned.as_ref()) {
        Some(identity) => Target { wanted: target.wanted.pinned(identity), ..target.clone() },
        None => target.clone(),
    }
}

/// The kernel's part of authentication can be left out when it is built, and then the write of a
/// key is refused without a reason.
async fn need_authentication(host: &dyn Host, target: &Target) -> Result<()> {
    if target.options.host_key.is_none() {
        return Ok(());
    }
    // Its module had another name before Linux 6.7.
    for module in ["nvme_auth", "nvme_common"] {
        if modules::is_there(host, module).await? {
            return Ok(());
        }
    }
    let what = "NVMe authentication (the kernel module nvme-auth)".to_owned();
    let advice = "use a kernel that was built with CONFIG_NVME_HOST_AUTH".to_owned();
    Err(AttachError::Missing { what, advice }.into())
}

/// As whom this host connects.
async fn own_name(host: &dyn Host, target: &Target) -> Result<NvmeHost> {
    let system = properties::system_uuid(host).await?;
    let known = nvme_host::read_or_create(host, system.as_deref()).await?;
    let options = &target.options;
    match (&options.host_nqn, known) {
        (None, None) => {
            let what = "the NVMe name of this host (/etc/nvme/hostnqn)".to_owned();
            Err(AttachError::Missing { what, advice: "it is made by root".to_owned() }.into())
        }
        (None, Some(known)) => {
            Ok(NvmeHost { id: options.host_id.clone().unwrap_or(known.id), ..known })
        }
        (Some(nqn), Some(known)) if *nqn == known.nqn => {
            Ok(NvmeHost { id: options.host_id.clone().unwrap_or(known.id), ..known })
        }
        (Some(nqn), _) => {
            let id = options.host_id.clone().unwrap_or_else(|| nvme_host::id_of(nqn));
            Ok(NvmeHost { nqn: nqn.clone(), id })
        }
    }
}

/// One connect.
struct Call<'a> {
    host: &'a dyn Host,
    target: &'a Target,
    own: &'a NvmeHost,
    ways: &'a [Portal],
    all: bool,
    native: bool,
    multipath: Multipath,
    read_only: bool,
    deadline: Deadline,
}

impl Call<'_> {
    fn files(&self) -> &dyn Files {
        self.host.files()
    }

    fn sight(&self) -> Result<Sight> {
        Sight::of(self.host, &self.target.nqn, &self.target.wanted)
    }

    /// What is attached already, when nothing at all is left to do.
    async fn as_it_is(&self, claim: Option<&Claim>) -> Result<Option<Attached>> {
        let sight = self.sight()?;
        let Some(namespace) = sight.usable() else { return Ok(None) };
        sight::check(self.target, namespace)?;
        let claimed =
            claim.is_some_and(|claim| claim.read_only == self.read_only && claim.pinned.is_some());
        let reached =
            |way: &Portal| reach::state_of(&sight.controllers, way, self.own) != State::Leaving;
        let device = device::of(self.files(), namespace)?;
        let joined = self.native || !self.all || device.map.is_some();
        let complete = claimed
            && joined
            && (!self.all || self.ways.iter().all(reached))
            && device.disk().has_node(self.files())?;
        if !complete || !matches!(sight::ask(self.host, namespace).await?, Truth::Same) {
            return Ok(None);
        }
        Ok(Some(sight::attached(self.host, self.target, device.disk(), &namespace.ids)?))
    }

    /// Does what is left to do. What it makes is in `undo`, also when it fails.
    async fn make(&self, claim: Option<&Claim>, undo: &mut Undo) -> Result<Attached> {
        let key = self.target.wanted.key.clone();
        let was_read_only = claim.is_some_and(|claim| claim.read_only);
        let mut book = Book::open(self.host, &self.target.nqn, self.deadline).await?;
        let pinned = book.claim(&key).and_then(|claim| claim.pinned.clone());
        let claim = Claim { pinned, read_only: self.read_only };
        let found_before = claim.pinned.is_some();
        undo.claimed = book.set_claim(&key, claim);
        book.save().await?;
        let old = self.sight()?;
        if self.target.options.loss_limit.is_none() {
            for controller in old.live() {
                fabrics::keep(self.host, controller).await?;
            }
        }
        let reach = Reach {
            host: self.host,
            target: self.target,
            own: self.own,
            ways: self.ways,
            all: self.all,
            deadline: self.deadline,
        };
        if !self.native && old.found.is_empty() {
            device::clear_leftover(self.host, &self.target.wanted, self.deadline).await?;
        }
        reach.ensure(&mut book, undo).await?;
        // Another volume of the subsystem may be attached meanwhile; the claim keeps what we need.
        drop(book);
        let find =
            Find { host: self.host, target: self.target, all: self.all, deadline: self.deadline };
        let namespace = find.run(!old.controllers.is_empty()).await?;
        if !found_before {
            let pinned = self.target.wanted.identity(&namespace.ids);
            let mut book = Book::open(self.host, &self.target.nqn, self.deadline).await?;
            book.pin(&key, pinned);
            book.save().await?;
        }
        let sight = self.sight()?;
        let (host, deadline) = (self.host, self.deadline);
        let device = device::assemble(host, &sight, &namespace, self.multipath, deadline).await?;
        self.set_mode(&device, was_read_only).await?;
        sight::attached(self.host, self.target, device.disk(), &namespace.ids)
    }

    /// Makes the device refuse writes, or makes sure that it takes them.
    async fn set_mode(&self, device: &Device, was_read_only: bool) -> Result<()> {
        let disk = device.disk();
        let refuses =
            || -> Result<bool> { Ok(disk.attribute(self.files(), "ro")?.as_deref() == Some("1")) };
        if self.read_only {
            if !refuses()? {
                self.host.disks().set_read_only(&disk.node, true).await?;
            }
            return Ok(());
        }
        if was_read_only && refuses()? {
            self.host.disks().set_read_only(&disk.node, false).await?;
        }
        if let Some(map) = device.map.as_ref().filter(|_| refuses().unwrap_or(false)) {
            // One that was made while its paths refused writes goes on refusing them.
            multipath::reload(self.host, map, self.deadline).await?;
        }
        let mut events = self.host.events().subscribe();
        let deadline = self.deadline.within(WRITABLE_LIMIT);
        let writable =
            wait::until(&mut *events, deadline, async || Ok((!refuses()?).then_some(()))).await?;
        match writable {
            Some(()) => Ok(()),
            None => Err(AttachError::ReadOnly { device: disk.node.clone() }.into()),
        }
    }

    /// Takes back what this call made, and says what is known then.
    async fn undo(&self, undo: Undo, error: Error) -> Error {
        if !undo.claimed && undo.portals.is_empty() {
            return error;
        }
        match self.take_back(&undo).await {
            Ok(()) if undo.late => error.with_outcome(Outcome::Unknown),
            Ok(()) if undo.portals.is_empty() => error.with_outcome(Outcome::Nothing),
            Ok(()) => error.with_outcome(Outcome::RolledBack),
            Err(failed) => {
                let attempt = format!(
                    "connecting {} failed, and taking back what was made too ({})",
                    self.target.wanted,
                    failed.sentence()
                );
                error.context(attempt).with_outcome(Outcome::Unknown)
            }
        }
    }

    async fn take_back(&self, undo: &Undo) -> Result<()> {
        let nqn = &self.target.nqn;
        // The deadline may be what made the call fail; cleaning up has time of its own.
        let deadline = Deadline::after(fabrics::REMOVE_LIMIT);
        let mut book = Book::open(self.host, nqn, deadline).await?;
        let mut claims_left = book.is_claimed();
        if undo.claimed {
            book.drop_claim(&self.target.wanted.key);
            claims_left = book.is_claimed();
        }
        let mut kept = 0;
        if !claims_left {
            let which = Which { nqn, free: &[], unseen: undo.unseen() };
            let mine = |made: &book::Made| undo.portals.contains(&made.portal);
            kept = release::controllers(self.host, &mut book, &which, mine, deadline).await?.kept;
        }
        book.save().await?;
        if kept > 0 {
            let what = format!("{kept} controller(s) of {nqn}, which somebody uses by now,");
            return Err(AttachError::NotRemoved { what, limit: Duration::ZERO }.into());
        }
        Ok(())
    }
}
