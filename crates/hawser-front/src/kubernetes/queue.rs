//! What there is to do: keys of objects, each worked on by one worker at a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::error;

/// The first pause after a failure, and the longest: those of the sidecars.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// When a key is to be looked at again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Not until something changes.
    Done,
    /// After this time; it counts as success.
    After(Duration),
    /// After a pause that doubles with each failure.
    Retry,
}

/// Keys that wait for their turn.
pub(super) struct Queue<K> {
    state: Mutex<State<K>>,
    bell: Notify,
}

struct State<K> {
    /// Whose turn it is, in order, each once.
    ready: VecDeque<K>,
    waiting: HashSet<K>,
    /// Worked on now. What comes meanwhile is worked on again afterwards.
    running: HashSet<K>,
    later: BinaryHeap<Reverse<(Instant, K)>>,
    /// When each of those is really due. One time for each: a key that is added again and again while
    /// it fails would otherwise be tried more and more often.
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash + Ord + Send + 'static> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            waiting: HashSet::new(),
            running: HashSet::new(),
            later: BinaryHeap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        };
        Self { state: Mutex::new(state), bell: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    /// The earlier of two times stands.
    fn appoint(&mut self, key: K, due: Instant) {
        if self.due.get(&key).is_none_or(|known| due < *known) {
            self.due.insert(key.clone(), due);
            self.later.push(Reverse((due, key)));
        }
    }
}

impl<K: Clone + Debug + Eq + Hash + Ord + Send + Sync + 'static> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something about this key has changed.
    pub(super) fn add(&self, key: K) {
        let mut state = self.lock();
        if state.waiting.insert(key.clone()) {
            state.ready.push_back(key);
            drop(state);
            self.bell.notify_one();
        }
    }

    /// The next key, if there is one that nobody works on.
    fn take(&self, now: Instant) -> Option<K> {
        let mut state = self.lock();
        while state.later.peek().is_some_and(|Reverse((due, _))| *due <= now) {
            let Some(Reverse((due, key))) = state.later.pop() else { break };
            if state.due.get(&key) != Some(&due) {
                continue;
            }
            state.due.remove(&key);
            if state.waiting.insert(key.clone()) {
                state.ready.push_back(key);
            }
        }
        let place = state.ready.iter().position(|key| !state.running.contains(key))?;
        let key = state.ready.remove(place)?;
        state.waiting.remove(&key);
        state.running.insert(key.clone());
        Some(key)
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().later.peek().map(|Reverse((due, _))| *due)
    }

    fn done(&self, key: K, next: Next) {
        let mut state = self.lock();
        state.running.remove(&key);
        let pause = match next {
            Next::Done => None,
            Next::After(pause) => Some(pause),
            Next::Retry => {
                let failures = state.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                let doubled = FIRST_PAUSE.saturating_mul(1 << (*failures - 1).min(16));
                Some(doubled.min(LONGEST_PAUSE))
            }
        };
        if next != Next::Retry {
            state.failures.remove(&key);
        }
        if let Some(pause) = pause {
            state.appoint(key, Instant::now() + pause);
        }
    }

    /// Works until it is told to stop, then waits for what is being worked on.
    pub(super) async fn run<F>(
        &self,
        workers: usize,
        stop: CancellationToken,
        work: impl Fn(K) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Next> + Send + 'static,
    {
        let work = Arc::new(work);
        let mut tasks = JoinSet::new();
        let mut keys = HashMap::new();
        // What is added after the stop is for whoever comes next.
        while !stop.is_cancelled() {
            while tasks.len() < workers
                && let Some(key) = self.take(Instant::now())
            {
                let (work, own) = (work.clone(), key.clone());
                keys.insert(tasks.spawn(async move { work(own).await }).id(), key);
            }
            let due = self.next_due().filter(|_| tasks.len() < workers);
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.bell.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                Some(ended) = tasks.join_next_with_id() => self.ended(&mut keys, ended),
            }
        }
        while let Some(ended) = tasks.join_next_with_id().await {
            self.ended(&mut keys, ended);
        }
    }

    fn ended(&self, keys: &mut HashMap<Id, K>, ended: Result<(Id, Next), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(key) = keys.remove(&id) else { return };
        let next = ended.map_or_else(
            |error| {
                // What panics would mostly panic again, but for what has changed since.
                error!(?key, %error, "a worker ended badly; it is tried again later");
                Next::After(LONGEST_PAUSE)
            },
            |(_, next)| next,
        );
        self.done(key, next);
    }

    /// The keys that wait for their turn, now or later.
    #[cfg(test)]
    pub(super) fn pending(&self) -> std::collections::BTreeSet<K> {
        let state = self.lock();
        state.ready.iter().chain(state.due.keys()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// Works on a queue until `stop`, with one piece of work for every key.
    fn worked<F>(
        queue: &Arc<Queue<&'static str>>,
        stop: &CancellationToken,
        work: impl Fn(&'static str) -> F + Send + Sync + 'static,
    ) -> tokio::task::JoinHandle<()>
    where
        F: Future<Output = Next> + Send + 'static,
    {
        let (queue, stop) = (queue.clone(), stop.clone());
        tokio::spawn(async move { queue.run(4, stop, work).await })
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_by_one_at_a_time_and_again_for_what_came_meanwhile() {
        let (queue, stop) = (Arc::new(Queue::default()), CancellationToken::new());
        let (running, most, turns) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
        );
        let gate = Arc::new(Semaphore::new(0));
        let counted = (running.clone(), most.clone(), turns.clone(), gate.clone());
        let task = worked(&queue, &stop, move |_| {
            let (running, most, turns, gate) = counted.clone();
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await.expect("the gate is open").forget();
                running.fetch_sub(1, Ordering::SeqCst);
                turns.fetch_add(1, Ordering::SeqCst);
                Next::Done
            }
        });

        queue.add("a");
        while running.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        queue.add("a");
        queue.add("a");
        gate.add_permits(8);
        while turns.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        task.await.unwrap();

        assert_eq!((most.load(Ordering::SeqCst), turns.load(Ordering::SeqCst)), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_after_each_failure_and_end_with_a_success() {
        let (queue, stop) = (Arc::new(Queue::default()), CancellationToken::new());
        let times = Arc::new(Mutex::new(Vec::new()));
        let noted = times.clone();
        let begun = Instant::now();
        let task = worked(&queue, &stop, move |_| {
            let mut times = noted.lock().unwrap();
            times.push(begun.elapsed().as_secs());
            let next = match times.len() {
                1..=3 => Next::Retry,
                4 => Next::After(Duration::from_secs(10)),
                5 => Next::Retry,
                _ => Next::Done,
            };
            async move { next }
        });

        queue.add("a");
        tokio::time::sleep(Duration::from_secs(60)).await;
        stop.cancel();
        task.await.unwrap();

        assert_eq!(*times.lock().unwrap(), [0, 1, 3, 7, 17, 18]);
        assert!(queue.pending().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_at_work_comes_to_its_end_when_it_is_told_to_stop() {
        let (queue, stop) = (Arc::new(Queue::default()), CancellationToken::new());
        let ended = Arc::new(AtomicUsize::new(0));
        let counted = ended.clone();
        let task = worked(&queue, &stop, move |_| {
            let ended = counted.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                ended.fetch_add(1, Ordering::SeqCst);
                Next::Done
            }
        });
        queue.add("a");
        tokio::time::sleep(Duration::from_secs(1)).await;

        stop.cancel();
        queue.add("b");
        task.await.unwrap();

        assert_eq!(ended.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_while_it_fails_is_not_tried_more_often() {
        let queue = Arc::new(Queue::default());
        let stop = CancellationToken::new();
        let tries = Arc::new(AtomicUsize::new(0));
        let (running, counted) = (queue.clone(), tries.clone());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let work = move |_: &str| {
                counted.fetch_add(1, Ordering::Relaxed);
                async { Next::Retry }
            };
            running.run(4, stopped, work).await;
        });

        for _ in 0..100 {
            queue.add("key");
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        let before = tries.load(Ordering::Relaxed);
        tokio::time::sleep(LONGEST_PAUSE * 10).await;

        let after = tries.load(Ordering::Relaxed) - before;
        assert!((9..=11).contains(&after), "{after} tries in ten pauses");
        stop.cancel();
        task.await.unwrap();
    }

    /// An object that a worker cannot take in must not be lost until the next start.
    #[tokio::test(start_paused = true)]
    async fn a_key_whose_worker_fell_over_is_worked_on_again_later_or_when_it_changes() {
        let (queue, stop) = (Arc::new(Queue::default()), CancellationToken::new());
        let times = Arc::new(Mutex::new(Vec::new()));
        let noted = times.clone();
        let begun = Instant::now();
        let task = worked(&queue, &stop, move |_| {
            let mut times = noted.lock().unwrap();
            times.push(begun.elapsed().as_secs());
            let falls = times.len() < 3;
            async move {
                assert!(!falls, "as told");
                Next::Done
            }
        });

        queue.add("a");
        tokio::time::sleep(Duration::from_secs(10)).await;
        queue.add("a");
        tokio::time::sleep(LONGEST_PAUSE * 3).await;
        stop.cancel();
        task.await.unwrap();

        assert_eq!(*times.lock().unwrap(), [0, 10, 300]);
        assert!(queue.pending().is_empty());
    }
}
