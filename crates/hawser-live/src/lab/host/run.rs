//! Runs suites and sums up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::cache::Cache;
use super::cargo::{self, Build, Built};
use super::error::{LabError, Result};
use super::recipe::Recipe;
use super::tally::{Counts, Tally, join};
use super::vm::{self, Ended, Vm};
use super::{Lab, image, initrd, job, needs, say};
use crate::lab::suites::{Image, Scratch, Set, Suite, minutes};

/// How often a suite is begun anew whose guest was killed by the emulator.
const AGAIN: usize = 2;

/// How such a death looks: QEMU without hardware virtualization now and then runs into code that the
/// kernel is just changing on its other processor, and meets a breakpoint that is gone already.
const EMULATOR: &str = "Oops: int3";

/// What one suite came to.
#[derive(Debug)]
struct Outcome {
    test: &'static str,
    counts: Counts,
    took: Duration,
    boot: Duration,
    /// Why it did not end by itself.
    error: Option<String>,
    /// True when a guest died before it had come up, or of the emulator.
    emulator_failed: bool,
}

/// Runs these suites, so many at a time; false when something failed.
pub async fn run(
    lab: &Lab,
    suites: &[&'static Suite],
    at_once: usize,
    args: &[String],
) -> Result<bool> {
    needs::check(needs::TO_RUN)?;
    let recipe = Recipe::read(&lab.repo.join("lab"))?;
    let cache = Cache::open(&lab.cache)?;
    let tests: Vec<&str> = suites.iter().map(|suite| suite.test).collect();
    say(&format!("building {}", tests.join(" ")));
    let built = cargo::build(lab, suites).await?;
    let turns = Turns { lab, recipe, cache, built, args, at_once };
    let turns = suites.iter().enumerate().map(|(place, suite)| {
        let turn = turns.take(suite);
        async move { Ok((place, turn.await?)) }
    });
    let turns = stream::iter(turns).buffer_unordered(at_once);
    let outcomes: BTreeMap<usize, Outcome> = turns.try_collect().await?;
    let outcomes: Vec<Outcome> = outcomes.into_values().collect();
    print!("{}", render(&outcomes));
    Ok(outcomes.iter().all(|outcome| outcome.counts.failed == 0))
}

/// Runs a bench in its guest: release builds, and figures instead of counts. False when it could not
/// be run to its end; a figure that is short is no failure.
pub async fn bench(lab: &Lab, bench: &'static Suite, how: Build, args: &[String]) -> Result<bool> {
    needs::check(needs::TO_RUN)?;
    let recipe = Recipe::read(&lab.repo.join("lab"))?;
    let cache = Cache::open(&lab.cache)?;
    say(&format!("building the bench {}", bench.test));
    let built = cargo::build_bench(lab, bench.test, how).await?;
    let turns = Turns { lab, recipe, cache, built, args, at_once: 1 };
    let outcome = turns.take(bench).await?;
    let (took, boot) = (outcome.took.as_secs(), outcome.boot.as_secs());
    say(&format!("{} took {took} s, boot {boot} s", bench.test));
    Ok(outcome.counts.failed == 0)
}

/// What every turn of a run has in common.
struct Turns<'a> {
    lab: &'a Lab,
    recipe: Recipe,
    cache: Cache,
    built: Built,
    args: &'a [String],
    at_once: usize,
}

impl Turns<'_> {
    /// Waits for a turn and runs one suite.
    async fn take(&self, suite: &'static Suite) -> Result<Outcome> {
        let Self { lab, recipe, cache, built, args, at_once } = self;
        let limit = suite.limit.as_secs();
        say(&format!("{} ({:?} image, at most {limit} s)", suite.test, suite.image));
        let begun = Instant::now();
        let parts = image::ensure(recipe, cache, suite.image, false).await?;
        let python = match suite.python {
            Some(list) => Some(image::python(recipe, cache, list).await?),
            None => None,
        };
        let _slot = cache.slot().await?;
        let job = Job {
            lab,
            recipe,
            cache,
            parts: &parts,
            python: python.as_deref(),
            built,
            suite,
            beside_others: *at_once > 1,
        };
        let (begun, waited) = (Instant::now(), begun.elapsed());
        if waited > Duration::from_secs(1) {
            say(&format!("{} starts after {} s", suite.test, waited.as_secs()));
        }
        let mut outcome = job.run(args).await?;
        for _ in 0..AGAIN {
            if !outcome.emulator_failed {
                break;
            }
            say(&format!("{}: the emulator failed; once more", suite.test));
            outcome = job.run(args).await?;
        }
        outcome.took = begun.elapsed();
        if let Some(error) = &outcome.error {
            say(&format!("{}: {error}", suite.test));
        }
        Ok(outcome)
    }
}

/// Boots a guest of an image, with the needs of a suite if one is named, and a shell in it.
pub async fn shell(lab: &Lab, image: Image, suite: Option<&'static Suite>) -> Result<()> {
    needs::check(needs::TO_RUN)?;
    let recipe = Recipe::read(&lab.repo.join("lab"))?;
    let cache = Cache::open(&lab.cache)?;
    let mut needs = suite.copied().unwrap_or(Suite {
        image,
        scratch: Scratch { count: 2, mib: 1024 },
        ..Suite::new("none", Set::Core, minutes(0))
    });
    needs.guests = 1;
    let built = cargo::build(lab, suite.as_slice()).await?;
    let parts = image::ensure(&recipe, &cache, needs.image, false).await?;
    let folder = cache.run_folder()?;
    initrd::make(&recipe, &parts, folder.path()).await?;
    job::disk(&lab.repo, &built, suite, None, &[], folder.path()).await?;
    vm::shell(&parts, &needs, folder.path()).await
}

/// One suite with all that it runs on.
struct Job<'a> {
    lab: &'a Lab,
    recipe: &'a Recipe,
    cache: &'a Cache,
    parts: &'a image::Parts,
    python: Option<&'a Path>,
    built: &'a Built,
    suite: &'static Suite,
    /// Its lines say whose they are.
    beside_others: bool,
}

impl Job<'_> {
    /// Runs it. A job that fails is an outcome; an error is what keeps any job from running.
    async fn run(&self, args: &[String]) -> Result<Outcome> {
        let folder = self.cache.run_folder()?;
        initrd::make(self.recipe, self.parts, folder.path()).await?;
        let (repo, suite) = (&self.lab.repo, Some(self.suite));
        job::disk(repo, self.built, suite, self.python, args, folder.path()).await?;
        let mut vms = Vec::new();
        for guest in 1..=self.suite.guests {
            vms.push(Vm::start(self.parts, self.suite, guest, folder.path()).await?);
        }
        let tallies: Vec<RefCell<Tally>> = vms.iter().map(|_| RefCell::default()).collect();
        let ended = self.follow(&mut vms, &tallies).await;
        let complaints: Vec<String> = vms.iter().flat_map(Vm::complaints).collect();
        for complaint in &complaints {
            say(&format!("the guest's kernel said: {complaint}"));
        }
        let mut outcome = Outcome {
            test: self.suite.test,
            counts: Counts::default(),
            took: Duration::ZERO,
            boot: Duration::ZERO,
            error: None,
            emulator_failed: false,
        };
        let tallies = tallies.into_iter().map(RefCell::into_inner);
        let codes = match ended {
            Ok(ended) => {
                outcome.boot = ended.iter().map(|ended| ended.boot).max().unwrap_or_default();
                for vm in vms {
                    vm.off().await;
                }
                ended.iter().map(|ended| ended.code).collect()
            }
            Err(error) => {
                let ready = vms.iter().all(Vm::is_ready);
                let tripped = complaints.iter().any(|line| line.contains(EMULATOR));
                let died = matches!(error, LabError::Died { .. });
                outcome.emulator_failed = died && (!ready || tripped);
                outcome.error = Some(error.to_string());
                vec![-1; vms.len()]
            }
        };
        let guests: Vec<(Tally, i32)> = tallies.zip(codes).collect();
        outcome.counts = join(&guests);
        Ok(outcome)
    }

    /// Follows all guests until each has ended its job, within the limit.
    async fn follow(&self, vms: &mut [Vm], tallies: &[RefCell<Tally>]) -> Result<Vec<Ended>> {
        let several = vms.len() > 1;
        let following = vms.iter_mut().zip(tallies).zip(1..).map(|((vm, tally), guest)| {
            let whose = match (self.beside_others, several) {
                (false, false) => String::new(),
                (false, true) => format!("[{guest}] "),
                (true, false) => format!("[{}] ", self.suite.test),
                (true, true) => format!("[{} {guest}] ", self.suite.test),
            };
            vm.follow(tally, move |line| println!("{whose}{line}"))
        });
        let all = futures_util::future::try_join_all(following);
        match tokio::time::timeout(self.suite.limit, all).await {
            Ok(ended) => ended,
            Err(_) => {
                let running = tallies.iter().map(|tally| tally.borrow().open_line());
                let consoles = vms.iter().map(Vm::console);
                let console = running.chain(consoles).collect::<Vec<_>>().join("\n");
                Err(LabError::Limit { limit: self.suite.limit, console })
            }
        }
    }
}

/// One line per suite, the reasons of what did not run, and the counts alone on the last line.
fn render(outcomes: &[Outcome]) -> String {
    let mut text = String::from("\n");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for Outcome { test, counts, took, boot, error, .. } in outcomes {
        let verdict = if error.is_some() { "did not end" } else { "ended" };
        text.push_str(&format!(
            "{test:<20} {:>3} passed, {:>2} failed, {:>2} skipped  {:>6.1} s, boot {:.1} s, {verdict}\n",
            counts.passed,
            counts.failed,
            counts.skipped.len(),
            took.as_secs_f64(),
            boot.as_secs_f64(),
        ));
        passed += counts.passed;
        failed += counts.failed;
        skipped += counts.skipped.len();
    }
    let notes: Vec<&String> = outcomes.iter().flat_map(|outcome| &outcome.counts.skipped).collect();
    if !notes.is_empty() {
        text.push_str("not run in the guest:\n");
    }
    for note in notes {
        text.push_str(&format!("  {note}\n"));
    }
    text.push_str(&format!("{passed} passed, {failed} failed, {skipped} skipped\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_stand_alone_on_the_last_line() {
        let outcome = |passed, failed, skipped: &[&str]| Outcome {
            test: "vm_a",
            counts: Counts {
                passed,
                failed,
                skipped: skipped.iter().map(|note| (*note).to_owned()).collect(),
            },
            took: Duration::from_secs(12),
            boot: Duration::from_secs(6),
            error: None,
            emulator_failed: false,
        };
        let text = render(&[outcome(3, 0, &["a: no card"]), outcome(2, 1, &[])]);
        assert!(text.contains("not run in the guest:\n  a: no card\n"), "{text}");
        assert!(text.ends_with("\n5 passed, 1 failed, 1 skipped\n"), "{text}");
    }
}
