//! What a fake kernel does when it is written to, and who decides that.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::lun::Lun;
use super::nbd::NbdAsk;
use super::tree::Tree;

/// A path in which `*` and `?` stand for anything within one name, and `**` for any rest.
#[derive(Clone, Debug)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// True when it describes this path.
    pub fn fits(&self, path: &Path) -> bool {
        glob(self.0.as_bytes(), path.to_string_lossy().as_bytes())
    }
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=text.len()).any(|at| glob(rest, &text[at..])),
        [b'*', rest @ ..] => {
            let end = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
            (0..=end).any(|at| glob(rest, &text[at..]))
        }
        [b'?', rest @ ..] => text.first().is_some_and(|b| *b != b'/') && glob(rest, &text[1..]),
        [byte, rest @ ..] => text.first() == Some(byte) && glob(rest, &text[1..]),
    }
}

/// What was written, exchanged or sent to a file.
#[derive(Debug)]
pub struct Write<'a> {
    /// The file as the caller named it.
    pub path: &'a Path,
    /// Where that leads: the place in the tree.
    pub place: &'a Path,
    /// The ioctl's number; 0 for a write.
    pub request: u32,
    /// The bytes.
    pub data: &'a [u8],
}

impl Write<'_> {
    /// The bytes as text without blanks around it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.data).trim().into()
    }

    /// The name of the n-th folder above the file: 0 is the folder that holds it.
    pub fn above(&self, nth: usize) -> String {
        let folder = self.place.ancestors().nth(nth + 1).and_then(Path::file_name);
        folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// What a behaviour answers: a value, or the kernel's number for its refusal.
pub type Answer<T> = Result<T, i32>;

type Shared<F> = Arc<Mutex<F>>;
type OnFile = dyn FnMut(&mut Tree, &Write<'_>) -> Answer<Vec<u8>> + Send;
type OnCommand = dyn FnMut(&mut Tree, &str) -> Option<Answer<String>> + Send;
type OnMap = dyn FnMut(&mut Tree, &str, &str) -> Option<Answer<()>> + Send;
type OnNbd = dyn FnMut(&mut Tree, &NbdAsk) -> Answer<Lun> + Send;
type OnLogout = dyn FnMut(&mut Tree, u32) -> Answer<i32> + Send;
type OnReboot = dyn FnMut(&mut Tree) + Send;

/// Runs at a reboot.
#[derive(Clone)]
pub(super) struct Hook(Shared<OnReboot>);

impl Hook {
    pub(super) fn run(&self, tree: &mut Tree) {
        (self.0.lock().unwrap_or_else(PoisonError::into_inner))(tree);
    }
}

/// By which door the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Write,
    Exchange,
    Control,
}

/// All behaviours; the last one that fits decides.
#[derive(Default)]
pub(super) struct Behaviours {
    files: Vec<(Door, Pattern, Shared<OnFile>)>,
    commands: Vec<Shared<OnCommand>>,
    maps: Vec<Shared<OnMap>>,
    nbd: Option<Shared<OnNbd>>,
    logout: Option<Shared<OnLogout>>,
    reboots: Vec<Hook>,
}

impl Behaviours {
    pub(super) fn on_file(
        &mut self,
        door: Door,
        pattern: Pattern,
        act: impl FnMut(&mut Tree, &Write<'_>) -> Answer<Vec<u8>> + Send + 'static,
    ) {
        self.files.push((door, pattern, Arc::new(Mutex::new(act))));
    }

    fn file(&self, door: Door, path: &Path, place: &Path) -> Option<Shared<OnFile>> {
        let fits = |(its, pattern, _): &&(Door, Pattern, Shared<OnFile>)| {
            *its == door && (pattern.fits(path) || pattern.fits(place))
        };
        self.files.iter().rev().find(fits).map(|(_, _, act)| act.clone())
    }

    pub(super) fn on_command(
        &mut self,
        act: impl FnMut(&mut Tree, &str) -> Option<Answer<String>> + Send + 'static,
    ) {
        self.commands.push(Arc::new(Mutex::new(act)));
    }

    pub(super) fn on_map(
        &mut self,
        act: impl FnMut(&mut Tree, &str, &str) -> Option<Answer<()>> + Send + 'static,
    ) {
        self.maps.push(Arc::new(Mutex::new(act)));
    }

    pub(super) fn on_nbd(
        &mut self,
        act: impl FnMut(&mut Tree, &NbdAsk) -> Answer<Lun> + Send + 'static,
    ) {
        self.nbd = Some(Arc::new(Mutex::new(act)));
    }

    pub(super) fn on_logout(
        &mut self,
        act: impl FnMut(&mut Tree, u32) -> Answer<i32> + Send + 'static,
    ) {
        self.logout = Some(Arc::new(Mutex::new(act)));
    }

    pub(super) fn on_reboot(&mut self, act: impl FnMut(&mut Tree) + Send + 'static) {
        self.reboots.push(Hook(Arc::new(Mutex::new(act))));
    }

    pub(super) fn reboots(&self) -> Vec<Hook> {
        self.reboots.clone()
    }
}

impl Tree {
    /// Lets the behaviour of a file act; `None` when it has none.
    pub(super) fn ask_file(&mut self, door: Door, write: &Write<'_>) -> Option<Answer<Vec<u8>>> {
        let act = self.behaviours.file(door, write.path, write.place)?;
        let answer = (act.lock().unwrap_or_else(PoisonError::into_inner))(self, write);
        Some(answer)
    }

    /// The last behaviour that has an answer to a command for multipathd.
    pub(super) fn ask_command(&mut self, command: &str) -> Option<Answer<String>> {
        let all = self.behaviours.commands.clone();
        all.iter()
            .rev()
            .find_map(|act| (act.lock().unwrap_or_else(PoisonError::into_inner))(self, command))
    }

    /// The last behaviour that has an answer to a request about a map; `what` is `remove`, or
    /// `message` with its text.
    pub(super) fn ask_map(&mut self, name: &str, what: &str) -> Option<Answer<()>> {
        let all = self.behaviours.maps.clone();
        all.iter()
            .rev()
            .find_map(|act| (act.lock().unwrap_or_else(PoisonError::into_inner))(self, name, what))
    }

    /// iscsid is asked to end a session; `None` when nobody listens.
    pub(super) fn ask_logout(&mut self, session: u32) -> Option<Answer<i32>> {
        let act = self.behaviours.logout.clone()?;
        let answer = (act.lock().unwrap_or_else(PoisonError::into_inner))(self, session);
        Some(answer)
    }

    /// What is served behind a network block device.
    pub(super) fn ask_nbd(&mut self, ask: &NbdAsk) -> Option<Answer<Lun>> {
        let act = self.behaviours.nbd.clone()?;
        let answer = (act.lock().unwrap_or_else(PoisonError::into_inner))(self, ask);
        Some(answer)
    }
}
