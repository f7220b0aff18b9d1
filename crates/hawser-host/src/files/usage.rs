//! How full a file system is.
//!
//! A file system whose server is dead never answers, and a question to it takes a worker away for good.
//! Whoever watches over volumes asks again and again all the same. So there is never more than one
//! question about a path of a mount under way: the next one waits for its answer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::port::host::FsUsage;
use rustix::fs::statvfs;
use rustix::io::Errno;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::copy::failed;
use super::error::FileError;
use crate::mount::table;
use crate::mount::target::check_plain;
use crate::workers::{WorkerError, Workers};

/// What is done, for whoever waits in vain.
const WHAT: &str = "asking how full a file system is";

type Answer = Result<FsUsage, Errno>;

/// A path, and the kernel's number of the mount that it lies on: what is mounted there next must not
/// wait for what a dead server was asked.
type Subject = (u64, PathBuf);

/// The questions that are under way.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<HashMap<Subject, Asked>>);

/// A question that is under way, as those see it who wait for it too.
#[derive(Clone, Debug)]
struct Asked {
    began: Instant,
    answer: watch::Receiver<Option<Answer>>,
}

/// The same as its worker has it. It is under way until this is dropped.
struct Question {
    questions: Arc<Questions>,
    subject: Subject,
    answer: Option<Answer>,
    teller: watch::Sender<Option<Answer>>,
}

impl Questions {
    /// Asks the file system below `path`.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        workers: &Workers,
        limit: Duration,
        path: &Path,
    ) -> Result<FsUsage, FileError> {
        check_plain(path)?;
        let now = Instant::now();
        let deadline = now + limit;
        let looked_up = path.to_owned();
        let mount = workers.run(WHAT, limit, move || mount_of(&looked_up)).await??;
        loop {
            let (mut asked, first) = self.join((mount, path.to_owned()));
            if let Some(question) = first {
                // The answer comes to all who wait, this caller among them.
                drop(workers.start(WHAT, deadline, move || question.put()).await?);
            }
            let heard = timeout_at(deadline, asked.answer.wait_for(Option::is_some)).await;
            match heard.map(|answer| answer.ok().and_then(|answer| *answer)) {
                Ok(Some(answer)) if asked.began >= now => {
                    return answer.map_err(failed("asking how full the file system is at", path));
                }
                // It may be of before something that this caller knows of; or whoever asked gave up
                // before it was begun.
                Ok(_) if Instant::now() < deadline => {}
                Ok(_) | Err(_) => return Err(WorkerError::Late { what: WHAT, limit }.into()),
            }
        }
    }

    /// The question about a path that is under way, or a new one.
    fn join(self: &Arc<Self>, subject: Subject) -> (Asked, Option<Question>) {
        let mut map = self.map();
        if let Some(asked) = map.get(&subject) {
            return (asked.clone(), None);
        }
        let (teller, answer) = watch::channel(None);
        let asked = Asked { began: Instant::now(), answer };
        map.insert(subject.clone(), asked.clone());
        let questions = Arc::clone(self);
        (asked, Some(Question { questions, subject, answer: None, teller }))
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Subject, Asked>> {
        // Nothing that holds it can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// Blocks: for workers only.
    fn put(mut self) {
        self.answer = Some(usage(&self.subject.1));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // In this order: who finds the answer too old asks anew.
        self.questions.map().remove(&self.subject);
        self.teller.send_replace(self.answer);
    }
}

/// The kernel's number of the mount that a path lies on, as its name tells: the path itself is not
/// looked at.
fn mount_of(path: &Path) -> Result<u64, FileError> {
    let table = table::read()?;
    // Later mounts cover earlier ones, and max_by_key answers the last of equals.
    let over = table
        .iter()
        .filter(|entry| path.starts_with(&entry.target))
        .max_by_key(|entry| entry.target.components().count());
    Ok(over.map_or(0, |entry| entry.id))
}

fn usage(path: &Path) -> Answer {
    let stat = statvfs(path)?;
    let bytes = |blocks: u64| ByteSize::bytes(blocks.saturating_mul(stat.f_frsize));
    Ok(FsUsage {
        total: bytes(stat.f_blocks),
        available: bytes(stat.f_bavail),
        used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        files: stat.f_files,
        files_free: stat.f_ffree,
    })
}

#[cfg(test)]
mod tests {
    use hawser_core::{Classify, Kind};

    use super::*;

    #[tokio::test]
    async fn questions_that_hang_take_one_worker_in_all() {
        let (workers, questions) = (Workers::new(2), Arc::<Questions>::default());
        let path = Path::new("/");
        let (asked, hanging) = questions.join((mount_of(path).unwrap(), path.into()));
        let ask = |limit| questions.ask(&workers, Duration::from_millis(limit), path);

        for _ in 0..4 {
            let late = ask(100).await.unwrap_err();
            assert_eq!(late.kind(), Kind::Timeout, "{late:?}");
        }
        let free = workers.run("x", Duration::from_secs(10), || 7).await;
        assert_eq!(free.unwrap(), 7);
        drop((asked, hanging));

        assert!(ask(10_000).await.unwrap().total > ByteSize::ZERO);
        assert!(questions.map().is_empty());
    }

    #[tokio::test]
    async fn an_answer_of_before_the_question_is_not_taken_for_one() {
        let (workers, questions) = (Workers::new(2), Arc::<Questions>::default());
        let path = Path::new("/");
        let (_, question) = questions.join((mount_of(path).unwrap(), path.into()));
        let mut question = question.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let asking = questions.ask(&workers, Duration::from_secs(20), path);
        let told = async {
            // Long enough for it to wait by now.
            tokio::time::sleep(Duration::from_millis(200)).await;
            question.answer = Some(Err(Errno::STALE));
            drop(question);
        };

        let (answer, ()) = tokio::join!(asking, told);

        assert!(answer.unwrap().total > ByteSize::ZERO);
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_found_and_leaves_no_question() {
        let (workers, questions) = (Workers::new(2), Arc::<Questions>::default());
        let limit = Duration::from_secs(20);

        let error = questions.ask(&workers, limit, Path::new("/no/such")).await.unwrap_err();
        let odd = questions.ask(&workers, limit, Path::new("no/such")).await.unwrap_err();

        assert_eq!((error.kind(), odd.kind()), (Kind::NotFound, Kind::Invalid));
        assert!(questions.map().is_empty());
    }
}
