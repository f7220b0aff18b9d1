//! The switches that make calls of a [`FakeHost`](super::FakeHost) fail, and the log of its calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hawser_core::{Error, Kind, Outcome};

/// Every method of the host port, in the order of the trait.
pub const METHODS: [&str; 27] = [
    "facts",
    "run",
    "mounts",
    "mount",
    "unmount",
    "abandon_mount",
    "make_target",
    "make_target_file",
    "remove_target",
    "make_folder",
    "look",
    "loop_devices",
    "attach_loop",
    "detach_loop",
    "resize_loop",
    "device_size",
    "probe",
    "make_filesystem",
    "check_filesystem",
    "grow_filesystem",
    "freeze",
    "thaw",
    "sync_filesystem",
    "give_to_group",
    "usage",
    "copy_file",
    "copy_tree",
];

/// Every method of the kernel's parts that can fail, in the order of the traits.
pub const KERNEL_METHODS: [&str; 26] = [
    "Files::write",
    "Files::exchange",
    "Files::control",
    "Files::store",
    "Files::create",
    "Files::remove",
    "Files::settled",
    "Disks::open",
    "Disks::is_claimed",
    "Disks::set_read_only",
    "Disk::flush",
    "Disk::read",
    "Disk::inquiry",
    "Disk::identify_namespace",
    "Disk::reservation",
    "Disk::reserve",
    "Maps::status",
    "Maps::table",
    "Maps::message",
    "Maps::remove",
    "Maps::multipathd",
    "Nbd::attach",
    "Nbd::reconfigure",
    "Nbd::detach",
    "Iscsid::logout",
    "Locks::lock",
];

/// Methods that only look.
const LOOKING: [&str; 18] = [
    "facts",
    "mounts",
    "look",
    "loop_devices",
    "device_size",
    "probe",
    "sync_filesystem",
    "usage",
    "DeviceEvents::changed",
    "Disks::open",
    "Disks::is_claimed",
    "Disk::read",
    "Disk::inquiry",
    "Disk::identify_namespace",
    "Disk::reservation",
    "Maps::status",
    "Maps::table",
    // Held for the time of a call; what is still held afterwards is in the snapshot.
    "Locks::lock",
];

/// Says of some calls that they only look, such as a program that prints its state.
type Looks = Box<dyn Fn(&Call) -> bool + Send>;

/// One call of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method's name.
    pub method: &'static str,
    /// Its arguments as they print.
    pub detail: String,
    looks: bool,
}

impl Call {
    /// True when the method may change the host.
    pub fn changes(&self) -> bool {
        !self.looks
    }

    fn only_looks(&self) -> bool {
        let asks = self.method == "Maps::multipathd" && self.detail.starts_with("show ");
        asks || LOOKING.contains(&self.method)
    }
}

/// Why a call fails before it acts.
pub(super) enum Struck {
    /// By a switch, in these words.
    Scripted(String),
    /// With the error of a test.
    As(Error),
    /// With the number of a test.
    Errno(i32),
}

impl Struck {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Scripted(words) => Error::new(Kind::Unavailable, words),
            Self::As(error) => error,
            Self::Errno(errno) => {
                let why = std::io::Error::from_raw_os_error(errno);
                Error::new(Kind::Unavailable, why.to_string())
            }
        }
    }
}

/// The answer of a call that acted and was not heard of again.
pub(super) fn lost(method: &str) -> Error {
    let lost = format!("the answer of {method} was lost (scripted)");
    Error::new(Kind::Timeout, lost).with_outcome(Outcome::Unknown)
}

/// At which side of the act a scripted failure strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nothing is done; the error says so.
    Before,
    /// The work is done and only the answer is lost: `Outcome::Unknown`.
    After,
}

/// The switchboard.
#[derive(Default)]
pub(super) struct Faults {
    log: Vec<Call>,
    looks: Vec<Looks>,
    next: BTreeMap<&'static str, VecDeque<Struck>>,
    always: BTreeSet<&'static str>,
    hanging: BTreeSet<&'static str>,
    nth: Option<(usize, When)>,
    from: Option<(usize, When)>,
    /// Calls since the last switch by number was set.
    count: usize,
    struck: usize,
}

impl Faults {
    fn log(&mut self, method: &'static str, detail: String) {
        let mut call = Call { method, detail, looks: false };
        call.looks = call.only_looks() || self.looks.iter().any(|looks| looks(&call));
        self.log.push(call);
    }

    /// Writes a call down that is no fault point.
    pub(super) fn note(&mut self, method: &'static str) {
        self.log(method, String::new());
    }

    /// Writes the call down; `Err` when it fails before the act, true when its answer gets lost.
    pub(super) fn begin(&mut self, method: &'static str, detail: String) -> Result<bool, Struck> {
        self.log(method, detail);
        let index = self.count;
        self.count += 1;
        let next = self.next.get_mut(method).and_then(VecDeque::pop_front);
        if let Some(struck) = next {
            self.struck += 1;
            return Err(struck);
        }
        if self.always.contains(method) {
            self.struck += 1;
            return Err(scripted(method));
        }
        let by_number = self
            .nth
            .filter(|(nth, _)| *nth == index)
            .or(self.from.filter(|(from, _)| index >= *from));
        match by_number {
            None => Ok(false),
            Some((_, When::Before)) => {
                self.struck += 1;
                Err(scripted(method))
            }
            Some((_, When::After)) => {
                self.struck += 1;
                Ok(true)
            }
        }
    }

    /// These calls only look, too.
    pub(super) fn add_looks(&mut self, looks: impl Fn(&Call) -> bool + Send + 'static) {
        self.looks.push(Box::new(looks));
    }

    pub(super) fn fail_next_errno(&mut self, method: &str, errno: i32) {
        self.next.entry(known(method)).or_default().push_back(Struck::Errno(errno));
    }

    pub(super) fn fail_next(&mut self, method: &str, error: Error) {
        self.next.entry(known(method)).or_default().push_back(Struck::As(error));
    }

    pub(super) fn fail_always(&mut self, method: &str) {
        self.always.insert(known(method));
    }

    pub(super) fn hang_always(&mut self, method: &str) {
        self.hanging.insert(known(method));
    }

    pub(super) fn hangs(&self, method: &str) -> bool {
        self.hanging.contains(method)
    }

    pub(super) fn fail_call(&mut self, nth: usize, when: When) {
        (self.count, self.struck) = (0, 0);
        self.nth = Some((nth, when));
    }

    pub(super) fn fail_from(&mut self, first: usize, when: When) {
        (self.count, self.struck) = (0, 0);
        self.from = Some((first, when));
    }

    pub(super) fn heal(&mut self) {
        self.next.clear();
        self.always.clear();
        self.hanging.clear();
        self.nth = None;
        self.from = None;
    }

    pub(super) fn struck(&self) -> usize {
        self.struck
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.log.clone()
    }

    pub(super) fn forget_calls(&mut self) {
        self.log.clear();
    }
}

fn scripted(method: &str) -> Struck {
    Struck::Scripted(format!("{method} failed (scripted)"))
}

/// A typing error in a test must not make it pass.
fn known(method: &str) -> &'static str {
    METHODS
        .into_iter()
        .chain(KERNEL_METHODS)
        .find(|name| *name == method)
        .unwrap_or_else(|| panic!("{method:?} is no method of the host port"))
}
