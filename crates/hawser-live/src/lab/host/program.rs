//! Programs of the host. None of them outlives this process.

use std::process::{Command, Stdio};

use super::error::{Attempt, LabError, Result};
use crate::process;

/// Where Debian has what the lab uses; an ordinary user's own path lacks half of it.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How much of a failed program's output is shown.
const SHOWN_LINES: usize = 30;

/// A program that the kernel kills when this process ends, however that happens.
pub(super) fn bound(program: &str) -> Command {
    let mut command = process::command("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command.env("PATH", PATH).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

/// A program in namespaces of its own: its mounts are seen by nobody else and go with it, and so do
/// all processes that it starts.
pub(super) fn enclosed(program: &str) -> Command {
    let mut command = bound("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork"]);
    command.args(["--kill-child=KILL", "--mount-proc", program]);
    command
}

/// Runs it to its end and answers what it said on standard output.
pub(super) async fn run(what: &str, command: Command) -> Result<String> {
    let mut command = tokio::process::Command::from(command);
    let output =
        command.kill_on_drop(true).output().await.attempt(|| format!("starting {what}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        let tail = tail(&String::from_utf8_lossy(&said), SHOWN_LINES);
        return Err(LabError::Step { what: what.into(), status: output.status.to_string(), tail });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The last lines of a text.
pub(super) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_fails_is_quoted_with_its_last_lines() {
        let mut command = bound("sh");
        command.args(["-c", "seq 100; echo broken >&2; exit 3"]);

        let error = run("counting", command).await.unwrap_err().to_string();

        assert!(error.starts_with("counting failed: exit status: 3\n"), "{error}");
        assert!(error.ends_with("100\nbroken"), "{error}");
        assert!(!error.contains("\n60\n"), "{error}");
    }
}
