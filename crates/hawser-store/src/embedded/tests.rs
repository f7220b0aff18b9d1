use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use futures_util::future::join_all;
use hawser_core::Kind;
use hawser_testkit::contract::store::StoreRig;
use proptest::prelude::*;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use tempfile::TempDir;

use super::*;

/// Makes the disk below the database fail, as long as it is told to.
#[derive(Debug, Default)]
pub(super) struct Faults {
    writes: AtomicBool,
    syncs: AtomicBool,
    reads: AtomicU8,
}

impl Faults {
    pub(super) fn wrap(self: &Arc<Self>, inner: FileBackend) -> impl StorageBackend {
        Faulty { inner, faults: Arc::clone(self) }
    }
}

#[derive(Debug)]
struct Faulty {
    inner: FileBackend,
    faults: Arc<Faults>,
}

impl StorageBackend for Faulty {
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.inner.close()
    }

    fn len(&self) -> Result<u64, io::Error> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let left = self.faults.reads.load(Ordering::SeqCst);
        if left > 0 {
            self.faults.reads.store(left - 1, Ordering::SeqCst);
            return Err(io::Error::other("unreadable sector"));
        }
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        if self.faults.writes.load(Ordering::SeqCst) && len > self.inner.len()? {
            return Err(ErrorKind::StorageFull.into());
        }
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        if self.faults.syncs.swap(false, Ordering::SeqCst) {
            return Err(io::Error::other("the disk did not answer"));
        }
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        // The first page is there already: a full disk still takes what is overwritten in place.
        if self.faults.writes.load(Ordering::SeqCst) && offset >= 4096 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.inner.write(offset, data)
    }
}

async fn rig() -> StoreRig {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    StoreRig::new(changes::CHANGES_KEPT, move || {
        let folder = Arc::clone(&folder);
        Box::pin(async move {
            let store = Embedded::open(folder.path().join("store")).await.expect("open");
            Arc::new(store) as Arc<dyn Store>
        })
    })
    .await
}

hawser_testkit::store_contract!(rig().await);

fn key(text: &str) -> Key {
    text.parse().expect("a legal key")
}

async fn open(path: &Path) -> Embedded {
    Embedded::open(path).await.expect("open")
}

async fn refused(path: &Path) -> hawser_core::Error {
    match Embedded::open(path).await {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

fn done(cas: hawser_core::Result<Cas>) -> Revision {
    match cas.expect("the store answers") {
        Cas::Done(revision) => revision,
        Cas::Conflict => panic!("a conflict where none can be"),
    }
}

#[tokio::test]
async fn a_new_store_is_for_its_owner_only_and_leaves_no_draft() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");

    let _store = open(&path).await;

    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_draft_that_a_crash_left_is_started_afresh() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    fs::write(folder.path().join("store.new"), b"half a store").unwrap();

    let store = open(&path).await;

    done(store.create(&key("a"), "x".into()).await);
    assert!(!folder.path().join("store.new").exists());
}

#[tokio::test]
async fn a_store_that_is_in_use_is_refused_in_plain_words() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let first = open(&path).await;

    let error = refused(&path).await;

    assert_eq!(error.kind(), Kind::Busy);
    assert!(error.sentence().contains("another hawser server uses the store"), "{error}");
    drop(first);
    open(&path).await;
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_refused_with_both_versions() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    drop(open(&path).await);
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert(file::FORMAT, 7).unwrap();
    transaction.commit().unwrap();
    drop(database);

    let error = refused(&path).await;

    assert_eq!(error.kind(), Kind::Precondition);
    let sentence = error.sentence();
    assert!(sentence.contains("format 7") && sentence.contains("up to 1"), "{sentence}");
    assert!(sentence.contains("hawser store export"), "{sentence}");
}

#[tokio::test]
async fn what_is_no_store_is_refused_and_left_as_it_is() {
    let folder = TempDir::new().unwrap();
    let whole = folder.path().join("whole");
    drop(open(&whole).await);
    let whole = fs::read(&whole).unwrap();
    let garbage: Vec<u8> =
        (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let samples: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("text", b"volume,size\nv1,10\n"),
        ("garbage", &garbage),
        ("zeroes", &[0; 65536]),
        ("cut in the header", &whole[..100]),
        ("cut in the middle", &whole[..whole.len() / 2]),
    ];

    for (what, bytes) in samples {
        let path = folder.path().join("sample");
        fs::write(&path, bytes).unwrap();

        let error = refused(&path).await;

        assert_eq!(error.kind(), Kind::Internal, "{what}: {error:?}");
        assert!(error.sentence().contains("hawser store import"), "{what}: {error:?}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "{what} was changed");
    }
}

#[tokio::test]
async fn another_database_is_no_store() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("other");
    drop(Database::create(&path).unwrap());

    assert_eq!(refused(&path).await.kind(), Kind::Internal);
}

#[tokio::test]
async fn a_folder_or_a_missing_folder_is_refused() {
    let folder = TempDir::new().unwrap();

    assert_eq!(refused(folder.path()).await.kind(), Kind::Invalid);
    assert_eq!(refused(&folder.path().join("no/store")).await.kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_value_beyond_the_limit_is_refused_before_it_is_queued() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder.path().join("store")).await;

    let error = store.create(&key("a"), vec![0; LARGEST_VALUE + 1].into()).await.unwrap_err();

    assert_eq!(error.kind(), Kind::OutOfRange);
    done(store.create(&key("a"), vec![0; LARGEST_VALUE].into()).await);
}

#[tokio::test]
async fn a_full_disk_refuses_writes_changes_nothing_and_leaves_reads_working() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder.path().join("store")).await;
    let first = done(store.create(&key("a"), "one".into()).await);
    let faults = Arc::clone(&store.live.file().faults);

    for _ in 0..3 {
        faults.writes.store(true, Ordering::SeqCst);
        let name = key("a");
        let writes = (0..5).map(|_| store.put(&name, vec![1; 50_000].into(), first));
        for error in join_all(writes).await.into_iter().map(Result::unwrap_err) {
            assert_eq!(
                (error.kind(), error.outcome()),
                (Kind::NoSpace, Outcome::Nothing),
                "{error:?}"
            );
        }
        let found = store.get(&key("a")).await.unwrap().unwrap();
        assert_eq!((found.value, found.revision), ("one".into(), first));
    }
    faults.writes.store(false, Ordering::SeqCst);

    let second = done(store.put(&key("a"), "two".into(), first).await);
    assert!(second > first);
    drop(store);
    let store = open(&folder.path().join("store")).await;
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().value, "two");
}

#[tokio::test]
async fn a_failed_flush_is_never_answered_as_done_and_no_revision_is_given_twice() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder.path().join("store")).await;
    let first = done(store.create(&key("a"), "one".into()).await);
    let mut watch = store.watch(&Prefix::all(), first).await.unwrap();
    store.live.file().faults.syncs.store(true, Ordering::SeqCst);

    let error = store.put(&key("a"), "two".into(), first).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable);
    let found = store.get(&key("a")).await.unwrap().unwrap();
    match error.outcome() {
        Outcome::Nothing => assert_eq!(found.revision, first),
        Outcome::Unknown => assert!(found.revision >= first),
        Outcome::RolledBack => panic!("nothing is taken back"),
    }
    let third = done(store.put(&key("a"), "three".into(), found.revision).await);
    assert!(third > found.revision);
    let told = futures_util::StreamExt::next(&mut watch).await.unwrap().unwrap();
    match told {
        Watched::Put(_, found) => assert_eq!(found.revision, third),
        Watched::Compacted => assert!(error.is_unknown()),
        Watched::Deleted(..) => panic!("nothing was removed"),
    }
}

#[tokio::test]
async fn an_unreadable_page_is_read_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let store = open(&path).await;
    for n in 0..2000 {
        if n % 100 == 0 {
            join_all((n..n + 100).map(|n| {
                let name = key(&format!("v/{n}"));
                let store = &store;
                async move { done(store.create(&name, vec![1; 4000].into()).await) }
            }))
            .await;
        }
    }
    store.live.file().faults.reads.store(1, Ordering::SeqCst);

    let listed = store.list(&Prefix::all(), None, 10_000).await.unwrap();

    assert_eq!(listed.items.len(), 2000);
    assert_eq!(store.live.file().faults.reads.load(Ordering::SeqCst), 0, "no read failed");
    done(store.create(&key("after"), "x".into()).await);
}

#[tokio::test]
async fn a_long_page_of_large_values_is_cut_by_bytes() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder.path().join("store")).await;
    for n in 0..5 {
        done(store.create(&key(&format!("v/{n}")), vec![0; LARGEST_VALUE].into()).await);
    }

    let listing = store.list(&Prefix::all(), None, 1000).await.unwrap();

    assert!(listing.more);
    assert_eq!(listing.items.len(), PAGE_BYTES / LARGEST_VALUE);
}

#[tokio::test]
async fn replacing_records_does_not_grow_the_file_without_bound() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let store = open(&path).await;
    let names: Vec<_> = (0..100).map(|n| key(&format!("v/{n}"))).collect();
    let value = Bytes::from(vec![1; 2000]);
    let mut revisions = join_all(names.iter().map(|name| store.create(name, value.clone()))).await;
    let mut early = 0;

    for round in 0..60 {
        let puts = names.iter().zip(revisions).map(|(name, revision)| {
            let (store, value) = (&store, value.clone());
            async move { store.put(name, value, done(revision)).await }
        });
        revisions = join_all(puts).await;
        if round == 10 {
            early = fs::metadata(&path).unwrap().len();
        }
    }

    let late = fs::metadata(&path).unwrap().len();
    assert!(late <= early * 2, "{early} bytes after 10 rounds, {late} after 60");
}

#[tokio::test]
async fn dropping_the_store_writes_what_is_queued_and_ends_its_watches() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let store = Arc::new(open(&path).await);
    let mut watch = store.watch(&Prefix::all(), Revision(0)).await.unwrap();
    for n in 0..20 {
        let name = key(&format!("v/{n:02}"));
        let mut change = store.create(&name, "x".into());
        // Polled once, so it is in the queue, and then abandoned; a quick disk may be done by now.
        let _ = futures_util::FutureExt::now_or_never(&mut change);
    }

    drop(store);

    let mut seen = 0;
    while let Some(change) = futures_util::StreamExt::next(&mut watch).await {
        assert!(matches!(change.unwrap(), Watched::Put(..)));
        seen += 1;
    }
    assert_eq!(seen, 20);
    assert_eq!(open(&path).await.list(&Prefix::all(), None, 100).await.unwrap().items.len(), 20);
}

#[derive(Clone, Debug)]
enum Step {
    Create(u8, u16),
    Put(u8, u16, bool),
    Delete(u8, bool),
    List(u8, u8),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..24_u8, any::<u16>()).prop_map(|(k, v)| Step::Create(k, v)),
        6 => (0..24_u8, any::<u16>(), any::<bool>()).prop_map(|(k, v, fresh)| Step::Put(k, v, fresh)),
        3 => (0..24_u8, any::<bool>()).prop_map(|(k, fresh)| Step::Delete(k, fresh)),
        3 => (0..24_u8, 0..6_u8).prop_map(|(after, limit)| Step::List(after, limit)),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Names whose byte order differs from the order of their numbers, some nested.
fn name(index: u8) -> Key {
    let group = ["a", "a-b", "ab", "b"][usize::from(index % 4)];
    key(&format!("{group}/{}", index / 4))
}

fn value(seed: u16) -> Bytes {
    vec![seed as u8; usize::from(seed) % 5000].into()
}

async fn follow(path: &Path, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut store = open(path).await;
    let mut model: BTreeMap<Key, Versioned> = BTreeMap::new();
    let mut last = Revision(0);
    for step in steps {
        let current = |model: &BTreeMap<Key, Versioned>, index, fresh: bool| {
            let found = model.get(&name(index)).map_or(Revision(0), |found| found.revision);
            if fresh { found } else { Revision(found.0 + 1) }
        };
        let (index, new, expected, cas) = match step {
            Step::Create(index, seed) => {
                let cas = store.create(&name(index), value(seed)).await;
                (index, Some(value(seed)), !model.contains_key(&name(index)), cas)
            }
            Step::Put(index, seed, fresh) => {
                let cas = store.put(&name(index), value(seed), current(&model, index, fresh)).await;
                (index, Some(value(seed)), fresh && model.contains_key(&name(index)), cas)
            }
            Step::Delete(index, fresh) => {
                let cas = store.delete(&name(index), current(&model, index, fresh)).await;
                (index, None, fresh && model.contains_key(&name(index)), cas)
            }
            Step::List(after, limit) => {
                let listing =
                    store.list(&Prefix::below(&["a"]), Some(&name(after)), limit.into()).await;
                let mut wanted = model
                    .iter()
                    .filter(|(key, _)| key.as_str().starts_with("a/") && **key > name(after));
                let listing = listing.expect("list");
                prop_assert!(
                    listing
                        .items
                        .iter()
                        .map(|(k, v)| (k, v))
                        .eq(wanted.by_ref().take(limit.into()))
                );
                prop_assert_eq!(listing.more, wanted.next().is_some());
                prop_assert_eq!(listing.revision, last);
                continue;
            }
            Step::Reopen => {
                drop(store);
                store = open(path).await;
                continue;
            }
        };
        match cas.expect("the store answers") {
            Cas::Conflict => prop_assert!(!expected),
            Cas::Done(revision) => {
                prop_assert!(expected && revision > last);
                last = revision;
                match new {
                    Some(value) => drop(model.insert(name(index), Versioned { value, revision })),
                    None => drop(model.remove(&name(index))),
                }
            }
        }
        prop_assert_eq!(
            store.get(&name(index)).await.expect("get"),
            model.get(&name(index)).cloned()
        );
    }
    let all = store.list(&Prefix::all(), None, 1000).await.expect("list").items;
    prop_assert!(all.into_iter().eq(model));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_agrees_with_an_ordered_map(steps in steps()) {
        let folder = TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(follow(&folder.path().join("store"), steps))?;
    }

    #[test]
    fn a_file_with_flipped_bytes_opens_or_is_refused_but_never_crashes(
        flips in proptest::collection::vec((0..8192_usize, 1..=255_u8), 1..4),
    ) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = open(&path).await;
            done(store.create(&key("a"), "x".into()).await);
        });
        let mut bytes = fs::read(&path).unwrap();
        for (at, flip) in flips {
            bytes[at] ^= flip;
        }
        fs::write(&path, bytes).unwrap();

        let opened = runtime.block_on(Embedded::open(&path));

        if let Err(error) = opened {
            prop_assert_ne!(error.kind(), Kind::Unavailable, "{:?}", error);
        }
    }
}
