//! Controllers and namespaces, as sysfs shows them.
//!
//! With native multipath a namespace is one device (`nvme0n1`, the head) with a hidden one per
//! controller (`nvme0c1n1`, the paths); without it each controller has a device of its own.

use std::path::{Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::kernel::Files;

use super::ids::Ids;
use super::portal::Portal;

const CONTROLLERS: &str = "/sys/class/nvme";

/// How a controller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It works.
    Live,
    /// It comes, or comes back.
    Connecting,
    /// It goes, or is beyond help.
    Leaving,
}

impl State {
    fn parse(text: &str) -> Self {
        match text {
            "live" => Self::Live,
            "new" | "resetting" | "connecting" => Self::Connecting,
            // `deleting`, `deleting (no IO)`, `dead`, and words of kernels to come: not to be used.
            _ => Self::Leaving,
        }
    }

    /// For messages.
    pub(super) fn words(&self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Connecting => "connecting",
            Self::Leaving => "going away",
        }
    }
}

/// A connection to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Controller {
    /// `nvme3`.
    pub(super) name: String,
    pub(super) state: State,
    pub(super) transport: String,
    pub(super) address: String,
    /// Kernels before 5.7 do not tell it.
    pub(super) host_nqn: Option<String>,
    pub(super) host_id: Option<String>,
}

impl Controller {
    /// One file of it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        controller_file(&self.name, name)
    }

    /// True when it is on this way.
    pub(super) fn is_on(&self, portal: &Portal) -> bool {
        portal.leads_to(&self.transport, &self.address)
    }

    /// How long the kernel waits between tries, in seconds.
    pub(super) fn reconnect_delay(&self, files: &dyn Files) -> Result<u64> {
        let text = files.read_text(&self.file("reconnect_delay"))?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(10))
    }
}

/// One file of a controller.
pub(super) fn controller_file(controller: &str, name: &str) -> PathBuf {
    Path::new(CONTROLLERS).join(controller).join(name)
}

/// The state of a controller, also of one that is being made; `None` when it is not there.
pub(super) fn state_of(files: &dyn Files, controller: &str) -> Result<Option<State>> {
    let text = files.read_text(&controller_file(controller, "state"))?;
    Ok(text.map(|text| State::parse(&text)))
}

/// Controllers that have never been live: the kernel cannot tell their subsystem.
pub(super) fn unborn(files: &dyn Files) -> Result<Vec<Controller>> {
    let all = all_controllers(files)?.into_iter();
    Ok(all.filter(|(nqn, _)| !nqn.starts_with("nqn.")).map(|(_, controller)| controller).collect())
}

/// Every controller of a subsystem. One that is being made for the first time has no subsystem yet
/// and is not among them.
pub(super) fn controllers(files: &dyn Files, nqn: &str) -> Result<Vec<Controller>> {
    let mut found = Vec::new();
    for name in files.list(Path::new(CONTROLLERS))? {
        found.extend(controller(files, &name)?.filter(|(its, _)| its == nqn).map(|(_, c)| c));
    }
    Ok(found)
}

/// Every controller that is reached over a fabric, with its subsystem.
pub(super) fn all_controllers(files: &dyn Files) -> Result<Vec<(String, Controller)>> {
    let mut found = Vec::new();
    for name in files.list(Path::new(CONTROLLERS))? {
        found.extend(controller(files, &name)?.filter(|(_, c)| c.transport != "pcie"));
    }
    Ok(found)
}

fn controller(files: &dyn Files, name: &str) -> Result<Option<(String, Controller)>> {
    let folder = Path::new(CONTROLLERS).join(name);
    let read = |file: &str| files.read_text(&folder.join(file));
    let Some(nqn) = read("subsysnqn")? else { return Ok(None) };
    // Gone between two reads: as if it had never been there.
    let (Some(state), Some(transport)) = (read("state")?, read("transport")?) else {
        return Ok(None);
    };
    let controller = Controller {
        name: name.to_owned(),
        state: State::parse(&state),
        transport,
        address: read("address")?.unwrap_or_default(),
        host_nqn: read("hostnqn")?,
        host_id: read("hostid")?,
    };
    Ok(Some((nqn, controller)))
}

/// What a target says about a way to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: every way is as good as any other.
    Unsaid,
    Optimized,
    NonOptimized,
    /// Not now.
    Inaccessible,
    /// Never again.
    PersistentLoss,
    /// It is about to say something else.
    Change,
}

impl Access {
    fn parse(text: Option<&str>) -> Self {
        match text {
            None => Self::Unsaid,
            Some("optimized") => Self::Optimized,
            Some("non-optimized") => Self::NonOptimized,
            Some("persistent-loss") => Self::PersistentLoss,
            Some("change") => Self::Change,
            Some(_) => Self::Inaccessible,
        }
    }

    /// For messages.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Unsaid => "unsaid",
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        }
    }
}

/// One way to a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) controller: Controller,
    /// `nvme0c1n1`, or `nvme1n1` without native multipath.
    pub(super) node: String,
    pub(super) access: Access,
    /// In bytes, as the kernel knows it.
    pub(super) size: u64,
}

impl Way {
    /// True when commands get through. The kernel shows the last access state of a controller that
    /// is reconnecting, so both count.
    pub(super) fn works(&self) -> bool {
        let open = matches!(self.access, Access::Unsaid | Access::Optimized | Access::NonOptimized);
        self.controller.state == State::Live && open
    }

    /// For messages: `nvme1 at traddr=…: live, optimized`.
    pub(super) fn words(&self) -> String {
        let (name, state) = (&self.controller.name, self.controller.state.words());
        match self.access {
            Access::Unsaid => format!("{name} is {state}"),
            access @ (Access::Optimized
            | Access::NonOptimized
            | Access::Inaccessible
            | Access::PersistentLoss
            | Access::Change) => format!("{name} is {state} and {}", access.words()),
        }
    }
}

/// A namespace that this host sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    /// The device to use: `nvme0n1`.
    pub(super) device: String,
    pub(super) ids: Ids,
    pub(super) ways: Vec<Way>,
}

impl Namespace {
    /// True when some way works.
    pub(super) fn works(&self) -> bool {
        self.ways.iter().any(Way::works)
    }

    /// True when every controller that it is seen through goes away.
    pub(super) fn leaves(&self) -> bool {
        let leaves = |way: &Way| way.controller.state == State::Leaving;
        !self.ways.is_empty() && self.ways.iter().all(leaves)
    }

    /// True when it is the device of one controller, not one above those of several.
    pub(super) fn is_alone(&self) -> bool {
        self.ways.iter().any(|way| way.node == self.device)
    }

    /// All ways in words.
    pub(super) fn words(&self) -> String {
        self.ways.iter().map(Way::words).collect::<Vec<_>>().join(", ")
    }
}

/// The namespaces of these controllers, by device.
pub(super) fn namespaces(files: &dyn Files, of: &[Controller]) -> Result<Vec<Namespace>> {
    let mut found: Vec<Namespace> = Vec::new();
    for controller in of {
        let folder = Path::new(CONTROLLERS).join(&controller.name);
        for node in files.list(&folder)? {
            let Some(device) = device_of(&node) else { continue };
            let Some((ids, access, size)) = look(files, &folder.join(&node))? else { continue };
            let way = Way { controller: controller.clone(), node, access, size };
            match found.iter_mut().find(|namespace| namespace.device == device) {
                Some(namespace) => namespace.ways.push(way),
                None => found.push(Namespace { device, ids, ways: vec![way] }),
            }
        }
    }
    Ok(found)
}

fn look(files: &dyn Files, folder: &Path) -> Result<Option<(Ids, Access, u64)>> {
    let read = |file: &str| files.read_text(&folder.join(file));
    // Without these two it is no namespace, or gone.
    let (Some(wwid), Some(nsid)) = (read("wwid")?, read("nsid")?) else { return Ok(None) };
    let (nguid, eui) = (read("nguid")?.unwrap_or_default(), read("eui")?.unwrap_or_default());
    let sectors = read("size")?.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let access = Access::parse(read("ana_state")?.as_deref());
    Ok(Some((Ids::of_sysfs(&wwid, &nguid, &eui, &nsid), access, sectors.saturating_mul(512))))
}

/// The device to use for an entry of a controller's folder: `nvme0c1n1` is a way to `nvme0n1`.
/// Other entries (`ng0n1`, `hwmon1`, `power`) are none.
fn device_of(node: &str) -> Option<String> {
    let rest = node.strip_prefix("nvme")?;
    let (front, namespace) = rest.split_once('n')?;
    let (subsystem, controller) = match front.split_once('c') {
        Some((subsystem, controller)) => (subsystem, Some(controller)),
        None => (front, None),
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let legal = number(subsystem) && number(namespace) && controller.is_none_or(number);
    legal.then(|| format!("nvme{subsystem}n{namespace}"))
}

/// True when the kernel makes one device of several controllers.
pub(super) fn native_multipath(files: &dyn Files) -> Result<bool> {
    let file = Path::new("/sys/module/nvme_core/parameters/multipath");
    Ok(files.read_text(file)?.as_deref() == Some("Y"))
}

#[cfg(test)]
hawser_testkit::fuzz_corpus!(corpus, "nvme_sysfs", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let mut next = || lines.next().map(str::trim);
    let (state, access, node) = (next().unwrap_or_default(), next(), next().unwrap_or_default());
    assert_eq!(State::parse(state) == State::Live, state == "live");
    let open = matches!(Access::parse(access), Access::Optimized | Access::NonOptimized);
    assert_eq!(open, access.is_some_and(|text| ["optimized", "non-optimized"].contains(&text)));
    assert_eq!(Access::parse(access) == Access::Unsaid, access.is_none());
    if let Some(device) = device_of(node) {
        assert!(!device.contains('c') && node.starts_with("nvme"), "{node} is {device}");
    }
});
