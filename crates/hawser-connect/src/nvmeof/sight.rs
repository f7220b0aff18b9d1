//! What of a volume can be seen on this host now, and whether it is what it seems to be.

use std::path::PathBuf;

use hawser_core::ByteSize;
use hawser_core::attach::Attached;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::{KernelError, NamespaceFacts};

use super::data::Target;
use super::ids::{Ids, Wanted};
use super::sysfs::{self, Controller, Namespace, State};
use crate::shared::error::AttachError;
use crate::shared::users::Whole;

/// A subsystem and the wanted namespace in it.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) controllers: Vec<Controller>,
    /// The wanted namespace: one device with native multipath, else one per controller.
    pub(super) found: Vec<Namespace>,
    /// What is under the number that it is said to have, when that is another one.
    pub(super) instead: Option<Namespace>,
}

impl Sight {
    /// Looks.
    pub(super) fn of(host: &dyn Host, nqn: &str, wanted: &Wanted) -> Result<Self> {
        let controllers = sysfs::controllers(host.files(), nqn)?;
        let namespaces = sysfs::namespaces(host.files(), &controllers)?;
        let (found, others): (Vec<_>, Vec<_>) =
            namespaces.into_iter().partition(|namespace| wanted.selects(&namespace.ids));
        let there = |other: &Namespace| Some(other.ids.nsid) == wanted.number;
        Ok(Self { found, controllers, instead: others.into_iter().find(there) })
    }

    /// Controllers that work.
    pub(super) fn live(&self) -> impl Iterator<Item = &Controller> {
        self.controllers.iter().filter(|controller| controller.state == State::Live)
    }

    /// The device to use, where some way to it works.
    pub(super) fn usable(&self) -> Option<&Namespace> {
        self.found.iter().find(|namespace| namespace.works())
    }

    /// Every way to the namespace in words.
    pub(super) fn words(&self) -> String {
        self.found.iter().map(Namespace::words).collect::<Vec<_>>().join(", ")
    }
}

/// What asking the target itself came to.
#[derive(Debug)]
pub(super) enum Truth {
    /// It is the namespace that sysfs shows.
    Same,
    /// The target has another namespace there by now, and the kernel has not noticed.
    Other(Ids),
    /// The target did not answer.
    Unanswered(AttachError),
}

/// Asks the target whether a namespace is still the one that sysfs shows: what sysfs shows was
/// read when the namespace was found, and its number may have been given to another one since.
pub(super) async fn ask(host: &dyn Host, namespace: &Namespace) -> Result<Truth> {
    let disk = Whole::new(&namespace.device);
    let attempt = format!("asking the target what {} is", disk.node.display());
    let unanswered = |source| Truth::Unanswered(AttachError::Kernel { attempt, source });
    let opened = match host.disks().open(&disk.node).await {
        Ok(opened) => opened,
        Err(error) => return Ok(unanswered(error)),
    };
    let (mut told, unlisted) = match opened.identify_namespace(NamespaceFacts::Ids).await {
        Ok(list) => (Ids::of_descriptors(&list), None),
        Err(error) => (Ids::default(), Some(error)),
    };
    // Targets before NVMe 1.3 have no such list, and some leave out what stands elsewhere.
    if told.agrees(&namespace.ids).is_none() {
        match opened.identify_namespace(NamespaceFacts::Format).await {
            Ok(data) => told.add(Ids::of_identify(&data)),
            Err(error) => return Ok(unanswered(error)),
        }
    }
    Ok(match (told.agrees(&namespace.ids), unlisted) {
        (Some(true), _) => Truth::Same,
        (Some(false), _) => Truth::Other(told),
        (None, _) if namespace.ids.strongest().is_none() => Truth::Same,
        (None, Some(error)) => unanswered(error),
        // It has an id of another kind, which the old one did not have.
        (None, None) if told.strongest().is_some() => Truth::Other(told),
        (None, None) => {
            let why = "it tells no id any more".to_owned();
            unanswered(KernelError::Nonsense { attempt: "reading its answer".into(), why })
        }
    })
}

/// Refuses a namespace that is not what it must be.
pub(super) fn check(target: &Target, namespace: &Namespace) -> Result<(), AttachError> {
    let device = Whole::new(&namespace.device).node;
    if let Some(expected) = target.wanted.refuses(&namespace.ids) {
        let (expected, found) = (expected.clone(), namespace.ids.words());
        return Err(AttachError::WrongIdentity { device, expected, found });
    }
    if namespace.ids.strongest().is_none() {
        let why = format!(
            "{} of {} has neither UUID nor NGUID nor EUI64, so nobody can say which volume it is",
            target.wanted, target.nqn
        );
        return Err(AttachError::Invalid { why });
    }
    Ok(())
}

/// What is answered for a device.
pub(super) fn attached(
    host: &dyn Host,
    target: &Target,
    device: &Whole,
    ids: &Ids,
) -> Result<Attached> {
    let size = ByteSize::bytes(device.size(host.files())?);
    let identity = target.wanted.identity(ids);
    Ok(Attached::Block { device: PathBuf::from(&device.node), identity, size })
}
