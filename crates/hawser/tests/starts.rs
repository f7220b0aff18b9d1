//! The program itself: that it starts, says what it can do, and refuses in plain words.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// The program with an environment of its own.
#[expect(clippy::disallowed_methods, reason = "this is the program that is tested")]
fn hawser(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hawser"));
    command.args(args).env_clear().env("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn it_says_its_version() {
    let (code, out, err) = run(&mut hawser(&["--version"]));

    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, format!("hawser {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn its_help_lists_the_commands() {
    let (code, out, _) = run(&mut hawser(&["--help"]));

    assert_eq!(code, Some(0));
    for word in [
        "demo",
        "up",
        "serve",
        "node",
        "volume",
        "snapshot",
        "class",
        "operation",
        "mount",
        "unmount",
        "doctor",
        "store",
        "completions",
        "man",
    ] {
        let listed = out.lines().any(|line| line.trim_start().starts_with(&format!("{word} ")));
        assert!(listed, "{word} is not in\n{out}");
    }
}

#[test]
fn what_cannot_be_read_is_a_usage_error() {
    for args in [
        &["fly"][..],
        &[],
        &["volume", "create"],
        &["volume", "create", "a", "--size", "-1"],
        &["volume", "create", "a/b", "--size", "1GiB"],
        &["volume", "list", "-o", "xml"],
    ] {
        let (code, out, err) = run(&mut hawser(args));
        assert_eq!(code, Some(2), "{args:?}: {out}{err}");
        assert!(out.is_empty() && !err.is_empty(), "{args:?}: {out}{err}");
    }
}

#[test]
fn a_missing_server_is_said_in_words_and_in_json() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let state = dir.path().display().to_string();

    let (code, _, err) = run(&mut hawser(&["--state-dir", &state, "volume", "list"]));
    assert_eq!(code, Some(1), "{err}");
    assert!(err.starts_with("error: ") && err.contains("hawser up"), "{err}");

    let (code, out, err) =
        run(&mut hawser(&["--state-dir", &state, "-o", "json", "volume", "list"]));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let problem: serde_json::Value = serde_json::from_str(&err).expect("errors are JSON too");
    assert_eq!(problem["error"]["kind"], "unavailable", "{problem}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listable").count(), 0, "nothing was made");
}

/// The names of demos in the folder of temporary files, and loop devices over files in them.
fn demos(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<String> =
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    for device in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file"));
        found.extend(file.ok().filter(|file| Path::new(file).starts_with(dir)));
    }
    found
}

/// Runs the demo with its own folder for temporary files, which must be empty afterwards.
fn demo(dir: &Path, command: &mut Command) -> String {
    let (code, out, err) = run(command.env("TMPDIR", dir));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("Nothing is left behind"), "{out}");
    assert_eq!(demos(dir), [""; 0], "the demo left something");
    out
}

#[test]
fn loop_the_demo_plays_and_leaves_nothing_as_root() {
    if !rustix::process::geteuid().is_root() {
        return hawser_testkit::skip("needs root for loop devices and mounts");
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");

    let out = demo(dir.path(), &mut hawser(&["demo"]));

    for word in ["ext4", "mount data", "snapshot data", "clone data", "grow data"] {
        assert!(out.contains(word), "{word} is not in\n{out}");
    }
}

#[test]
fn the_demo_plays_with_folders_as_an_ordinary_user() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let mut command = hawser(&["demo"]);
    if rustix::process::geteuid().is_root() {
        // nobody, who must reach the program; its own folder may be closed to others.
        const NOBODY: u32 = 65534;
        let copy = dir.path().join("bin");
        std::fs::create_dir(&copy).expect("a folder");
        let program = copy.join("hawser");
        std::fs::copy(env!("CARGO_BIN_EXE_hawser"), &program).expect("a copy");
        let own = dir.path().join("own");
        std::fs::create_dir(&own).expect("a folder");
        for path in [dir.path(), &copy, &own] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        command = other(&program);
        command.uid(NOBODY).gid(NOBODY);
        let out = demo(&own, &mut command);
        assert!(out.contains("without privileges"), "{out}");
        return;
    }
    let out = demo(dir.path(), &mut command);
    assert!(out.contains("without privileges"), "{out}");
}

/// The demo of a copy of the program.
#[expect(clippy::disallowed_methods, reason = "a copy of the program that is tested")]
fn other(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("demo").env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.current_dir("/");
    command
}

#[test]
fn the_documented_table_of_protocols_is_the_programs() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/connectors.md");
    let text = std::fs::read_to_string(&docs).unwrap();
    let (_, rest) = text.split_once("<!-- connectors -->\n").expect("the first mark");
    let (table, _) = rest.split_once("<!-- /connectors -->").expect("the second mark");

    let (code, out, err) = run(&mut hawser(&["connectors", "--markdown"]));

    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(
        out, table,
        "put what `hawser connectors --markdown` prints between the marks of docs/connectors.md"
    );
}

#[test]
fn a_folder_is_connected_looked_up_and_disconnected_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("v");
    std::fs::create_dir(&folder).unwrap();
    let file = dir.path().join("info.json");
    let info = format!(
        r#"{{"driverVolumeType":"LOCAL","data":{{"path":{folder:?},"kind":"directory","volumeId":"v-1"}}}}"#
    );
    std::fs::write(&file, info).unwrap();
    let state = dir.path().join("state");
    let ask = |args: &[&str]| {
        let mut command = hawser(args);
        run(command.env("HAWSER_STATE_DIR", &state))
    };
    let file = file.to_str().unwrap();

    let (connected, out, err) = ask(&["connect", "--file", file]);
    assert_eq!(connected, Some(0), "{err}");
    assert!(out.contains("\"volumeId\": \"v-1\""), "the caller's spelling: {out}");
    let (_, path, _) = ask(&["lookup", "--volume", "v-1", "-q"]);
    assert_eq!(Path::new(path.trim()), folder);
    assert_eq!(ask(&["disconnect", "--volume", "v-1"]).0, Some(0));
    let (gone, _, err) = ask(&["lookup", "--volume", "v-1"]);
    assert_eq!(gone, Some(1), "{err}");
}

#[test]
fn bad_connection_info_is_refused_in_plain_words() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("info.json");
    for (text, word) in [
        ("", "has no connection info"),
        ("{}", "driver_volume_type"),
        (r#"{"driver_volume_type":"carrier-pigeon","data":{}}"#, "CARRIER-PIGEON"),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut command = hawser(&["connect", "--file", file.to_str().unwrap()]);
        let (code, _, err) = run(command.env("HAWSER_STATE_DIR", dir.path()));
        assert_ne!(code, Some(0));
        assert!(err.contains(word), "{text}: {err}");
    }
    let (code, _, err) = run(&mut hawser(&["properties", "--os-type", "WIN"]));
    assert_ne!(code, Some(0));
    assert!(err.contains("WIN is not supported"), "{err}");
}
