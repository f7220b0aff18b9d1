//! The embedded store under SIGKILL: what was acknowledged is there afterwards, whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hawser_core::port::Store;
use hawser_core::port::store::{Cas, Key, Prefix, Revision};
use hawser_store::embedded::Embedded;

const ROUNDS: u64 = 12;
const WRITERS: u64 = 8;

/// The test that the child runs, and the argument that tells it where the store is.
const CHILD: &str = "child_writes_until_it_is_killed";
const STORE_FILE: &str = "killed.store";

fn key(writer: u64, n: u64) -> Key {
    format!("v/{writer}/{n:08}").parse().expect("a legal key")
}

/// A value that says which key it belongs to and can be checked to the last byte.
fn value(writer: u64, n: u64) -> Bytes {
    let size = 100 + (n * 997 + writer * 131) % 3000;
    (0..size).map(|at| (at ^ n ^ writer) as u8).collect()
}

/// Started again by the test below, in a folder that has a store to write to; run as an ordinary
/// test it finds none and has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_writes_until_it_is_killed() {
    let path = Path::new(STORE_FILE);
    if !path.exists() {
        return;
    }
    let store = Arc::new(Embedded::open(path).await.expect("open"));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.push(tokio::spawn(async move {
            for n in next_number(&*store, writer).await.. {
                let Cas::Done(made) =
                    store.create(&key(writer, n), value(writer, n)).await.expect("create")
                else {
                    panic!("a key of one writer is taken")
                };
                say("made", writer, n, made);
                if n % 3 == 0 {
                    let cas = store.delete(&key(writer, n), made).await.expect("delete");
                    let Cas::Done(gone) = cas else { panic!("a record of one writer changed") };
                    say("gone", writer, n, gone);
                }
            }
        }));
    }
    for writer in writers {
        writer.await.expect("the writer goes on until the kill");
    }
}

async fn next_number(store: &dyn Store, writer: u64) -> u64 {
    let below = Prefix::below(&["v", &writer.to_string()]);
    let mut after: Option<Key> = None;
    loop {
        let page = store.list(&below, after.as_ref(), 1000).await.expect("list");
        after = page.items.last().map(|(key, _)| key.clone()).or(after);
        if !page.more {
            break;
        }
    }
    // Numbers of removed records are skipped with some room: they were never above the last by
    // more than one.
    after.map_or(0, |key| key.last_segment().parse::<u64>().expect("a number") + 3)
}

/// One line per acknowledged change, on a stream that the harness does not capture.
fn say(what: &str, writer: u64, n: u64, revision: Revision) {
    let line = format!("{what} {writer} {n} {}\n", revision.0);
    std::io::stderr().lock().write_all(line.as_bytes()).expect("the parent listens");
}

#[expect(
    clippy::disallowed_methods,
    reason = "only another process can be killed; it is this test binary itself"
)]
fn start_child(folder: &Path) -> Child {
    std::process::Command::new(std::env::current_exe().expect("this test binary"))
        .args(["--exact", CHILD, "--nocapture"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the child")
}

/// Runs the child for a while, kills it, and answers the changes that it saw acknowledged.
fn acknowledged(folder: &Path, time: Duration) -> Vec<(String, u64, u64, u64)> {
    let mut child = start_child(folder);
    let lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for line in lines.split(b'\n') {
            let line = String::from_utf8(line.expect("read the pipe")).expect("text");
            let parts: Vec<&str> = line.split(' ').collect();
            let [what, writer, n, revision] = parts[..] else { panic!("the child said {line:?}") };
            let number = |text: &str| text.parse().expect("a number");
            seen.push((what.to_owned(), number(writer), number(n), number(revision)));
        }
        seen
    });
    std::thread::sleep(time);
    child.kill().expect("kill the child");
    child.wait().expect("reap the child");
    reader.join().expect("the reader ends with the pipe")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_changes_survive_a_kill() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(STORE_FILE);
    drop(Embedded::open(&path).await.expect("open"));
    let mut model: BTreeMap<Key, u64> = BTreeMap::new();
    let mut removed: BTreeSet<Key> = BTreeSet::new();
    let (mut total, mut newest) = (0, 0);

    for round in 0..ROUNDS {
        let time = Duration::from_millis(120 + round * 37 % 150);
        let at = folder.path().to_path_buf();
        let seen = tokio::task::spawn_blocking(move || acknowledged(&at, time));
        for (what, writer, n, revision) in seen.await.expect("the child was killed") {
            total += 1;
            newest = newest.max(revision);
            match what.as_str() {
                "made" => drop(model.insert(key(writer, n), revision)),
                "gone" => {
                    model.remove(&key(writer, n));
                    removed.insert(key(writer, n));
                }
                other => panic!("the child said {other:?}"),
            }
        }

        let started = Instant::now();
        let store = Embedded::open(&path).await.expect("open after the kill");
        assert!(started.elapsed() < Duration::from_secs(2), "slow: {:?}", started.elapsed());
        verify(&store, &mut model, newest).await;
        let back: Vec<_> = model.keys().filter(|key| removed.contains(key)).collect();
        assert!(back.is_empty(), "{back:?} were removed and are back");
    }

    assert!(total > ROUNDS * 10, "only {total} changes were acknowledged");
}

/// Everything acknowledged is there; what is there beyond it is whole, and counted from now on.
async fn verify(store: &Embedded, model: &mut BTreeMap<Key, u64>, newest: u64) {
    let mut found = BTreeMap::new();
    let mut after: Option<Key> = None;
    loop {
        let page = store.list(&Prefix::all(), after.as_ref(), 500).await.expect("list");
        assert!(page.revision.0 >= newest, "the store forgot revision {newest}");
        after = page.items.last().map(|(key, _)| key.clone());
        for (key, record) in page.items {
            let mut parts =
                key.as_str().split('/').skip(1).map(|part| part.parse().expect("number"));
            let (writer, n) = (parts.next().expect("writer"), parts.next().expect("number"));
            assert!(record.value == value(writer, n), "{key} is torn");
            found.insert(key, record.revision.0);
        }
        if !page.more {
            break;
        }
    }
    let mut in_flight = 0;
    for (key, revision) in &*model {
        match found.get(key) {
            Some(there) => assert_eq!(there, revision, "{key} went back"),
            // Its removal was committed and the kill came before the word of it.
            None => {
                let n: u64 = key.last_segment().parse().expect("a number");
                assert!(n.is_multiple_of(3), "{key} was acknowledged and is lost");
                in_flight += 1;
            }
        }
    }
    in_flight += found.keys().filter(|key| !model.contains_key(key)).count() as u64;
    assert!(in_flight <= WRITERS, "{in_flight} changes differ, more than were in flight");
    *model = found;
}
