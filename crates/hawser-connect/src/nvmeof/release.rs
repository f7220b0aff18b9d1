//! Taking away controllers that we made and nobody needs any more.

use hawser_core::Kind;
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::book::{Book, Made};
use super::fabrics;
use super::sysfs::{self, Controller, Namespace};
use crate::shared::users::{self, Whole};
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
    /// Forget also those that were begun and cannot be seen. Not while the kernel may still be
    /// making one.
    pub(super) forget_unseen: bool,
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
    let picked: Vec<Made> = book.made().iter().filter(|made| pick(made)).cloned().collect();
    for made in picked {
        // Looked at again each time: the last delete may have taken a namespace away.
        let all = sysfs::controllers(host.files(), which.nqn)?;
        let ours: Vec<&Controller> = all.iter().filter(|c| made.is(c)).collect();
        let mut kept = false;
        for controller in &ours {
            if is_needed(host, &all, controller, which.free, deadline).await? {
                kept = true;
                continue;
            }
            fabrics::delete(host, which.nqn, controller, deadline).await?;
            released.deleted += 1;
        }
        if kept {
            released.kept += 1;
        } else if !ours.is_empty() || which.forget_unseen {
            book.drop_made(&made.portal);
        }
    }
    Ok(released)
}

/// True when somebody uses a namespace that this controller is a way to.
async fn is_needed(
    host: &dyn Host,
    all: &[Controller],
    controller: &Controller,
    free: &[String],
    deadline: Deadline,
) -> Result<bool> {
    let on_it =
        |namespace: &&Namespace| namespace.ways.iter().any(|way| way.controller == *controller);
    for namespace in sysfs::namespaces(host.files(), all)?.iter().filter(on_it) {
        if free.contains(&namespace.device) {
            continue;
        }
        let disk = Whole::new(&namespace.device);
        match users::refuse_used(host, &disk, false, deadline).await {
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
    }
    Ok(false)
}
