//! How much of a pool is promised, and what may still be.
//!
//! Running sums: one create costs the same in an empty pool and in a full one. They are counted
//! from the pool's files when it is opened, so nothing has to be kept in step on disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hawser_core::ByteSize;
use hawser_core::class::Capacity;
use hawser_core::port::host::FsUsage;

use super::settings::Reserve;

/// Measuring what the files really use reads the whole pool; it may take this part of the time.
const MEASURE_SHARE: u32 = 20;

/// The sums of one pool.
pub(super) struct Ledger {
    overcommit: f64,
    reserve: Reserve,
    sums: Mutex<Sums>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Logical bytes of volumes, allocated bytes of snapshots.
    promised: u64,
    /// The same for what is being made now.
    reserved: u64,
    /// Bytes that running copies will write.
    copying: u64,
    /// What our files really used when last measured, corrected by what was made and removed since.
    used: u64,
    /// When that was, and how long it took.
    measured: Option<(Instant, Duration)>,
}

/// Why there is no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The pool has promised what it may.
    Promised(Capacity),
    /// The file system cannot take so large a copy now.
    Copy { free: ByteSize },
}

/// What something that exists counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// What was promised for it.
    pub(super) promised: u64,
    /// What it really uses.
    pub(super) used: u64,
}

impl Ledger {
    pub(super) fn new(overcommit: f64, reserve: Reserve) -> Self {
        Self { overcommit, reserve, sums: Mutex::default() }
    }

    /// Takes room for something that is about to be made: `promise` in the pool's books, `copy` on
    /// the medium. One step, so two callers cannot both take the last room.
    pub(super) fn reserve(
        self: &Arc<Self>,
        usage: &FsUsage,
        promise: u64,
        copy: u64,
    ) -> Result<Reservation, NoRoom> {
        let mut sums = self.sums();
        let capacity = self.capacity_of(&sums, usage);
        if promise > capacity.available.get() {
            return Err(NoRoom::Promised(capacity));
        }
        let free = usage.available.get().saturating_sub(sums.copying);
        if copy > free {
            return Err(NoRoom::Copy { free: ByteSize::bytes(free) });
        }
        sums.reserved += promise;
        sums.copying += copy;
        Ok(Reservation { ledger: Arc::clone(self), promise, copy })
    }

    /// Counts something that was found at opening.
    pub(super) fn found(&self, weight: Weight) {
        let mut sums = self.sums();
        sums.promised = sums.promised.saturating_add(weight.promised);
        sums.used = sums.used.saturating_add(weight.used);
    }

    /// Forgets something that was removed.
    pub(super) fn removed(&self, weight: Weight) {
        let mut sums = self.sums();
        sums.promised = sums.promised.saturating_sub(weight.promised);
        sums.used = sums.used.saturating_sub(weight.used);
    }

    /// True when measuring again is worth it: never done, or long enough ago for what it costs.
    pub(super) fn may_measure(&self) -> bool {
        self.sums().measured.is_none_or(|(at, cost)| at.elapsed() > cost * MEASURE_SHARE)
    }

    /// Notes what the files really use.
    pub(super) fn measured(&self, used: u64, cost: Duration) {
        let mut sums = self.sums();
        sums.used = used;
        sums.measured = Some((Instant::now(), cost));
    }

    /// The room now.
    pub(super) fn capacity(&self, usage: &FsUsage) -> Capacity {
        self.capacity_of(&self.sums(), usage)
    }

    fn capacity_of(&self, sums: &Sums, usage: &FsUsage) -> Capacity {
        // Blocks that copies share count once for each of them, so the sum may exceed the medium.
        let used = sums.used.min(usage.used.get());
        let medium = usage.available.get().saturating_add(used);
        let usable = medium.saturating_sub(self.reserve.of(usage.total));
        let total = scale(usable, self.overcommit);
        let promised = sums.promised.saturating_add(sums.reserved);
        let available = total.saturating_sub(promised);
        Capacity {
            total: ByteSize::bytes(total),
            available: ByteSize::bytes(available),
            promised: ByteSize::bytes(promised),
            used: ByteSize::bytes(used),
            largest_volume: ByteSize::bytes(available - available % super::UNIT),
        }
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        // Every change is a few additions, so a panic elsewhere cannot leave them half done.
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn scale(bytes: u64, factor: f64) -> u64 {
    // Exact where it matters most; a float loses single bytes above 8 PiB.
    let scaled = if factor == 1.0 { bytes } else { (bytes as f64 * factor) as u64 };
    scaled.min(i64::MAX as u64)
}

/// Room that was taken for something being made; given back when dropped.
pub(super) struct Reservation {
    ledger: Arc<Ledger>,
    promise: u64,
    copy: u64,
}

impl Reservation {
    /// It was made: what was reserved becomes this weight, in one step, so that nobody sees both.
    pub(super) fn commit(mut self, weight: Weight) {
        let mut sums = self.ledger.sums();
        sums.promised = sums.promised.saturating_add(weight.promised);
        sums.used = sums.used.saturating_add(weight.used);
        sums.reserved = sums.reserved.saturating_sub(self.promise);
        sums.copying = sums.copying.saturating_sub(self.copy);
        drop(sums);
        (self.promise, self.copy) = (0, 0);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut sums = self.ledger.sums();
        sums.reserved = sums.reserved.saturating_sub(self.promise);
        sums.copying = sums.copying.saturating_sub(self.copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(available: u64, used: u64) -> FsUsage {
        FsUsage {
            total: ByteSize::bytes(available + used),
            available: ByteSize::bytes(available),
            used: ByteSize::bytes(used),
            files: 0,
            files_free: 0,
        }
    }

    fn ledger(overcommit: f64) -> Arc<Ledger> {
        Arc::new(Ledger::new(overcommit, Reserve::Bytes(ByteSize::ZERO)))
    }

    #[test]
    fn the_last_room_is_given_once_and_comes_back() {
        let ledger = ledger(1.0);
        let first = ledger.reserve(&usage(100, 0), 60, 0).expect("room");

        assert!(ledger.reserve(&usage(100, 0), 60, 0).is_err());
        drop(first);

        assert!(ledger.reserve(&usage(100, 0), 60, 0).is_ok());
    }

    #[test]
    fn what_volumes_write_does_not_shrink_the_pool() {
        let ledger = ledger(1.0);
        ledger.found(Weight { promised: 60, used: 0 });
        ledger.measured(50, Duration::ZERO);

        let capacity = ledger.capacity(&usage(50, 50));

        assert_eq!(capacity.total.get(), 100);
        assert_eq!(capacity.available.get(), 40);
    }

    #[test]
    fn files_of_others_do_shrink_the_pool() {
        let ledger = ledger(1.0);

        assert_eq!(ledger.capacity(&usage(30, 70)).total.get(), 30);
    }

    #[test]
    fn shared_blocks_are_not_room() {
        let ledger = ledger(1.0);
        ledger.measured(400, Duration::ZERO);

        assert_eq!(ledger.capacity(&usage(60, 40)).total.get(), 100);
    }

    #[test]
    fn overcommit_scales_and_the_reserve_is_kept() {
        let ledger = Ledger::new(2.0, Reserve::Percent(10));

        assert_eq!(ledger.capacity(&usage(100, 0)).total.get(), 180);
    }

    #[test]
    fn copies_need_real_room_also_when_overcommitted() {
        let ledger = ledger(100.0);
        let _running = ledger.reserve(&usage(100, 0), 70, 70).expect("room");

        let refused = ledger.reserve(&usage(100, 0), 70, 70).err().expect("no room for two");

        assert_eq!(refused, NoRoom::Copy { free: ByteSize::bytes(30) });
    }

    #[test]
    fn more_promised_than_there_is_leaves_nothing() {
        let ledger = ledger(1.0);
        ledger.found(Weight { promised: 500, used: 0 });

        assert_eq!(ledger.capacity(&usage(100, 0)).available, ByteSize::ZERO);
    }
}
