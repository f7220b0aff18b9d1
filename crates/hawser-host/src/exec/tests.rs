use std::time::{Duration, Instant};

use hawser_core::port::host::{Arg, Tool};
use hawser_core::secret::Secret;
use hawser_core::{Classify, Kind, Outcome};

use super::*;

async fn run(tool: Tool) -> Result<ToolOutput, ExecError> {
    Exec::default().run(&tool).await
}

fn shell(script: &str) -> Tool {
    Tool::new("sh").args(["-c", script])
}

#[tokio::test]
async fn the_environment_is_empty_but_for_the_locale_and_path() {
    let output = run(Tool::new("env")).await.unwrap().ok().unwrap();

    let mut names: Vec<_> =
        output.stdout.lines().filter_map(|line| line.split_once('=')).map(|pair| pair.0).collect();
    names.sort_unstable();
    assert_eq!(names, ["LC_ALL", "PATH"]);
    assert!(output.stdout.contains("LC_ALL=C.UTF-8"));
}

#[tokio::test]
async fn exit_code_and_both_outputs_are_told() {
    let output = run(shell("echo out; echo err >&2; exit 3")).await.unwrap();

    assert_eq!((output.code, &*output.stdout, &*output.stderr), (Some(3), "out\n", "err\n"));
    assert!(output.ok().is_err());
}

#[tokio::test]
async fn arguments_are_never_read_by_a_shell() {
    let output = run(Tool::new("echo").arg("$(id); `id` > /dev/null")).await.unwrap();

    assert_eq!(output.stdout, "$(id); `id` > /dev/null\n");
}

#[tokio::test]
async fn input_reaches_the_program_and_its_echo_is_blanked_out() {
    let mut tool = shell("cat; echo hunter2 >&2");
    tool.stdin = Some(Secret::new("hunter2"));

    let output = run(tool).await.unwrap();

    assert_eq!((&*output.stdout, &*output.stderr), ("hunter2", "***\n"));
}

#[tokio::test]
async fn a_program_that_does_not_read_its_input_is_no_failure() {
    let mut tool = Tool::new("true");
    tool.stdin = Some(Secret::new("x".repeat(1 << 20)));

    assert_eq!(run(tool).await.unwrap().code, Some(0));
}

#[tokio::test]
async fn much_output_is_cut_and_does_not_block_the_program() {
    let output = run(shell("head -c 3000000 /dev/zero; head -c 300000 /dev/zero >&2")).await;

    let output = output.unwrap();
    assert_eq!(output.code, Some(0));
    assert_eq!((output.stdout.len(), output.stderr.len()), (1 << 20, 64 << 10));
}

#[tokio::test]
async fn the_whole_process_group_ends_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let script = format!("(sleep 1; touch {0}) & sleep 30", trace.display());
    let start = Instant::now();

    let error = run(shell(&script).limit(Duration::from_millis(100))).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Unknown));
    assert!(start.elapsed() < Duration::from_secs(5));
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(!trace.exists(), "a child of the program went on");
}

#[tokio::test]
async fn a_dropped_call_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let script = format!("sleep 1; touch {0}", trace.display());

    let dropped = tokio::time::timeout(Duration::from_millis(100), run(shell(&script))).await;

    assert!(dropped.is_err());
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert!(!trace.exists());
}

#[tokio::test]
async fn a_daemon_that_is_left_behind_outlives_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut tool = shell(&format!("(sleep 1; touch {0}) & echo started", trace.display()));
    tool.leaves_daemon = true;

    let output = run(tool).await.unwrap();

    assert_eq!(output.stdout, "started\n");
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert!(trace.exists());
}

#[tokio::test]
async fn a_daemon_may_go_on_talking_and_nobody_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let late = format!("sleep 1; echo late; echo late >&2; touch {}", trace.display());
    let mut tool = shell(&format!("({late}) & echo started; echo well >&2; exit 4"));
    tool.leaves_daemon = true;
    let start = Instant::now();

    let output = run(tool).await.unwrap();

    assert!(start.elapsed() < Duration::from_millis(900), "waited for the daemon");
    assert_eq!((output.code, &*output.stdout, &*output.stderr), (Some(4), "started\n", "well\n"));
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert!(trace.exists(), "the daemon died of what it said");
}

#[tokio::test]
async fn much_output_of_a_program_that_leaves_a_daemon_is_cut() {
    let mut tool = shell("head -c 3000000 /dev/zero; head -c 300000 /dev/zero >&2; exit 0");
    tool.leaves_daemon = true;

    let output = run(tool).await.unwrap();

    assert_eq!((output.stdout.len(), output.stderr.len()), (1 << 20, 64 << 10));
}

#[tokio::test]
async fn a_program_that_leaves_a_daemon_ends_at_its_limit_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut tool = shell(&format!("sleep 1; touch {}", trace.display()));
    tool.leaves_daemon = true;

    let error = run(tool.limit(Duration::from_millis(100))).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Unknown));
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert!(!trace.exists());
}

#[tokio::test]
async fn a_missing_program_names_its_package() {
    let error = missing("mkfs.xfs");
    assert_eq!(error.kind(), Kind::Unsupported);
    assert_eq!(
        error.to_string(),
        "the program mkfs.xfs is not on this host: install the package xfsprogs"
    );

    let error = run(Tool::new("no-such-program")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}

#[tokio::test]
async fn a_name_with_a_path_or_nul_is_refused() {
    for program in ["/bin/true", "../true", "", "tr\0ue", "."] {
        assert_eq!(run(Tool::new(program)).await.unwrap_err().kind(), Kind::Invalid);
    }
    let mut tool = Tool::new("true");
    tool.args.push(Arg::Hidden(Secret::new("a\0b")));
    let error = run(tool).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
}
