//! Taking away controllers that we made and nobody needs any more.

use hawser_core::Kind;
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::book::{Book, Made};
use super::device;
use super::fabrics;
use super::sysfs::{self, Controller, Namespace};
use crate::shared::multipath;
use crate::shared::users::Whole;
use crate::shared::wait::Deadline;

/// What became of the controllers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Released {
    /// So many are gone.
    pub(super) deleted: usize,
    /// So many stay, because somebody uses another namespace through them.
    pub(super) kept: usize,
}

/// Which controllers go.
pub(super) struct Which<'a> {
    pub(super) nqn: &'a str,
    /// Devices that were flushed and are known to be free.
    pub(super) free: &'a [String],
    pub(super) unseen: Unseen,
}

/// What becomes of a controller that was begun and cannot be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// The kernel has refused it: it will never be there.
    Forget,
    /// The kernel may still be making it: it stays in the book.
    Keep,
    /// Whoever began it is gone: the kernel is asked to finish what it does, then it is looked for
    /// again.
    Await,
}

/// Deletes the controllers that `pick` takes from the book, and crosses them out. A controller
/// through which somebody uses another namespace stays.
pub(super) async fn controllers(
    host: &dyn Host,
    book: &mut Book<'_>,
    which: &Which<'_>,
    pick: impl Fn(&Made) -> bool,
    deadline: Deadline,
) -> Result<Released> {
    let mut released = Released::default();
    let mut gone = Vec::new();
    let picked: Vec<Made> = book.made().iter().filter(|made| pick(made)).cloned().collect();
    if which.unseen == Unseen::Await {
        let all = sysfs::controllers(host.files(), which.nqn)?;
        let unseen = |made: &Made| made.controller.is_none() && !all.iter().any(|c| made.is(c));
        if picked.iter().any(unseen) {
            fabrics::finish(host, deadline).await?;
        }
    }
    for made in picked {
        // Looked at again each time: the last delete may have taken a namespace away.
        let all = sysfs::controllers(host.files(), which.nqn)?;
        // One that never came up is known by its name alone.
        let unborn = match &made.controller {
            Some(_) => sysfs::unborn(host.files())?,
            None => Vec::new(),
        };
        let ours: Vec<&Controller> = all.iter().chain(&unborn).filter(|c| made.is(c)).collect();
        let mut kept = false;
        for controller in &ours {
            let on_it = namespaces_on(host, &all, controller)?;
            if is_needed(host, controller, &on_it, which.free, deadline).await? {
                kept = true;
                continue;
            }
            fabrics::delete(host, controller, deadline).await?;
            released.deleted += 1;
            gone.extend(on_it.into_iter().filter(Namespace::is_alone));
        }
        if kept {
            released.kept += 1;
        } else if !ours.is_empty() || which.unseen != Unseen::Keep {
            book.drop_made(&made.portal);
        }
    }
    for namespace in gone {
        forget(host, &namespace, deadline).await?;
    }
    Ok(released)
}

/// multipathd has to have heard of it before the name is another volume's.
async fn forget(host: &dyn Host, namespace: &Namespace, deadline: Deadline) -> Result<()> {
    let disk = Whole::new(&namespace.device);
    multipath::forgotten(host, &namespace.ids.wwid, &[disk], deadline).await?;
    multipath::forget_wwid(host, &namespace.ids.wwid).await?;
    Ok(())
}

fn namespaces_on(
    host: &dyn Host,
    all: &[Controller],
    controller: &Controller,
) -> Result<Vec<Namespace>> {
    let on_it = |namespace: &Namespace| {
        namespace.ways.iter().any(|way| way.controller.name == controller.name)
    };
    let namespaces = sysfs::namespaces(host.files(), all)?;
    Ok(namespaces.into_iter().filter(on_it).collect())
}

/// True when somebody uses a namespace that this controller is a way to. A map that multipathd made
/// unasked and nobody uses is no use, and goes.
async fn is_needed(
    host: &dyn Host,
    controller: &Controller,
    on_it: &[Namespace],
    free: &[String],
    deadline: Deadline,
) -> Result<bool> {
    for namespace in on_it.iter().filter(|namespace| !free.contains(&namespace.device)) {
        let device = device::of(host.files(), namespace)?;
        match device.refuse_used(host, false, deadline).await {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Busy => {
                tracing::info!(
                    controller = %controller.name, device = %namespace.device,
                    "the controller stays: another of its namespaces is in use"
                );
                return Ok(true);
            }
            // A device that does not answer is not known to be free.
            Err(error) => return Err(error),
        }
        if let Some(map) = &device.map {
            multipath::remove(host, map, deadline).await?;
        }
    }
    Ok(false)
}
