//! The program itself: how large it is when idle, how fast it starts, how fast it starts again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hawser_core::page::PageRequest;
use hawser_core::port::Control;
use hawser_core::port::control::VolumeFilter;
use hawser_live::process::{Ground, Program, binary, command};

use hawser_live::report::{Figure, Report, mebibytes, median, milliseconds, rest, seconds};

/// How often a command is started.
const STARTS: usize = 50;
/// How often the server is started again.
const RESTARTS: usize = 3;
/// The bars of the foundation.
const IDLE_KIB: f64 = 20.0 * 1024.0;
const START_UP: f64 = 0.010;
const RESTART: f64 = 2.0;

/// Memory of an idle server, and the start-up of client commands beside it.
pub(crate) async fn idle(report: &mut Report) {
    let ground = Ground::below(&crate::place());
    let mut server = ground.up(&[]).await;
    rest().await;
    report.at_most("memory-idle", resident(&server), IDLE_KIB, mebibytes);
    start_up(report, &ground);
    server.stop();
}

fn start_up(report: &mut Report, ground: &Ground) {
    let hawser = binary();
    let (mut floor, mut version, mut list) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        floor.push(seconds(|| spawn(command("/bin/true"))));
        version.push(seconds(|| spawn(with_args(&hawser, ground, &["--version"]))));
        list.push(seconds(|| spawn(with_args(&hawser, ground, &["volume", "list"]))));
    }
    let floor = median(floor);
    for (name, times) in [("cli-version", version), ("cli-volume-list", list)] {
        let ours = median(times);
        let figure = Figure {
            ours: milliseconds(ours),
            peer: Some(format!("{}(/bin/true)", milliseconds(floor))),
            ratio: Some(ours / floor),
            bar: Some((milliseconds(START_UP), ours <= START_UP)),
        };
        report.add(name, figure);
    }
}

fn with_args(hawser: &std::path::Path, ground: &Ground, args: &[&str]) -> std::process::Command {
    let mut command = command(hawser);
    command.args(args).env_clear().env("HAWSER_STATE_DIR", ground.state());
    command
}

fn spawn(mut command: std::process::Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?} failed");
}

/// How an earlier run of the server ended.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// By SIGKILL.
    Killed,
    /// By SIGTERM.
    Stopped,
}

/// The time from the start of the program until it is ready and has answered a list; several times.
pub(crate) async fn restart(
    report: &mut Report,
    ground: &Ground,
    mut server: Program,
    args: &[&str],
    end: End,
) -> Program {
    let name = match end {
        End::Killed => "restart-100000-after-sigkill",
        End::Stopped => "restart-100000-after-stop",
    };
    let mut times = Vec::new();
    for _ in 0..RESTARTS {
        match end {
            End::Killed => {
                // In the middle of what the clients ask for, so that there is work to take up.
                tokio::time::sleep(Duration::from_millis(300)).await;
                server.kill();
            }
            End::Stopped => server.stop(),
        }
        let begun = Instant::now();
        server = ground.up(args).await;
        let page =
            ground.client().list_volumes(&VolumeFilter::default(), &PageRequest::default()).await;
        assert_eq!(page.expect("a list").items.len(), 100, "a page of volumes");
        times.push(begun.elapsed().as_secs_f64());
    }
    report.at_most(name, median(times), RESTART, milliseconds);
    server
}

/// Resident memory in KiB.
pub(crate) fn resident(server: &Program) -> f64 {
    server.resident_kib() as f64
}

/// What the disk gives: the time of a 4 KiB write that is flushed, which is what a durable answer
/// costs at the very least.
pub(crate) fn flush(ground: &Ground) -> f64 {
    let path = ground.path().join("flush");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("a file");
    let times = (0..100).map(|_| {
        seconds(|| {
            file.write_all(&[1; 4096]).and_then(|()| file.sync_data()).expect("a durable write");
        })
    });
    let time = median(times.collect());
    fs::remove_file(path).expect("our own file");
    time
}
