//! Somebody who uses a device while a test does things to it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::wait_for;

const BLOCK: usize = 4096;

/// Blocks after which it begins anew.
const ROUND: u64 = 1024;

/// Writes that must come through for the load to count as going on.
const GOING_ON: u64 = 8;

/// Writes one block after the other down to the storage, until told to stop. A test that fails
/// meanwhile does not wait for it: a write may never come back.
pub struct Load {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    /// Held during each write.
    turn: Arc<Mutex<()>>,
    worker: JoinHandle<io::Result<()>>,
}

impl Load {
    /// On this device.
    pub fn start(device: &Path) -> Self {
        let device = device.to_owned();
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let turn = Arc::new(Mutex::new(()));
        let (told, count, gate) = (stop.clone(), written.clone(), turn.clone());
        let worker = std::thread::spawn(move || {
            let file = File::options().write(true).open(device)?;
            while !told.load(Ordering::Relaxed) {
                let _alone = gate.lock().unwrap_or_else(PoisonError::into_inner);
                let turn = count.load(Ordering::Relaxed);
                file.write_all_at(&block(turn), place(turn))?;
                file.sync_data()?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { stop, written, turn, worker }
    }

    /// Waits until it has written more, from now on.
    #[track_caller]
    pub fn goes_on(&self, limit: Duration) {
        let then = self.written.load(Ordering::Relaxed);
        wait_for("more writes", limit, || {
            (self.written.load(Ordering::Relaxed) > then + GOING_ON).then_some(())
        });
    }

    /// Does something between two writes, for what cannot stand one that is under way.
    pub fn between_writes(&self, act: impl FnOnce()) {
        let _alone = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        act();
    }

    /// Ends it; no write may have failed. Answers how many there were.
    #[track_caller]
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.worker.join().expect("a writer").expect("no write fails");
        self.written.load(Ordering::Relaxed)
    }

    /// Ends it, and finds its last writes at the storage, which is read by offset and length.
    #[track_caller]
    pub fn stop_and_compare(self, read: impl Fn(u64, usize) -> Vec<u8>) {
        let count = self.stop();
        for turn in count.saturating_sub(64)..count {
            assert_eq!(read(place(turn), BLOCK), block(turn), "write {turn}");
        }
    }
}

fn block(turn: u64) -> Vec<u8> {
    vec![(turn % 251) as u8; BLOCK]
}

fn place(turn: u64) -> u64 {
    (turn % ROUND) * BLOCK as u64
}
