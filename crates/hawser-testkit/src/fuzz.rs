//! Parsers against damaged input: a corpus of answers, captured or written, and what becomes of them on the way.
//!
//! A corpus is a folder below `testdata/corpus` of a crate, one answer per file. [`fuzz_corpus!`]
//! gives a parser two tests: it reads every file, whole and cut off anywhere, and it reads files
//! that were damaged at random, as often as `PROPTEST_CASES` says. It must neither panic nor take
//! longer than a moment. An input that broke a parser is added to its corpus.
//!
//! [`fuzz_corpus!`]: crate::fuzz_corpus

use std::fmt::Debug;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestError, TestRunner};
use serde_json::{Map, Value, json};

/// A parser that needs longer for one input hangs.
const LIMIT: Duration = Duration::from_secs(20);

/// Longer inputs are cut: doubling must not feed itself.
const LONGEST: usize = 1 << 16;

/// Words that parsers stumble over.
const WORDS: [&[u8]; 22] = [
    b"\0",
    b"\n",
    b" ",
    b"-1",
    b"0",
    b"18446744073709551616",
    b"4294967295",
    b"0x",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\"",
    b"::",
    b"=",
    b",",
    b"../",
    b"\\",
    b"\xff\xfe",
    "ü\u{2028}".as_bytes(),
    b"99999999999999999999999999999999999999999",
    b"/",
];

/// What a parser does with bytes; its answer does not matter, that it answers does.
pub type Read = fn(&[u8]);

/// Two tests of one parser over one corpus: `fuzz_corpus!(module, "folder", |bytes| …)`.
#[macro_export]
macro_rules! fuzz_corpus {
    ($module:ident, $folder:literal, $read:expr) => {
        #[cfg(test)]
        mod $module {
            #[allow(unused_imports, reason = "a parser may be named by its whole path")]
            use super::*;

            const ROOT: &str = env!("CARGO_MANIFEST_DIR");

            #[test]
            fn every_answer_of_the_corpus_is_read_whole_and_cut_off() {
                $crate::fuzz::whole_and_cut_off(ROOT, $folder, $read);
            }

            #[test]
            fn no_damage_to_the_corpus_makes_it_panic_or_hang() {
                $crate::fuzz::damaged(ROOT, $folder, $read);
            }
        }
    };
}

/// The files of a corpus, in the order of their names.
///
/// # Panics
///
/// When there are none: a parser without samples was tested against nothing.
#[track_caller]
pub fn corpus(root: &str, folder: &str) -> Vec<Vec<u8>> {
    let path = Path::new(root).join("testdata/corpus").join(folder);
    let entries = std::fs::read_dir(&path);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", path.display());
    let read = |path| std::fs::read(path).expect("a readable file");
    paths.iter().map(read).collect()
}

/// Feeds every file of the corpus, and the beginnings of each.
#[track_caller]
pub fn whole_and_cut_off(root: &str, folder: &str, read: Read) {
    let entries = corpus(root, folder);
    watched(move |alive| {
        for entry in &entries {
            let step = entry.len().div_ceil(500).max(1);
            for end in (0..entry.len()).step_by(step).chain([entry.len()]) {
                alive.begin(&entry[..end]);
                read(&entry[..end]);
            }
        }
        Ok(())
    });
}

/// Feeds damaged files.
#[track_caller]
pub fn damaged(root: &str, folder: &str, read: Read) {
    let entries = Arc::new(corpus(root, folder));
    watched(move |alive| {
        run(&damage(entries), |bytes| {
            alive.begin(&bytes);
            read(&bytes);
        })
    });
}

/// Feeds files of JSON in which values were exchanged, dropped and added: what a caller sends that
/// means something else.
#[track_caller]
pub fn damaged_json(root: &str, folder: &str, read: fn(Value)) {
    let entries = corpus(root, folder);
    let parse = |bytes: &Vec<u8>| serde_json::from_slice::<Value>(bytes).ok();
    let values: Vec<Value> = entries.iter().filter_map(parse).collect();
    assert!(!values.is_empty(), "no file of {folder} is JSON");
    watched(move |alive| {
        run(&damaged_value(values), |value| {
            alive.begin(value.to_string().as_bytes());
            read(value);
        })
    });
}

fn run<S: Strategy<Value: Debug>>(strategy: &S, test: impl Fn(S::Value)) -> Result<(), String> {
    let config = Config { failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(strategy, |input| {
        test(input);
        Ok(())
    });
    outcome.map_err(|error| match error {
        TestError::Fail(why, input) => format!("{why}; the smallest input: {input:?}"),
        TestError::Abort(why) => why.to_string(),
    })
}

/// Runs a test on a thread of its own and fails when one input takes too long.
#[track_caller]
fn watched(test: impl FnOnce(Alive) -> Result<(), String> + Send + 'static) {
    let (sender, signs) = mpsc::channel();
    let latest = Arc::<Mutex<Vec<u8>>>::default();
    let alive = Alive { sender, latest: latest.clone() };
    let worker = thread::spawn(move || test(alive));
    loop {
        match signs.recv_timeout(LIMIT) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let input = latest.lock().unwrap_or_else(PoisonError::into_inner);
                panic!("it hangs on {:?}", String::from_utf8_lossy(&input));
            }
        }
    }
    match worker.join() {
        Ok(Ok(())) => {}
        Ok(Err(why)) => panic!("{why}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Says that the next input has begun.
struct Alive {
    sender: Sender<()>,
    latest: Arc<Mutex<Vec<u8>>>,
}

impl Alive {
    fn begin(&self, input: &[u8]) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clear();
        latest.extend_from_slice(input);
        // Nobody listens any more when the test has been given up.
        let _ = self.sender.send(());
    }
}

/// One thing that happens to bytes; places are shares of the whole, so they fit any input.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Cut(Index),
    Drop(Index, Index),
    Double(Index, Index),
    Insert(Index, Index),
    Splice(Index, Index),
}

fn damage(entries: Arc<Vec<Vec<u8>>>) -> impl Strategy<Value = Vec<u8>> {
    let place = any::<Index>;
    let one = prop_oneof![
        4 => (place(), 1_u8..).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        1 => place().prop_map(Damage::Cut),
        2 => (place(), place()).prop_map(|(a, b)| Damage::Drop(a, b)),
        2 => (place(), place()).prop_map(|(a, b)| Damage::Double(a, b)),
        3 => (place(), place()).prop_map(|(at, word)| Damage::Insert(at, word)),
        1 => (place(), place()).prop_map(|(at, other)| Damage::Splice(at, other)),
    ];
    (place(), vec(one, 1..6)).prop_map(move |(which, damages)| {
        let mut bytes = which.get(&entries).clone();
        for one in damages {
            one.apply(&mut bytes, &entries);
            bytes.truncate(LONGEST);
        }
        bytes
    })
}

impl Damage {
    fn apply(self, bytes: &mut Vec<u8>, entries: &[Vec<u8>]) {
        let place = |index: Index| index.index(bytes.len() + 1);
        let span = |a: Index, b: Index| {
            let (a, b) = (place(a), place(b));
            a.min(b)..a.max(b)
        };
        match self {
            Self::Flip(at, bits) => {
                let at = place(at);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bits;
                }
            }
            Self::Cut(at) => bytes.truncate(place(at)),
            Self::Drop(a, b) => drop(bytes.drain(span(a, b))),
            Self::Double(a, b) => {
                let span = span(a, b);
                let (end, part) = (span.end, bytes[span].to_vec());
                bytes.splice(end..end, part);
            }
            Self::Insert(at, word) => {
                let at = place(at);
                bytes.splice(at..at, word.get(&WORDS).iter().copied());
            }
            Self::Splice(at, other) => {
                let at = place(at);
                bytes.truncate(at);
                let other = other.get(entries);
                bytes.extend_from_slice(&other[at.min(other.len())..]);
            }
        }
    }
}

/// Values that are not what a field expects.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
        "(-|--|/|\\.\\./|0x)?[0-9a-z:.,/-]{0,20}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, 1, "x", ["y"]])),
        Just(json!({ "volume_id": 7, "target_lun": "0x1" })),
        Just(json!("a".repeat(5000))),
    ]
}

fn damaged_value(values: Vec<Value>) -> impl Strategy<Value = Value> {
    let edit = (any::<Index>(), odd_value(), 0..4_u8);
    (any::<Index>(), vec(edit, 1..4)).prop_map(move |(which, edits)| {
        let mut value = which.get(&values).clone();
        for (at, new, how) in edits {
            let at = at.index(count(&value));
            change(&mut value, at, &new, how);
        }
        value
    })
}

/// How many values there are in a value, itself included.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// Changes the value with this number, counted from the outside; answers what is left to count.
fn change(value: &mut Value, at: usize, new: &Value, how: u8) -> Option<usize> {
    if at == 0 {
        match (value, how) {
            (Value::Array(items), 1) => items.push(new.clone()),
            (Value::Array(items), 2) => drop(items.pop()),
            (Value::Object(fields), 1) => drop(fields.insert("data".into(), new.clone())),
            (Value::Object(fields), 2) => drop_field(fields),
            // Most often a list in place of its only item, or the other way round.
            (value, 3) => *value = json!([value.take(), new]),
            (value, _) => *value = new.clone(),
        }
        return None;
    }
    let mut left = at - 1;
    let inner: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for inner in inner {
        left = change(inner, left, new, how)?;
    }
    Some(left)
}

fn drop_field(fields: &mut Map<String, Value>) {
    if let Some(name) = fields.keys().next().cloned() {
        fields.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Arc<Vec<Vec<u8>>> {
        Arc::new(vec![b"name:r0 minor:1\n".to_vec(), b"{\"a\": [1, 2]}".to_vec()])
    }

    #[test]
    fn damage_differs_from_the_corpus_and_stays_near_it() {
        let corpus = entries();
        let known = corpus.clone();
        let (mut same, mut all) = (0, 0);
        let seen = std::cell::RefCell::new((&mut same, &mut all));
        run(&damage(corpus), |bytes| {
            let mut seen = seen.borrow_mut();
            *seen.1 += 1;
            *seen.0 += usize::from(known.contains(&bytes));
            assert!(bytes.len() < 1000);
        })
        .unwrap();
        assert!(same * 4 < all, "{same} of {all} were not damaged");
    }

    #[test]
    fn every_value_inside_a_value_can_be_changed() {
        let value = json!({ "a": [1, { "b": null }], "c": "x" });
        assert_eq!(count(&value), 6);
        for at in 0..6 {
            let mut changed = value.clone();
            assert_eq!(change(&mut changed, at, &json!("new"), 0), None);
            assert_ne!(changed, value, "{at}");
        }
    }

    #[test]
    #[should_panic(expected = "the smallest input")]
    fn a_parser_that_panics_is_found() {
        watched(|alive| {
            run(&damage(entries()), |bytes| {
                alive.begin(&bytes);
                assert!(!bytes.contains(&0), "a zero");
            })
        });
    }
}
