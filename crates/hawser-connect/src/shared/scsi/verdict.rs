//! What a disk at the place of a volume is: that volume, another one, or both in turn.

use hawser_core::attach::{Detach, Identity};
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::disk::{ScsiDisk, delete_at};
use super::identity::check;
use super::names::Names;
use crate::shared::error::AttachError;
use crate::shared::release::Failures;
use crate::shared::wait::Deadline;

/// What a disk at the place of a volume is.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The volume. A path that does not answer counts by what the kernel remembers of it.
    Ours(Names),
    /// Another volume: never ours.
    Other(Names),
    /// It was found as the volume, and the storage system shows another one under its number now:
    /// reads and writes go there.
    Reused {
        /// What it was.
        was: Names,
        /// What it is.
        is: Names,
    },
}

/// Asks a disk who it is. Without any expectation it is taken for what the data says it is.
pub(crate) async fn judge(
    host: &dyn Host,
    disk: &ScsiDisk,
    expected: &[Identity],
) -> Result<Verdict> {
    let remembered = disk.remembered(host.files())?;
    let fits = |names: &Names| check(disk, names, expected).is_ok();
    let told = match (disk.names(host).await, &remembered) {
        (Ok(names), _) => names,
        (Err(error), Some(names)) => {
            tracing::debug!(error = %error.sentence(), "a path does not say who it is");
            names.clone()
        }
        (Err(error), None) => return Err(error),
    };
    Ok(match remembered {
        Some(was) if !was.same(&told) && fits(&was) => Verdict::Reused { was, is: told },
        Some(_) | None if fits(&told) => Verdict::Ours(told),
        Some(_) | None => Verdict::Other(told),
    })
}

/// Why a disk is not handed out.
pub(crate) fn refusal(disk: &ScsiDisk, names: &Names, expected: &[Identity]) -> Error {
    let expected = expected.first().cloned();
    let expected = expected.unwrap_or_else(|| Identity::new("wwid", "the volume it was"));
    AttachError::WrongIdentity {
        device: disk.disk.node.clone(),
        expected,
        found: format!("wwid:{}", names.wwid()),
    }
    .into()
}

/// Deals with disks that lead to another volume now, at a detach. They are not flushed: what is
/// cached for them would be written there. By force they are cut off, and what was cached is lost.
pub(crate) async fn refuse_reused(
    host: &dyn Host,
    reused: &[(ScsiDisk, Names)],
    expected: &[Identity],
    detach: &Detach,
    failures: &mut Failures<'_>,
    deadline: Deadline,
) -> Result<()> {
    for (disk, is) in reused {
        if !detach.force {
            return Err(refusal(disk, is, expected));
        }
        disk.cut_off(host, deadline).await?;
        delete_at(host, disk.address, deadline).await?;
        let device = disk.disk.node.clone();
        let source = KernelError::Nonsense {
            attempt: format!("flushing {}", device.display()),
            why: format!("it is wwid:{} now", is.wwid()),
        };
        failures.take(AttachError::Lost { device, source })?;
    }
    Ok(())
}
