//! The switches that make calls of a [`FakeHost`](super::FakeHost) fail, and the log of its calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hawser_core::{Error, Kind, Outcome};

/// Every method of the host port, in the order of the trait.
pub const METHODS: [&str; 22] = [
    "facts",
    "run",
    "mounts",
    "mount",
    "unmount",
    "make_target",
    "remove_target",
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
    "usage",
    "copy_file",
    "copy_tree",
];

/// Methods that only look.
const LOOKING: [&str; 7] =
    ["facts", "mounts", "loop_devices", "device_size", "probe", "sync_filesystem", "usage"];

/// One call of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method's name.
    pub method: &'static str,
    /// Its arguments as they print.
    pub detail: String,
}

impl Call {
    /// True when the method may change the host.
    pub fn changes(&self) -> bool {
        !LOOKING.contains(&self.method)
    }
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
    next: BTreeMap<&'static str, VecDeque<Error>>,
    always: BTreeSet<&'static str>,
    hanging: BTreeSet<&'static str>,
    nth: Option<(usize, When)>,
    from: Option<(usize, When)>,
    /// Calls since the last switch by number was set.
    count: usize,
    struck: usize,
}

impl Faults {
    /// Writes the call down; `Err` when it fails before the act, `Some` when its answer gets lost.
    pub(super) fn begin(
        &mut self,
        method: &'static str,
        detail: String,
    ) -> Result<Option<Error>, Error> {
        self.log.push(Call { method, detail });
        let index = self.count;
        self.count += 1;
        if let Some(error) = self.next.get_mut(method).and_then(VecDeque::pop_front) {
            self.struck += 1;
            return Err(error);
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
            None => Ok(None),
            Some((_, When::Before)) => {
                self.struck += 1;
                Err(scripted(method))
            }
            Some((_, When::After)) => {
                self.struck += 1;
                let lost = format!("the answer of {method} was lost (scripted)");
                Ok(Some(Error::new(Kind::Timeout, lost).with_outcome(Outcome::Unknown)))
            }
        }
    }

    pub(super) fn fail_next(&mut self, method: &str, error: Error) {
        self.next.entry(known(method)).or_default().push_back(error);
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

fn scripted(method: &str) -> Error {
    Error::new(Kind::Unavailable, format!("{method} failed (scripted)"))
}

/// A typing error in a test must not make it pass.
fn known(method: &str) -> &'static str {
    METHODS
        .into_iter()
        .find(|name| *name == method)
        .unwrap_or_else(|| panic!("{method:?} is no method of the host port"))
}
