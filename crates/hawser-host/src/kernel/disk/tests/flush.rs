use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use hawser_core::port::kernel::{KernelError, KernelResult};
use hawser_core::{Classify, Outcome};
use rustix::io::Errno;

use crate::kernel::disk::flush::Flushes;
use crate::workers::Workers;

const SOON: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(10);

type Answer = Result<(), (&'static str, Errno)>;

/// A device whose flushes end when the test says so.
#[derive(Clone)]
struct Stuck {
    begun: Arc<AtomicUsize>,
    answers: Arc<Mutex<mpsc::Receiver<Answer>>>,
}

impl Stuck {
    fn new() -> (Self, mpsc::Sender<Answer>) {
        let (release, answers) = mpsc::channel();
        let stuck = Self { begun: Arc::default(), answers: Arc::new(Mutex::new(answers)) };
        (stuck, release)
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    async fn flush(&self, all: &Flushes, workers: &Workers, limit: Duration) -> KernelResult<()> {
        let stuck = self.clone();
        let call = move || {
            stuck.begun.fetch_add(1, Ordering::SeqCst);
            stuck.answers.lock().unwrap().recv().unwrap()
        };
        all.run("flushing /dev/x".into(), workers, limit, call).await
    }
}

const FAILED: Answer = Err(("writing out", Errno::IO));

#[tokio::test]
async fn a_late_flush_goes_on_and_its_failure_is_the_next_answer() {
    let (device, release) = Stuck::new();
    let (flushes, workers) = (Flushes::default(), Workers::new(4));

    let late = device.flush(&flushes, &workers, SOON).await.unwrap_err();
    let still = device.flush(&flushes, &workers, SOON).await.unwrap_err();
    release.send(FAILED).unwrap();
    let failed = device.flush(&flushes, &workers, LONG).await.unwrap_err();

    assert!(matches!(late, KernelError::Late { .. }), "{late:?}");
    assert_eq!((late.outcome(), still.outcome()), (Outcome::Unknown, Outcome::Unknown));
    assert_eq!(failed.errno(), Some(Errno::IO.raw_os_error()));
    assert_eq!(device.begun(), 1, "one flush, three callers");
}

#[tokio::test]
async fn a_failure_that_came_while_nobody_waited_is_told() {
    let (device, release) = Stuck::new();
    let (flushes, workers) = (Flushes::default(), Workers::new(1));
    let _ = device.flush(&flushes, &workers, SOON).await;
    release.send(FAILED).unwrap();
    // The only place comes free when the flush has ended.
    workers.run("x", LONG, || ()).await.unwrap();

    let failed = device.flush(&flushes, &workers, LONG).await.unwrap_err();
    release.send(Ok(())).unwrap();
    let good = device.flush(&flushes, &workers, LONG).await;

    assert_eq!(failed.errno(), Some(Errno::IO.raw_os_error()));
    assert!(good.is_ok() && device.begun() == 2);
}

#[tokio::test]
async fn an_old_success_is_not_taken_for_a_new_one() {
    let (device, release) = Stuck::new();
    let (flushes, workers) = (Flushes::default(), Workers::new(4));
    let _ = device.flush(&flushes, &workers, SOON).await;

    release.send(Ok(())).unwrap();
    release.send(FAILED).unwrap();
    let answer = device.flush(&flushes, &workers, LONG).await;

    assert_eq!(answer.unwrap_err().errno(), Some(Errno::IO.raw_os_error()));
    assert_eq!(device.begun(), 2, "what was written since has to be written out");
}

#[tokio::test]
async fn callers_side_by_side_all_hear_of_a_failure() {
    let (device, release) = Stuck::new();
    let (flushes, workers) = (Arc::new(Flushes::default()), Workers::new(8));
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let (device, flushes, workers) = (device.clone(), flushes.clone(), workers.clone());
            tokio::spawn(async move { device.flush(&flushes, &workers, LONG).await })
        })
        .collect();
    tokio::time::sleep(SOON).await;
    assert_eq!(device.begun(), 1);

    release.send(FAILED).unwrap();

    for caller in callers {
        assert!(caller.await.unwrap().is_err());
    }
    assert_eq!(device.begun(), 1);
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_the_answer_to_the_next() {
    let (device, release) = Stuck::new();
    let (flushes, workers) = (Flushes::default(), Workers::new(4));

    let given_up = tokio::time::timeout(SOON, device.flush(&flushes, &workers, LONG)).await;
    release.send(FAILED).unwrap();
    let failed = device.flush(&flushes, &workers, LONG).await;

    assert!(given_up.is_err());
    assert_eq!(failed.unwrap_err().errno(), Some(Errno::IO.raw_os_error()));
}

#[tokio::test]
async fn a_flush_without_a_worker_was_not_begun() {
    let (device, release) = Stuck::new();
    let (flushes, workers) = (Flushes::default(), Workers::new(1));
    let other = Flushes::default();
    let _ = device.flush(&flushes, &workers, SOON).await;

    let refused = device.flush(&other, &workers, SOON).await.unwrap_err();

    assert!(
        matches!(refused, KernelError::NotBegun { .. } | KernelError::Late { .. }),
        "{refused:?}"
    );
    assert_eq!(device.begun(), 1);
    release.send(Ok(())).unwrap();
}
