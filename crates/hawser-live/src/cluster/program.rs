//! Programs that run to their end: a limit on each, and what they said when they fail.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::error::{Attempt, ClusterError, Result};
use super::say;
use crate::{child, process};

/// Where Debian has what is used of the machine.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How much of a program's output is shown.
pub(super) const SHOWN_LINES: usize = 30;

/// How often a long step says that it is still at work.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// How a program ended that may fail.
#[derive(Debug)]
pub struct Done {
    /// Its exit code or signal.
    pub status: std::process::ExitStatus,
    /// What it said.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// A program of the machine, with nothing of our environment but the path.
pub(super) fn of_machine(program: &str) -> Command {
    let mut command = process::command(program);
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C.UTF-8");
    command
}

/// Runs it to its end and answers what it said; a failure is an error with its last lines.
pub(super) fn run(what: &str, command: &mut Command, limit: Duration) -> Result<String> {
    run_with(what, command, &[], limit)
}

/// The same with something on standard input.
pub(super) fn run_with(
    what: &str,
    command: &mut Command,
    input: &[u8],
    limit: Duration,
) -> Result<String> {
    let done = end(what, command, input, limit)?;
    if !done.status.success() {
        let tail = tail(&format!("{}{}", done.stdout, done.stderr), SHOWN_LINES);
        return Err(ClusterError::Step { what: what.to_owned(), status: done.status, tail });
    }
    Ok(done.stdout)
}

/// Runs it to its end, whatever that is. One that takes too long is killed, and an error.
pub(super) fn end(
    what: &str,
    command: &mut Command,
    input: &[u8],
    limit: Duration,
) -> Result<Done> {
    let starting = || format!("starting {what}");
    // Through files: whatever it leaves behind would hold a pipe open.
    let file = || tempfile::tempfile().attempt(starting);
    let (mut stdin, mut out, mut err) = (file()?, file()?, file()?);
    stdin.write_all(input).and_then(|()| stdin.rewind()).attempt(starting)?;
    let copy = |file: &File| file.try_clone().attempt(starting);
    command.stdin(Stdio::from(stdin)).stdout(copy(&out)?).stderr(copy(&err)?).process_group(0);
    let mut child = command.spawn().attempt(starting)?;
    let begun = Instant::now();
    let status = loop {
        let left = limit.saturating_sub(begun.elapsed());
        if let Some(status) = child::wait(&mut child, left.min(SIGN_OF_LIFE)) {
            break Some(status);
        }
        if left <= SIGN_OF_LIFE {
            break None;
        }
        say(&format!("still {what}, for {} s now", begun.elapsed().as_secs()));
    };
    if status.is_none() {
        child::kill(&mut child);
    }
    let (stdout, stderr) = (read_back(&mut out), read_back(&mut err));
    match status {
        Some(status) => Ok(Done { status, stdout, stderr }),
        None => {
            let tail = tail(&format!("{stdout}{stderr}"), SHOWN_LINES);
            Err(ClusterError::Slow { what: what.to_owned(), limit, tail })
        }
    }
}

fn read_back(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read back is only missing from a message.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last lines of a text.
pub(super) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The last lines of a file; nothing when it is not there.
pub(super) fn file_tail(path: &Path, count: usize) -> String {
    tail(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()), count)
}

/// A program of the machine and the Debian package that has it.
pub(super) type Need = (&'static str, &'static str);

/// Fails with all that is missing, not with the first one.
pub(super) fn check(needs: &[Need]) -> Result<()> {
    let missing = needs.iter().filter(|(program, _)| find(program).is_none());
    let missing: Vec<String> =
        missing.map(|(name, package)| format!("{name} ({package})")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(ClusterError::Missing { programs: missing.join(", ") })
}

/// Where a program of the machine is.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    PATH.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Command {
        let mut command = of_machine("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_fails_is_quoted_with_its_last_lines() {
        let error = run("counting", &mut shell("seq 100; echo broken >&2; exit 3"), SOON);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("counting failed: exit status: 3\n"), "{error}");
        assert!(error.ends_with("100\nbroken"), "{error}");
        assert!(!error.contains("\n60\n"), "{error}");
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed_with_what_it_started() {
        let begun = Instant::now();
        let mut command = shell("echo begun; sleep 60 & sleep 60");

        let error = run("dawdling", &mut command, Duration::from_millis(300)).unwrap_err();

        assert!(matches!(&error, ClusterError::Slow { tail, .. } if tail == "begun"), "{error}");
        assert!(begun.elapsed() < SOON);
    }

    #[test]
    fn a_program_reads_what_it_is_given() {
        let said = run_with("reading", &mut shell("cat"), b"words\n", SOON).unwrap();
        assert_eq!(said, "words\n");
    }

    #[test]
    fn all_missing_programs_are_named_with_their_packages() {
        let needs = [("sh", "dash"), ("no-such-a", "a"), ("no-such-b", "b")];
        let error = check(&needs).unwrap_err().to_string();
        assert!(error.ends_with("no-such-a (a), no-such-b (b)"), "{error}");
    }
}
