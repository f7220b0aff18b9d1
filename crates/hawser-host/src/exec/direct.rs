//! Runs a program on this host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hawser_core::port::host::{Arg, Tool, ToolOutput};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::error::ExecError;
use super::kept::Kept;
use super::redact::{Shown, scrub};

/// How much of the output is kept; a mount table or a JSON listing is far smaller.
const STDOUT_KEPT: usize = 1 << 20;
/// How much of the complaint is kept.
const STDERR_KEPT: usize = 64 << 10;
/// How long output may still come after the program itself has ended: a child of it that goes on
/// may hold the pipes open for ever.
const AFTERGLOW: Duration = Duration::from_millis(500);

/// Ends the whole process group when the caller goes away before the program did.
struct Group {
    leader: Option<Pid>,
}

impl Group {
    fn end(&mut self) {
        if let Some(leader) = self.leader.take() {
            // The leader has not been waited for, so its number cannot be another's by now.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the program at `path` and waits for its end, at most for its limit.
pub(super) async fn run(path: &Path, tool: &Tool) -> Result<ToolOutput, ExecError> {
    let mut command = prepare(path, tool)?;
    let shown = || Shown(tool).to_string();
    let failed = |source| ExecError::Start { command: shown(), source };
    let kept = keep(&mut command, tool).map_err(failed)?;
    let mut child = command.spawn().map_err(failed)?;
    // Ours only: the program has its own.
    drop(command);
    let leader = |child: &Child| child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    // A program that leaves a daemon behind is not ended with its caller: the daemon is what was
    // asked for, and half of one is worse than none.
    let mut group = Group { leader: leader(&child).filter(|_| !tool.leaves_daemon) };

    let ended = tokio::time::timeout(tool.limit, converse(&mut child, &mut group, tool)).await;
    let Ok(ended) = ended else {
        group.leader = leader(&child);
        group.end();
        // Reaps it; a killed program that hangs in the kernel is left to the runtime's reaper.
        let _ = tokio::time::timeout(AFTERGLOW, child.wait()).await;
        return Err(ExecError::Late { command: shown(), limit: tool.limit });
    };
    let lost = |source| ExecError::Wait { command: shown(), source };
    let (status, mut stdout, mut stderr) = ended.map_err(lost)?;
    group.leader = None;
    if let Some((said, complained)) = kept {
        (stdout, stderr) = (said.text().map_err(lost)?, complained.text().map_err(lost)?);
    }
    Ok(ToolOutput {
        program: tool.program.clone(),
        code: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: scrub(tool, String::from_utf8_lossy(&stderr).into_owned()),
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the one door")]
fn prepare(path: &Path, tool: &Tool) -> Result<Command, ExecError> {
    let args: Vec<&OsStr> = tool
        .args
        .iter()
        .map(|arg| match arg {
            Arg::Plain(text) => text.as_os_str(),
            Arg::Hidden(secret) => OsStr::new(secret.expose()),
        })
        .collect();
    if args.iter().any(|arg| arg.as_bytes().contains(&0)) {
        return Err(ExecError::Nul { program: tool.program.clone() });
    }
    let mut command = Command::new(path);
    command
        .args(args)
        .env_clear()
        .env("LC_ALL", "C.UTF-8")
        .env("PATH", super::DIRECTORIES.join(":"))
        .current_dir("/")
        .stdin(if tool.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(!tool.leaves_daemon);
    Ok(command)
}

/// Gives a program that leaves a daemon behind something to write to that does not end with us.
fn keep(command: &mut Command, tool: &Tool) -> std::io::Result<Option<(Kept, Kept)>> {
    if !tool.leaves_daemon {
        return Ok(None);
    }
    let (said, complained) = (Kept::new(STDOUT_KEPT)?, Kept::new(STDERR_KEPT)?);
    command.stdout(said.end()?).stderr(complained.end()?);
    Ok(Some((said, complained)))
}

type Ended = (std::process::ExitStatus, Vec<u8>, Vec<u8>);

/// Feeds the program, drains its output and waits for its end.
async fn converse(child: &mut Child, group: &mut Group, tool: &Tool) -> std::io::Result<Ended> {
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let feed = async {
        if let (Some(mut pipe), Some(text)) = (stdin, &tool.stdin) {
            // A program that ends without reading all of it is not a failure.
            let _ = pipe.write_all(text.expose().as_bytes()).await;
        }
    };
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    // In a box, so that what it borrows can be had back before the end of this function.
    let mut talk = Box::pin(async {
        tokio::join!(
            feed,
            drain(stdout, STDOUT_KEPT, &mut said),
            drain(stderr, STDERR_KEPT, &mut complained),
        );
    });
    let status = tokio::select! {
        () = &mut talk => child.wait().await?,
        status = child.wait() => {
            // Waited for: from here on its number may be another's.
            group.leader = None;
            let _ = tokio::time::timeout(AFTERGLOW, &mut talk).await;
            status?
        }
    };
    drop(talk);
    Ok((status, said, complained))
}

/// Keeps the first `most` bytes and reads on to the end, so that the program never blocks.
async fn drain(pipe: Option<impl AsyncRead + Unpin>, most: usize, kept: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 16 << 10];
    loop {
        match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                let room = most.saturating_sub(kept.len());
                kept.extend_from_slice(&buffer[..length.min(room)]);
            }
        }
    }
}
