//! Random clients against the shipped program, which is killed under them again and again.
//!
//! In each round several clients ask for whatever comes to their mind, until the server is killed
//! with SIGKILL at a random moment; sometimes it is killed again while it starts. Then it is started
//! once more, and everything must be true: what was acknowledged is there, the change that each
//! client had under way is made or not made, and host, pools and records agree exactly. Data that was
//! written and synced is there too.

mod action;
mod check;
mod client;
mod content;
mod model;
mod rng;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hawser_core::port::Control;

use crate::process::{Ground, Program};
use action::{Action, NODE};
use check::Doubts;
use client::{Board, Client, Shared};
pub use rng::Rng;

/// How many clients work at the same time.
const CLIENTS: u64 = 4;

/// A client hears of the server's death at once; a write waits until a start thaws its volume.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Two classes, with far more promised than there is: the volumes are small and mostly empty.
const SETTINGS: &str = r#"
log = "info"
default_class = "default"
[class.default]
provider = "local"
kind = "image"
overcommit = 100.0
[class.folders]
provider = "local"
kind = "folder"
overcommit = 100.0
"#;

/// What a run came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// How often the server was killed.
    pub kills: u32,
    /// How often of those while it started.
    pub kills_at_start: u32,
    /// Changes that were acknowledged, by word.
    pub acknowledged: BTreeMap<&'static str, u64>,
    /// Changes that were cut off, and were made.
    pub made: u64,
    /// Changes that were cut off, and were not made.
    pub undone: u64,
}

impl Tally {
    /// One line.
    pub fn line(&self) -> String {
        let counted = Action::WORDS.iter().filter_map(|word| {
            let count = self.acknowledged.get(word)?;
            Some((format!("{word} {count}"), count))
        });
        let (each, counts): (Vec<String>, Vec<u64>) = counted.unzip();
        let other = |word| self.acknowledged.get(word).copied().unwrap_or_default();
        format!(
            "kills {} ({} during start-up), operations acknowledged {} ({}), files written {}, volumes read back {}, operations cut off {} ({} made, {} not made); lost 0, half-made 0, leaked 0",
            self.kills,
            self.kills_at_start,
            counts.iter().sum::<u64>(),
            each.join(", "),
            other("write"),
            other("verified"),
            self.made + self.undone,
            self.made,
            self.undone
        )
    }

    /// Operations that were never acknowledged: a run that has some proves nothing about them.
    pub fn missing(&self) -> Vec<&'static str> {
        let words = Action::WORDS.iter().copied();
        words.filter(|word| !self.acknowledged.contains_key(word)).collect()
    }
}

/// Kills the server so often. Panics when anything is lost, half-made or left.
pub async fn run(kills: u32, seed: u64) -> Tally {
    let ground = Ground::new();
    let settings = ground.path().join("settings.toml");
    fs::write(&settings, SETTINGS).expect("the ground can be written");
    let settings = settings.display().to_string();
    let mut round = Round {
        args: vec!["up", "--config", &settings, "--node-id", NODE],
        ground: &ground,
        rng: Rng::new(seed),
        tally: Tally::default(),
    };
    let mut clients: Vec<Client> = (0..CLIENTS).map(|number| Client::new(number, seed)).collect();
    let mut program = round.start().await;
    while round.tally.kills < kills {
        (program, clients) = round.play(program, clients).await;
    }
    for client in &clients {
        for (word, count) in &client.acknowledged {
            *round.tally.acknowledged.entry(word).or_default() += count;
        }
    }
    let tally = round.tally;
    clean_up(&ground, program).await;
    tally
}

struct Round<'a> {
    args: Vec<&'a str>,
    ground: &'a Ground,
    rng: Rng,
    tally: Tally,
}

impl Round<'_> {
    /// Starts the server until it is ready; kills it while it starts, once in a while.
    async fn start(&mut self) -> Program {
        while self.tally.kills > 0 && self.rng.one_in(5) {
            let mut program = self.ground.start("up", &self.args);
            tokio::time::sleep(self.rng.millis(1, 120)).await;
            program.kill();
            self.tally.kills += 1;
            self.tally.kills_at_start += 1;
        }
        let mut program = self.ground.start("up", &self.args);
        program.wait_ready(&self.ground.client()).await;
        program
    }

    /// Lets the clients work, kills the server under them, starts it again and checks everything.
    async fn play(&mut self, mut program: Program, clients: Vec<Client>) -> (Program, Vec<Client>) {
        let shared = Arc::new(Shared {
            control: self.ground.client(),
            stop: AtomicBool::new(false),
            board: Board::default().into(),
            mounts: self.ground.mounts(),
        });
        for client in &clients {
            let mut board = shared.board.lock().expect("nobody else has it yet");
            board.volumes.extend(client.facts.volumes.clone());
            board.snapshots.extend(client.facts.snapshots.clone());
        }
        let tasks: Vec<_> =
            clients.into_iter().map(|client| tokio::spawn(client.work(shared.clone()))).collect();
        tokio::time::sleep(self.rng.millis(20, 400)).await;
        shared.stop.store(true, Ordering::SeqCst);
        program.kill();
        self.tally.kills += 1;
        drop(program);
        let program = self.start().await;
        let mut clients = Vec::new();
        for task in tasks {
            let ended = tokio::time::timeout(END_LIMIT, task).await.expect("clients end");
            match ended {
                Ok(client) => clients.push(client),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        let Doubts { made, undone } = check::check(self.ground, &shared, &mut clients).await;
        self.tally.made += made;
        self.tally.undone += undone;
        (program, clients)
    }
}

/// Removes everything through the server, after which nothing may be left but history.
async fn clean_up(ground: &Ground, mut program: Program) {
    let control = ground.client();
    let records = check::settle(&control).await;
    for volume in &records.volumes {
        let name = volume.display_name();
        for action in
            [Action::Unmount(name.clone()), Action::Detach(name.clone()), Action::Delete(name)]
        {
            action.send(&control).await.unwrap_or_else(|error| panic!("{action:?}: {error:?}"));
        }
    }
    for snapshot in &records.snapshots {
        let action = Action::DeleteSnapshot(snapshot.alias.to_string());
        action.send(&control).await.unwrap_or_else(|error| panic!("{action:?}: {error:?}"));
    }
    let records = check::settle(&control).await;
    assert!(records.volumes.is_empty() && records.snapshots.is_empty(), "not everything went");
    assert_eq!(control.doctor(false).await.expect("the doctor looks"), []);
    program.stop();
    ground.assert_no_traces();
    for folder in ["volumes", "snapshots", "staging"] {
        for pool in ["pool", "pool-folders"] {
            let left = check::names(&ground.state().join(pool).join(folder));
            assert!(left.is_empty(), "left in {pool}/{folder}: {left:?}");
        }
    }
    assert_eq!(check::names(&ground.mounts()), Default::default(), "folders were left");
    assert_store_is_empty(ground);
}

/// The store may remember operations and nodes, and nothing else.
fn assert_store_is_empty(ground: &Ground) {
    let file = ground.path().join("export.jsonl");
    ground.ok(&["store", "export", &file.display().to_string()]);
    let text = fs::read_to_string(&file).expect("the export was written");
    let left: Vec<&str> = text
        .lines()
        .filter(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON lines");
            line["key"]
                .as_str()
                .is_some_and(|key| !key.starts_with("operation/") && !key.starts_with("node/"))
        })
        .collect();
    assert!(left.is_empty(), "left in the store: {left:?}");
}
