//! A client that does whatever comes to its mind, and remembers what it was told.
//!
//! Each client has volumes and snapshots of its own, so it always knows what must be there; it copies
//! from those of others too, which makes them wait for each other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hawser_api::RestClient;
use hawser_core::ByteSize;
use hawser_core::error::{Error, Kind, Result};
use hawser_core::page::PageRequest;
use hawser_core::port::Control;
use hawser_core::port::control::{OperationFilter, VolumeFilter};
use hawser_core::volume::{Source, SourceRef, VolumeRequest};

use super::action::{Action, Answered, alias, snapshot, volume};
use super::content::{self, Files};
use super::model::{Doubt, FOLDERS, Facts, IMAGES, LABEL, SnapshotFact, Use, VolumeFact};
use super::rng::Rng;

/// No volume becomes larger.
const LARGEST_MIB: u64 = 48;

/// What clients can see of each other's things: snapshots, and the names of volumes.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// All snapshots.
    pub(super) snapshots: BTreeMap<String, SnapshotFact>,
    /// All volumes.
    pub(super) volumes: BTreeMap<String, VolumeFact>,
}

/// What all clients share.
pub(super) struct Shared {
    /// The server.
    pub(super) control: RestClient,
    /// Set before the server is killed: from then on it may be gone.
    pub(super) stop: AtomicBool,
    /// What clients can see of each other.
    pub(super) board: Mutex<Board>,
    /// Where volumes are mounted.
    pub(super) mounts: PathBuf,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().expect("no client panicked")
    }
}

/// How a change ended.
enum Ended {
    Done(Answered),
    /// Refused with a kind that was to be expected; nothing changed.
    Refused,
    /// The server died under it.
    Cut,
}

/// One client.
pub(super) struct Client {
    number: u64,
    rng: Rng,
    /// What it knows.
    pub(super) facts: Facts,
    /// Changes that were acknowledged, by word.
    pub(super) acknowledged: BTreeMap<&'static str, u64>,
}

impl Client {
    /// A client that knows nothing.
    pub(super) fn new(number: u64, seed: u64) -> Self {
        let rng = Rng::new(seed ^ (number + 1) << 32);
        Self { number, rng, facts: Facts::default(), acknowledged: BTreeMap::new() }
    }

    /// The names of its volumes.
    pub(super) fn volume_names(&self) -> [String; 2] {
        ["a", "b"].map(|letter| format!("v{}{letter}", self.number))
    }

    /// The names of its snapshots.
    pub(super) fn snapshot_names(&self) -> [String; 2] {
        ["a", "b"].map(|letter| format!("s{}{letter}", self.number))
    }

    /// Works until the server dies.
    pub(super) async fn work(mut self, shared: Arc<Shared>) -> Self {
        while !shared.stopped() && self.facts.doubt.is_none() {
            let name = self.rng.pick(&self.volume_names()).clone();
            match self.facts.volumes.get(&name).cloned() {
                None => self.make(&shared, &name).await,
                Some(fact) => self.change(&shared, &name, fact).await,
            }
        }
        self
    }

    /// Makes a volume: empty, from a snapshot, or from another volume.
    async fn make(&mut self, shared: &Shared, name: &str) {
        let mut request = VolumeRequest::new(alias(name), ByteSize::mib(self.rng.range(2, 4) * 8));
        let mut after = VolumeFact {
            id: None,
            class: (*self.rng.pick(&[IMAGES, IMAGES, IMAGES, FOLDERS])).to_owned(),
            mib: request.size.map(|size| size.get() >> 20),
            label: None,
            used: Use::None,
            files: Some(Files::new()),
        };
        request.class = Some(after.class.parse().expect("a legal class"));
        let mut origin = None;
        let source = self.rng.range(0, 3);
        let (snapshots, volumes) = {
            let board = shared.board();
            (pairs(&board.snapshots), pairs(&board.volumes))
        };
        if source == 1 && !snapshots.is_empty() {
            let (from, fact) = self.rng.pick(&snapshots).clone();
            request.source = Some(SourceRef::Snapshot(snapshot(&from)));
            (request.class, request.size) = (None, None);
            // The name may mean a later snapshot by the time the request arrives.
            (after.class, after.mib, after.files) = (fact.class.clone(), None, None);
            origin = Some(fact);
        } else if source == 2 && !volumes.is_empty() {
            let (from, fact) = self.rng.pick(&volumes).clone();
            request.source = Some(SourceRef::Volume(volume(&from)));
            (request.class, request.size) = (None, None);
            let own = self.facts.volumes.contains_key(&from);
            after.class = fact.class;
            (after.mib, after.files) = if own { (fact.mib, fact.files) } else { (None, None) };
        }
        if shared.board().volumes.contains_key(name) {
            // A foreign client may still copy from what this one has deleted.
            shared.board().volumes.remove(name);
        }
        let doubt = Doubt::Volume(name.to_owned(), Some(after.clone()));
        // The source may be deleted, and made anew in another class, at any moment; and what is in use
        // as it is may not be copied at one instant.
        let expected = [Kind::Busy, Kind::NotFound, Kind::Precondition];
        let ended = self.ask(shared, Action::Create(request), doubt, &expected).await;
        if let Ended::Done(Answered::Volume(made)) = ended {
            let mut fact = VolumeFact::from(&*made);
            fact.files = match (&made.source, origin) {
                (Some(Source::Snapshot(id)), Some(origin)) if origin.id.as_ref() == Some(id) => {
                    origin.files
                }
                (Some(Source::Snapshot(_)), _) => None,
                (Some(Source::Volume(_)) | None, _) => after.files,
            };
            self.learn(shared, name, Some(fact));
        }
    }

    /// Does something to a volume that is there.
    async fn change(&mut self, shared: &Shared, name: &str, fact: VolumeFact) {
        match self.rng.range(0, 14) {
            0 => self.expand(shared, name, fact).await,
            1 => self.label(shared, name, fact).await,
            2 | 3 => self.snapshots(shared, name, &fact).await,
            4 => self.look(shared, name, &fact).await,
            5 => self.ask_for_what_is_refused(shared, name, &fact).await,
            6 | 7 if fact.used == Use::None => {
                let action = Action::Delete(name.to_owned());
                self.turn(shared, action, name, None).await;
            }
            _ if fact.used == Use::Mounted && !self.rng.one_in(4) => {
                self.write(shared, name, fact).await;
            }
            _ => self.bring(shared, name, fact).await,
        }
    }

    async fn expand(&mut self, shared: &Shared, name: &str, mut fact: VolumeFact) {
        let mib = fact.mib.unwrap_or_default() + 8;
        if mib <= LARGEST_MIB {
            fact.mib = Some(mib);
            self.turn(shared, Action::Expand(name.to_owned(), mib), name, Some(fact)).await;
        }
    }

    async fn label(&mut self, shared: &Shared, name: &str, mut fact: VolumeFact) {
        fact.label = (!self.rng.one_in(3)).then(|| self.rng.range(0, 1000).to_string());
        let action = Action::Label(name.to_owned(), LABEL, fact.label.clone());
        self.turn(shared, action, name, Some(fact)).await;
    }

    /// Takes a snapshot under a name that is free, or removes the one that has it.
    async fn snapshots(&mut self, shared: &Shared, of: &str, fact: &VolumeFact) {
        let name = self.rng.pick(&self.snapshot_names()).clone();
        if self.facts.snapshots.contains_key(&name) {
            let doubt = Doubt::Snapshot(name.clone(), None);
            let action = Action::DeleteSnapshot(name.clone());
            if let Ended::Done(_) = self.ask(shared, action, doubt, &[Kind::Busy]).await {
                self.facts.snapshots.remove(&name);
                shared.board().snapshots.remove(&name);
            }
            return;
        }
        let (class, mib, files) = (fact.class.clone(), fact.mib, fact.files.clone());
        let after = SnapshotFact { id: None, class, mib, files };
        let doubt = Doubt::Snapshot(name.clone(), Some(after.clone()));
        let action = Action::Snapshot(name.clone(), of.to_owned());
        // What is in use as it is cannot be held still.
        let still = match fact.used {
            Use::None | Use::Published => true,
            Use::Mounted => fact.class == IMAGES,
            Use::Attached => false,
        };
        let expected = if still { &[Kind::Busy][..] } else { &[Kind::Busy, Kind::Precondition] };
        let ended = self.ask(shared, action, doubt, expected).await;
        if let Ended::Done(Answered::Snapshot(taken)) = ended {
            let found = SnapshotFact::from(&*taken);
            assert!(after.is(&found), "asked for {after:?}, got {found:?}");
            let fact = SnapshotFact { id: found.id, ..after };
            shared.board().snapshots.insert(name.clone(), fact.clone());
            self.facts.snapshots.insert(name, fact);
        }
    }

    /// Brings a volume nearer to the node, or takes it away.
    async fn bring(&mut self, shared: &Shared, name: &str, mut fact: VolumeFact) {
        let own = name.to_owned();
        let mount = Action::Mount(own.clone(), shared.mounts.join(name));
        let (action, used) = match (fact.used, self.rng.range(0, 4)) {
            (Use::None, 0) => (Action::Publish(own), Use::Published),
            (Use::None | Use::Published, 1) => (Action::Attach(own), Use::Attached),
            (Use::Published, 0) => (Action::Unpublish(own), Use::None),
            (Use::Published, 2) | (Use::Attached, 0 | 1) => (Action::Detach(own), Use::None),
            (Use::Mounted, _) => (Action::Unmount(own), Use::None),
            (Use::None | Use::Published | Use::Attached, _) => (mount, Use::Mounted),
        };
        fact.used = used;
        self.turn(shared, action, name, Some(fact.clone())).await;
        let mounted = used == Use::Mounted && self.facts.doubt.is_none();
        if mounted && self.facts.volumes.get(name) == Some(&fact) {
            self.verify(shared, name, &fact).await;
        }
    }

    /// Writes a file. Blocks while a snapshot is taken, and while the server is dead if it died then.
    async fn write(&mut self, shared: &Shared, name: &str, mut fact: VolumeFact) {
        let (folder, seed) = (shared.mounts.join(name), self.rng.next());
        let file = format!("f{}", self.rng.range(0, 3));
        let written = {
            let file = file.clone();
            tokio::task::spawn_blocking(move || content::write(&folder, &file, seed)).await
        };
        written.expect("no panic").unwrap_or_else(|error| panic!("writing to {name}: {error}"));
        if let Some(files) = &mut fact.files {
            files.insert(file, seed);
        }
        self.count("write");
        self.learn(shared, name, Some(fact));
    }

    /// Reads what is in a mounted volume.
    async fn verify(&mut self, shared: &Shared, name: &str, fact: &VolumeFact) {
        verify(shared.mounts.join(name), fact).await;
        self.count("verified");
    }

    /// Everything that changes nothing.
    async fn look(&mut self, shared: &Shared, name: &str, fact: &VolumeFact) {
        let looked = async {
            let control = &shared.control;
            let found = VolumeFact::from(&control.get_volume(&volume(name)).await?);
            assert!(fact.is(&found), "{name} is {fact:?}, found {found:?}");
            let health = control.volume_health(&volume(name)).await?;
            let listed =
                control.list_volumes(&VolumeFilter::default(), &PageRequest::largest()).await?;
            assert!(listed.items.iter().any(|item| item.display_name() == name), "{name}: listed");
            control.list_snapshots(None, &PageRequest::largest()).await?;
            let some = PageRequest { limit: 10, token: None };
            control.list_operations(&OperationFilter::default(), &some).await?;
            control.capacity(&IMAGES.parse().expect("a legal class"), None).await?;
            Ok::<_, Error>(health)
        };
        match looked.await {
            Ok(health) => assert!(health.healthy, "{name}: {}", health.message),
            Err(error) => assert!(shared.stopped(), "looking at {name}: {error:?}"),
        }
    }

    /// Asks for what must be refused, with the right kind and without any effect.
    async fn ask_for_what_is_refused(&mut self, shared: &Shared, name: &str, fact: &VolumeFact) {
        let other = VolumeRequest::new(alias(name), ByteSize::mib(LARGEST_MIB + 8));
        let (action, kind) = match fact.used {
            Use::None => (Action::Create(other), Kind::Exists),
            Use::Published | Use::Attached | Use::Mounted => {
                (Action::Delete(name.to_owned()), Kind::Precondition)
            }
        };
        match action.send(&shared.control).await {
            Err(error) if error.kind() == kind || error.kind() == Kind::Busy => {}
            Err(error) => assert!(shared.stopped(), "{action:?}: {error:?}"),
            Ok(answer) => panic!("{action:?} was not refused: {answer:?}"),
        }
    }

    /// Asks for a change of one volume and takes its result into account.
    async fn turn(
        &mut self,
        shared: &Shared,
        action: Action,
        name: &str,
        fact: Option<VolumeFact>,
    ) {
        let doubt = Doubt::Volume(name.to_owned(), fact.clone());
        if let Ended::Done(answer) = self.ask(shared, action, doubt, &[Kind::Busy]).await {
            if let (Answered::Volume(found), Some(fact)) = (answer, &fact) {
                let found = VolumeFact::from(&*found);
                assert!(fact.is(&found), "asked for {fact:?}, got {found:?}");
            }
            self.learn(shared, name, fact);
        }
    }

    fn learn(&mut self, shared: &Shared, name: &str, fact: Option<VolumeFact>) {
        match fact {
            Some(fact) => {
                shared.board().volumes.insert(name.to_owned(), fact.clone());
                self.facts.volumes.insert(name.to_owned(), fact);
            }
            None => {
                shared.board().volumes.remove(name);
                self.facts.volumes.remove(name);
            }
        }
    }

    fn count(&mut self, word: &'static str) {
        *self.acknowledged.entry(word).or_default() += 1;
    }

    /// Asks for a change: plainly, twice at once, or impatiently.
    async fn ask(
        &mut self,
        shared: &Shared,
        action: Action,
        doubt: Doubt,
        expected: &[Kind],
    ) -> Ended {
        let control = &shared.control;
        let answer = match self.rng.range(0, 8) {
            0 => {
                let (one, two) = tokio::join!(action.send(control), action.send(control));
                better(one, two)
            }
            1 => {
                let patience = self.rng.millis(0, 20);
                impatient(shared, &action, patience).await
            }
            _ => action.send(control).await,
        };
        match answer {
            Ok(answer) => {
                self.count(action.word());
                Ended::Done(answer)
            }
            Err(error) if expected.contains(&error.kind()) && !error.is_unknown() => Ended::Refused,
            Err(error) => {
                let lost = error.is_unknown() || error.kind() == Kind::Unavailable;
                assert!(lost && shared.stopped(), "{action:?}: {error:?}");
                self.facts.doubt = Some(doubt);
                Ended::Cut
            }
        }
    }
}

/// Drops the call after a while, as a caller that goes away, and asks again until the answer is
/// known: a change that was begun must be found again.
async fn impatient(shared: &Shared, action: &Action, patience: Duration) -> Result<Answered> {
    let control = &shared.control;
    if let Ok(answer) = tokio::time::timeout(patience, action.send(control)).await {
        return answer;
    }
    let begun = Instant::now();
    loop {
        match action.send(control).await {
            // The call that was dropped may still be waiting for its turn.
            Err(error) if error.kind() == Kind::Busy && begun.elapsed().as_secs() < 30 => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answer => return answer,
        }
    }
}

/// The answer that says more, of two to the same request: it was done if one says so, and unknown if
/// one does not know.
fn better(one: Result<Answered>, two: Result<Answered>) -> Result<Answered> {
    match (one, two) {
        (Ok(answer), _) | (_, Ok(answer)) => Ok(answer),
        (Err(one), Err(two)) => {
            let lost = |error: &Error| error.is_unknown() || error.kind() == Kind::Unavailable;
            Err(if lost(&two) { two } else { one })
        }
    }
}

fn pairs<T: Clone>(map: &BTreeMap<String, T>) -> Vec<(String, T)> {
    map.iter().map(|(name, fact)| (name.clone(), fact.clone())).collect()
}

/// Panics unless a mounted volume holds what its client knows to be in it, on a file system as large
/// as the volume.
pub(super) async fn verify(folder: PathBuf, fact: &VolumeFact) {
    let shown = folder.display().to_string();
    let read = tokio::task::spawn_blocking(move || {
        let usage = rustix::fs::statvfs(&folder)?;
        Ok::<_, std::io::Error>((content::read(&folder)?, usage.f_blocks * usage.f_frsize))
    });
    let read = read.await.expect("no panic");
    let (found, size) = read.unwrap_or_else(|error| panic!("reading {shown}: {error}"));
    if let Some(files) = &fact.files {
        assert_eq!(&found, files, "what is in {shown}");
    }
    if let (IMAGES, Some(mib)) = (fact.class.as_str(), fact.mib) {
        // ext4 keeps at most a fifth of such small devices for itself.
        assert!(size >= (mib << 20) / 10 * 7, "{shown} has {size} bytes of {mib} MiB");
    }
}
