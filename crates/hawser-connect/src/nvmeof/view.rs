//! Extend, lookup and health: looking at what is attached.

use std::time::Duration;

use hawser_core::attach::{Attached, Health, Multipath};
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::NamespaceFacts;
use hawser_core::{ByteSize, Kind};

use super::book;
use super::connect::pinned;
use super::data::Target;
use super::device;
use super::fabrics;
use super::portal::Portal;
use super::sight::{self, Sight, Truth};
use super::sysfs::{self, Namespace, State};
use crate::shared::error::AttachError;
use crate::shared::multipath;
use crate::shared::users::Whole;
use crate::shared::wait::{self, Deadline};

/// How long a new size may take.
const RESIZE_LIMIT: Duration = Duration::from_secs(30);

/// How long multipathd may take to say that it runs.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Targets tell of a new size by themselves, mostly at once.
const TOLD_LIMIT: Duration = Duration::from_millis(500);

/// Makes this host see the size that the target has, on every way, and answers it.
pub(super) async fn extend(host: &dyn Host, target: &Target) -> Result<ByteSize> {
    let claim = book::peek(host, &target.nqn, &target.wanted.key)?;
    let target = pinned(target, claim.as_ref());
    let deadline = Deadline::after(RESIZE_LIMIT);
    let mut events = host.events().subscribe();
    let all = whole(host, &target)?;
    let mut size = 0;
    for namespace in &all {
        size = told_size(host, namespace).await?.max(size);
    }
    let device = device::of(host.files(), &all[0])?;
    let now = device.disk().size(host.files())?;
    if size < now {
        return Err(shrunk(device.disk(), size, now));
    }
    // A size is there when every device and every way to it have it: input and output past the end
    // of a way that does not know of it fails.
    let has_it = || -> Result<Option<()>> {
        let mut all = whole(host, &target)?.into_iter();
        let known = |namespace: &Namespace| -> Result<bool> {
            let ways = namespace.ways.iter().all(|way| way.size == size);
            Ok(ways && Whole::new(&namespace.device).size(host.files())? == size)
        };
        all.try_fold(true, |so_far, namespace| Ok(so_far && known(&namespace)?))
            .map(|known| known.then_some(()))
    };
    let soon = deadline.within(TOLD_LIMIT);
    if wait::until(&mut *events, soon, async || has_it()).await?.is_none() {
        for way in all.iter().flat_map(|namespace| &namespace.ways) {
            fabrics::rescan(host, &way.controller).await;
        }
        if wait::until(&mut *events, deadline, async || has_it()).await?.is_none() {
            let attempt = format!("growing {} to {size} bytes", device.disk().node.display());
            return Err(AttachError::Deadline { attempt, limit: deadline.limit() }.into());
        }
    }
    if let Some(map) = &device.map {
        multipath::grow(host, map, size, deadline).await?;
    }
    Ok(ByteSize::bytes(size))
}

/// Every device of the namespace, with all ways up. With one down nobody can say whether it has
/// grown there too.
fn whole(host: &dyn Host, target: &Target) -> Result<Vec<Namespace>> {
    let sight = Sight::of(host, &target.nqn, &target.wanted)?;
    if sight.found.is_empty() {
        let what = format!("{} of {}", target.wanted, target.nqn);
        return Err(AttachError::NotAttached { what }.into());
    }
    for namespace in &sight.found {
        sight::check(target, namespace)?;
        let down = namespace.ways.iter().any(|way| way.controller.state != State::Live);
        if down || !namespace.works() {
            let what = Whole::new(&namespace.device).node.display().to_string();
            return Err(AttachError::PathsDown { what, why: sight.words() }.into());
        }
    }
    Ok(sight.found)
}

/// How large a namespace is, as the target says.
async fn told_size(host: &dyn Host, namespace: &Namespace) -> Result<u64> {
    let disk = Whole::new(&namespace.device);
    match sight::ask(host, namespace).await? {
        Truth::Same => {}
        Truth::Other(ids) => {
            let expected = namespace.ids.strongest().unwrap_or_else(|| ids.identity());
            let (device, found) = (disk.node, ids.words());
            return Err(AttachError::WrongIdentity { device, expected, found }.into());
        }
        Truth::Unanswered(error) => return Err(error.into()),
    }
    let attempt = || format!("asking the target how large {} is", disk.node.display());
    let opened = host.disks().open(&disk.node).await.map_err(AttachError::kernel(attempt()))?;
    let told = opened.identify_namespace(NamespaceFacts::Format).await;
    let told = told.map_err(AttachError::kernel(attempt()))?;
    Ok(size_of(&told).ok_or_else(|| nonsense(&disk))?)
}

/// The size in an answer to Identify Namespace: blocks of the format that is in use.
fn size_of(identify: &[u8]) -> Option<u64> {
    let blocks = u64::from_le_bytes(identify.get(0..8)?.try_into().ok()?);
    let (formats, used) = (*identify.get(25)?, *identify.get(26)?);
    // Namespaces with more than 16 formats have two more bits of the index above the flags.
    let high = if formats > 15 { usize::from(used >> 5 & 0x3) << 4 } else { 0 };
    let index = usize::from(used & 0xf) | high;
    let exponent = *identify.get(128 + 4 * index + 2)?;
    if !(9..=30).contains(&exponent) {
        return None;
    }
    blocks.checked_mul(1 << exponent)
}

fn nonsense(disk: &Whole) -> AttachError {
    use hawser_core::port::kernel::KernelError;
    let attempt = format!("asking the target how large {} is", disk.node.display());
    let why = "no block size that can be".to_owned();
    let source = KernelError::Nonsense { attempt: "reading its answer".into(), why };
    AttachError::Kernel { attempt, source }
}

fn shrunk(disk: &Whole, size: u64, now: u64) -> hawser_core::Error {
    let node = disk.node.display();
    let message = format!(
        "the target says that {node} has {size} bytes, and it has {now}: volumes never shrink"
    );
    hawser_core::Error::new(Kind::Precondition, message)
}

/// What is attached now.
pub(super) async fn lookup(host: &dyn Host, target: &Target) -> Result<Option<Attached>> {
    let claim = book::peek(host, &target.nqn, &target.wanted.key)?;
    let target = pinned(target, claim.as_ref());
    let sight = Sight::of(host, &target.nqn, &target.wanted)?;
    let Some(namespace) = sight.usable().or(sight.found.first()) else { return Ok(None) };
    let device = device::of(host.files(), namespace)?;
    if sight::check(&target, namespace).is_err() || !device.disk().has_node(host.files())? {
        return Ok(None);
    }
    if namespace.works() && matches!(sight::ask(host, namespace).await?, Truth::Other(_)) {
        return Ok(None);
    }
    sight::attached(host, &target, device.disk(), &namespace.ids).map(Some)
}

/// Whether every way to the namespace works, and is there where all were wanted.
pub(super) async fn health(
    host: &dyn Host,
    target: &Target,
    multipath: Multipath,
) -> Result<Health> {
    let claim = book::peek(host, &target.nqn, &target.wanted.key)?;
    let target = pinned(target, claim.as_ref());
    let sight = Sight::of(host, &target.nqn, &target.wanted)?;
    let Some(namespace) = sight.usable().or(sight.found.first()) else {
        let message = format!("this host does not see {} of {}", target.wanted, target.nqn);
        return Ok(Health::bad(message));
    };
    if let Err(error) = sight::check(&target, namespace) {
        return Ok(Health::bad(error.to_string()));
    }
    let device = device::of(host.files(), namespace)?;
    let node = device.disk().node.display();
    if !namespace.works() {
        return Ok(Health::bad(format!("no way to {node} works: {}", sight.words())));
    }
    if let Truth::Other(ids) = sight::ask(host, namespace).await? {
        let found = ids.words();
        return Ok(Health::bad(format!("the target has another namespace behind {node}: {found}")));
    }
    let down = |n: &Namespace| n.ways.iter().any(|way| !way.works());
    if sight.found.iter().any(down) {
        return Ok(Health::bad(format!("not every way to {node} works: {}", sight.words())));
    }
    match missing(host, &target, &sight, multipath).await {
        Ok(None) => {}
        Ok(Some(way)) => return Ok(Health::bad(format!("{node} has no controller at {way}"))),
        Err(error) => return Ok(Health::bad(error.sentence())),
    }
    for controller in sight.controllers.iter().filter(|c| c.transport != "loop") {
        let limit = host.files().read_text(&controller.file("ctrl_loss_tmo"))?;
        if let Some(limit) = limit.filter(|limit| limit != "off" && limit != "-1") {
            let name = &controller.name;
            let message = format!(
                "{node} goes with its unwritten data when {name} is without its target for {limit} s"
            );
            return Ok(Health::bad(message));
        }
    }
    Ok(Health::good())
}

/// A portal that was given, has no controller and should have one: it was dead when the volume was
/// attached, and the next connect makes it.
async fn missing<'a>(
    host: &dyn Host,
    target: &'a Target,
    sight: &Sight,
    multipath: Multipath,
) -> Result<Option<&'a Portal>> {
    let native = sysfs::native_multipath(host.files())?;
    let deadline = Deadline::after(ASK_LIMIT);
    if !device::is_for_all(host, native, multipath, &target.portals, deadline).await? {
        return Ok(None);
    }
    let has = |portal: &Portal| {
        sight.controllers.iter().any(|c| c.is_on(portal) && c.state != State::Leaving)
    };
    Ok(target.portals.iter().find(|portal| !has(portal)))
}

#[cfg(test)]
hawser_testkit::fuzz_corpus!(corpus, "nvme_identify", |bytes| {
    if let Some(size) = size_of(bytes) {
        assert!(size % 512 == 0, "{size} bytes are no blocks");
    }
});
