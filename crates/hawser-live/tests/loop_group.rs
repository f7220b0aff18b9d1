//! Groups of real, mounted volumes: what was written to several of them in order is in their
//! snapshots in order.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hawser_core::ByteSize;
use hawser_core::filesystem::FsKind;
use hawser_core::volume::SourceRef;
use hawser_live::real::{Real, snapshot};

/// Writes 1, 2, 3 … to both volumes, each number to the first and then to the second, and each
/// durable before the next.
struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// As an application has it that keeps its data in one volume and its log in another.
fn sequence(folder: &Path) -> PathBuf {
    folder.join("sequence")
}

impl Writer {
    fn start(first: &Path, second: &Path) -> Self {
        let files = [first, second].map(|folder| {
            let file = File::create(sequence(folder)).expect("it is mounted");
            file.write_all_at(&0_u64.to_le_bytes(), 0).expect("there is room");
            file.sync_all().expect("it can be synced");
            file
        });
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, count) = (stop.clone(), written.clone());
        let thread = std::thread::spawn(move || {
            let mut number = 0_u64;
            while !until.load(Ordering::Relaxed) {
                number += 1;
                for file in &files {
                    file.write_all_at(&number.to_le_bytes(), 0).expect("it is mounted");
                    file.sync_data().expect("it can be synced");
                }
                count.store(number, Ordering::Relaxed);
            }
        });
        Self { stop, written, thread }
    }

    /// Waits until so many more were written.
    fn wait_for(&self, more: u64) {
        let goal = self.written.load(Ordering::Relaxed) + more;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.written.load(Ordering::Relaxed) < goal {
            assert!(Instant::now() < deadline, "the writer stands still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the writer ends");
    }
}

fn read(folder: &Path) -> u64 {
    let bytes = std::fs::read(sequence(folder)).expect("it is mounted");
    u64::from_le_bytes(bytes.try_into().expect("one number"))
}

async fn order_is_kept_on(pool: FsKind) {
    let Some(real) = Real::start(pool).await else { return };
    for name in ["data", "log"] {
        real.create(name, ByteSize::mib(64), FsKind::Ext4).await.expect("there is room");
    }
    let data = real.mount("data").await.expect("it is new");
    let log = real.mount("log").await.expect("it is new");
    let writer = Writer::start(&data, &log);
    let mut last = 0;
    for round in 0..4 {
        writer.wait_for(20);
        let name = format!("g{round}");

        let taken = real.group(&name, &["data", "log"]).await.expect("a group");

        writer.wait_for(1);
        assert_eq!(taken, [format!("{name}.data"), format!("{name}.log")]);
        let mut found = Vec::new();
        for (member, copy) in taken.iter().zip(["data-back", "log-back"]) {
            real.copy(copy, SourceRef::Snapshot(snapshot(member))).await.expect("a copy");
            found.push(read(&real.mount(copy).await.expect("it holds a sound file system")));
        }
        let (first, second) = (found[0], found[1]);
        assert!(
            first == second || first == second + 1,
            "{pool}, round {round}: {first} and {second} were never there together"
        );
        assert!(
            second >= last + 19,
            "{pool}, round {round}: {second} after {last} is an old state"
        );
        last = second;
        for copy in ["data-back", "log-back"] {
            real.unmount(copy).await.expect("it is mounted");
            real.delete(copy).await.expect("it is not used");
        }
        real.delete_group(&name).await.expect("nobody copies it");
    }
    writer.end();
    for name in ["data", "log"] {
        real.unmount(name).await.expect("it is mounted");
        real.delete(name).await.expect("it is not used");
    }
    real.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_a_group_keeps_the_order_of_writes_where_copies_share_their_blocks() {
    order_is_kept_on(FsKind::Xfs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_a_group_keeps_the_order_of_writes_where_every_byte_is_copied() {
    order_is_kept_on(FsKind::Ext4).await;
}
