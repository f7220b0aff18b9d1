//! The host library as programs use it, against LIO: the commands, the examples in Rust, Python and
//! Go, several processes at once, and what is left when one of them is killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use hawser_live::lab::guest::san::{IQN, San, disks, names, read, write};
use hawser_live::lab::guest::{Cmd, Daemon, cmd, initiator, lio, settle, wait_for};
use hawser_live::process;
use serde_json::{Value, json};

const PORTAL: &str = "127.0.1.1:3260";
const SOCKET: &str = "/run/library.sock";
const RECORDS: &str = "/run/hawser/attachments";
const LIMIT: Duration = Duration::from_secs(60);

/// What a storage system says of one volume.
fn info(san: &San, number: u16) -> Value {
    json!({ "driver_volume_type": "iscsi", "data": san.one_way(number) })
}

fn hawser(words: &[&str]) -> Cmd {
    cmd("hawser").args(words).args(["-o", "json"])
}

#[track_caller]
fn answer(command: &Cmd) -> Value {
    serde_json::from_str(&command.ok()).expect("JSON out")
}

#[track_caller]
fn connect(info: &Value) -> Value {
    answer(&hawser(&["connect"]).input(info.to_string()))
}

#[track_caller]
fn disconnect(volume: &str) -> Value {
    answer(&hawser(&["disconnect", "--volume", volume]))
}

/// The error of a command that must fail.
#[track_caller]
fn error(command: &Cmd) -> Value {
    let done = command.run();
    assert_eq!(done.code(), 1, "{command}: {}{}", done.stdout, done.stderr);
    let view: Value = serde_json::from_str(&done.stderr).expect("an error in JSON");
    view["error"].clone()
}

fn path(view: &Value) -> PathBuf {
    view["path"].as_str().expect("a path").into()
}

#[test]
fn the_commands_see_a_volume_through_its_whole_life() {
    let san = San::new(&[PORTAL], 1);
    let (disk, info) = (&san.disks[0], info(&san, 1));

    let connectors = answer(&hawser(&["connectors"]));
    let iscsi = connectors.as_array().unwrap().iter().find(|c| c["protocol"] == "ISCSI").unwrap();
    assert_eq!(iscsi["ready"], json!(true), "{iscsi:#}");
    let properties = answer(&hawser(&["properties", "--multipath"]));
    assert_eq!(properties["initiator"], json!(initiator()));
    assert_eq!((&properties["platform"], &properties["os_type"]), (&json!("X86"), &json!("LINUX")));
    assert_eq!(properties["multipath"], json!(true));

    let made = connect(&info);
    let device = path(&made);
    assert_eq!((&made["type"], &made["already"]), (&json!("block"), &json!(false)), "{made:#}");
    assert_eq!(made["size_bytes"], json!(32 << 20));
    assert_eq!(made["paths"][0]["state"], json!("running"), "{made:#}");
    write(&device, 8192, &[0x5A; 4096]);
    assert_eq!(disk.read(8192, 4096), vec![0x5A; 4096], "it reached the storage");
    let again = connect(&info);
    assert_eq!((path(&again), &again["already"]), (device.clone(), &json!(true)));

    settle();
    let found = answer(&hawser(&["lookup", "--volume", "v1"]));
    let link = PathBuf::from(found["link"].as_str().expect("a lasting name"));
    assert!(link.starts_with("/dev/disk/by-id") && link.canonicalize().unwrap() == device);
    disk.grow(64);
    let grown = answer(&hawser(&["extend"]).input(info.to_string()));
    assert_eq!(grown["size_bytes"], json!(64 << 20));
    assert_eq!(read(&device, 8192, 4096), vec![0x5A; 4096]);

    let gone = disconnect("v1");
    assert_eq!((path(&gone), &gone["already"]), (device, &json!(false)));
    san.assert_clean();
    assert_eq!(disconnect("v1"), json!({ "path": null, "already": true }));
    assert_eq!(error(&hawser(&["lookup", "--volume", "v1"]))["kind"], json!("not_found"));
    san.assert_clean();
}

#[test]
fn the_answer_has_the_spelling_of_the_question_and_errors_have_their_reason() {
    let san = San::new(&[PORTAL], 1);
    let data =
        json!({ "targetPortal": PORTAL, "targetIqn": IQN, "targetLun": "1", "volumeId": "c" });
    let mut info = json!({ "driverVolumeType": "ISCSI", "data": data });

    let made = connect(&info);
    assert_eq!((&made["volumeId"], &made["sizeBytes"]), (&json!("c"), &json!(32 << 20)));
    write(&path(&made), 0, b"camel");
    disconnect("c");
    san.assert_clean();

    info["data"]["targetPortal"] = json!("127.0.1.1:3999");
    let refused = error(&hawser(&["connect"]).input(info.to_string()));
    assert_eq!(refused["reason"], json!("portal_refused"), "{refused:#}");
    let strange = json!({ "driver_volume_type": "carrier-pigeon", "data": {} });
    let refused = error(&hawser(&["connect"]).input(strange.to_string()));
    assert_eq!(refused["reason"], json!("unsupported_protocol"), "{refused:#}");
    san.assert_clean();
}

#[test]
fn what_is_attached_is_found_in_another_spelling_and_never_answered_as_encrypted() {
    let san = San::new(&[PORTAL], 1);
    let made = connect(&info(&san, 1));
    let data = json!({ "targetPortal": PORTAL, "targetIqn": IQN, "targetLun": "0x1",
        "volumeId": "v1", "devicePath": made["path"], "vendorWord": 7 });
    let camel = json!({ "driverVolumeType": "ISCSI", "data": data });
    fs::write("/tmp/key", "open sesame").unwrap();

    let again = connect(&camel);
    let words = ["connect", "--encryption", "luks2", "--key-file", "/tmp/key"];
    let refused = error(&hawser(&words).input(camel.to_string()));
    let reserved = error(&hawser(&["connect", "--reserve", "1"]).input(camel.to_string()));

    assert_eq!((&again["path"], &again["already"]), (&made["path"], &json!(true)));
    for view in [&refused, &reserved] {
        assert_eq!(view["reason"], json!("invalid_parameters"), "{view:#}");
    }
    assert!(refused.to_string().contains("luks2"), "{refused:#}");
    disconnect("v1");
    san.assert_clean();
}

#[test]
fn without_a_name_a_volume_is_detached_by_what_was_answered() {
    let san = San::new(&[PORTAL], 1);
    let mut info = info(&san, 1);
    info["data"].as_object_mut().unwrap().remove("volume_id");
    let made = connect(&info);
    info["data"]["device_path"] = made["path"].clone();
    info["data"]["multipath_id"] = json!("3600");

    let gone = answer(&hawser(&["disconnect"]).input(info.to_string()));

    assert_eq!((&gone["path"], &gone["already"]), (&made["path"], &json!(false)));
    assert_eq!(fs::read_dir(RECORDS).unwrap().count(), 0, "no record stays");
    san.assert_clean();
}

/// Runs a program that attaches a volume, says `NAME is PATH` and waits for a line; uses the device
/// in between.
#[track_caller]
fn use_through(san: &San, program: &Path, args: &[&str], pattern: u8) {
    let mut child = process::command(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let (name, device) = line.trim().split_once(" is ").expect("it says what it attached");
    assert_eq!((name, device.starts_with("/dev/sd")), ("v1", true), "{line}");

    let bytes = vec![pattern; 8192];
    write(Path::new(device), 4096, &bytes);
    assert_eq!(san.disks[0].read(4096, 8192), bytes, "it reached the storage");
    assert_eq!(read(Path::new(device), 4096, 8192), bytes);

    writeln!(child.stdin.take().unwrap()).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{line}{rest}");
    assert!(rest.contains("v1 is gone"), "{rest}");
    san.assert_clean();
}

fn info_file(san: &San) -> &'static str {
    fs::write("/tmp/info.json", info(san, 1).to_string()).unwrap();
    "/tmp/info.json"
}

/// A node of no server that serves the library, ready for callers.
fn node() -> Daemon {
    let node = cmd("hawser").args(["node", "--alone", "--library", SOCKET]).start();
    wait_for("socket of the library", LIMIT, || Path::new(SOCKET).exists().then_some(()));
    node
}

#[test]
fn the_example_in_rust_attaches_and_detaches() {
    let san = San::new(&[PORTAL], 1);

    use_through(&san, Path::new("/job/target/examples/attach"), &[info_file(&san)], 0x31);
}

#[test]
fn the_example_in_python_attaches_and_detaches_over_the_socket() {
    let san = San::new(&[PORTAL], 1);
    let node = node();

    let args = ["/job/examples/attach.py", SOCKET, info_file(&san)];
    use_through(&san, Path::new("/usr/bin/python3"), &args, 0x32);

    node.stop();
    assert!(!Path::new(SOCKET).exists(), "it takes its socket away");
}

#[test]
fn the_example_in_go_attaches_and_detaches_over_the_socket() {
    let program = Path::new("/job/examples/attach-go");
    assert!(program.exists(), "there was no Go where the job was made: install golang-go");
    let san = San::new(&[PORTAL], 1);
    let node = node();

    use_through(&san, program, &[SOCKET, info_file(&san)], 0x33);

    node.stop();
}

#[test]
fn what_a_killed_node_had_attached_a_command_finds_and_takes_away() {
    let san = San::new(&[PORTAL], 1);
    let node = node();
    let mut caller = process::command("/usr/bin/python3")
        .args(["/job/examples/attach.py", SOCKET, info_file(&san)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(caller.stdout.take().unwrap()).read_line(&mut line).unwrap();
    node.kill();
    drop(caller.stdin.take());
    assert!(!caller.wait().unwrap().success(), "the caller is told that the node went away");

    let found = answer(&hawser(&["lookup", "--volume", "v1"]));
    assert_eq!(format!("v1 is {}", found["path"].as_str().unwrap()), line.trim());
    assert_eq!(disconnect("v1")["already"], json!(false));
    san.assert_clean();
    fs::remove_file(SOCKET).unwrap();
}

/// Runs commands at the same time and answers what each said.
#[track_caller]
fn at_once(commands: Vec<Cmd>) -> Vec<Value> {
    let threads: Vec<_> =
        commands.into_iter().map(|command| thread::spawn(move || answer(&command))).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn made(views: &[Value]) -> usize {
    views.iter().filter(|view| view["already"] == json!(false)).count()
}

#[test]
fn processes_at_once_on_one_volume_make_one_device_and_take_it_away_once() {
    let san = San::new(&[PORTAL], 1);
    let info = info(&san, 1).to_string();

    let views = at_once((0..6).map(|_| hawser(&["connect"]).input(&info)).collect());

    assert_eq!(made(&views), 1, "{views:#?}");
    let paths: BTreeSet<_> = views.iter().map(path).collect();
    assert_eq!((paths.len(), disks().len()), (1, 1), "{paths:?}");
    write(paths.first().unwrap(), 0, &[1; 4096]);
    let views = at_once((0..6).map(|_| hawser(&["disconnect", "--volume", "v1"])).collect());
    assert_eq!(made(&views), 1, "{views:#?}");
    san.assert_clean();
}

#[test]
fn processes_at_once_on_different_volumes_do_not_disturb_each_other() {
    let san = San::new(&[PORTAL], 4);
    for round in 0..2_u8 {
        let connects = (1..=4).map(|n| hawser(&["connect"]).input(info(&san, n).to_string()));
        let views = at_once(connects.collect());
        let paths: Vec<_> = views.iter().map(path).collect();
        assert_eq!((made(&views), paths.iter().collect::<BTreeSet<_>>().len()), (4, 4));
        for (disk, (device, pattern)) in san.disks.iter().zip(paths.iter().zip(1_u8..)) {
            write(device, 0, &[pattern + round; 4096]);
            assert_eq!(disk.read(0, 4096), vec![pattern + round; 4096], "its own volume");
        }
        // Two go while two come again: the session that all share must not be taken away.
        let views = at_once(vec![
            hawser(&["disconnect", "--volume", "v1"]),
            hawser(&["connect"]).input(info(&san, 3).to_string()),
            hawser(&["disconnect", "--volume", "v2"]),
            hawser(&["connect"]).input(info(&san, 4).to_string()),
        ]);
        assert_eq!(made(&views), 2, "{views:#?}");
        for (device, pattern) in [(&paths[2], 3), (&paths[3], 4)] {
            assert_eq!(read(device, 0, 4096), vec![pattern + round; 4096]);
        }
        let rest = ["v3", "v4"].map(|name| hawser(&["disconnect", "--volume", name]));
        at_once(rest.into());
        san.assert_clean();
    }
}

/// Begins `hawser connect` and answers when its intent is on disk.
fn begun(info: &Value) -> Child {
    let mut child = process::command("hawser")
        .arg("connect")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(info.to_string().as_bytes()).unwrap();
    wait_for("intent", LIMIT, || {
        names(RECORDS).iter().any(|name| name.ends_with(".json")).then_some(())
    });
    child
}

/// What doctor finds; it fails when it finds something.
#[track_caller]
fn doctor(words: &[&str]) -> (i32, Vec<Value>) {
    let done = hawser(&["doctor"]).args(words).run();
    let view: Value = serde_json::from_str(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", done.stdout, done.stderr));
    (done.code(), view["items"].as_array().expect("a list").clone())
}

#[test]
fn what_a_killed_connect_left_is_listed_and_taken_away_and_what_is_others_stays() {
    let mut san = San::new(&[PORTAL], 1);
    let foreign_disk = lio::Disk::new("foreign", 16);
    let mut foreign = lio::Target::new("iqn.2004-10.com.example:foreign");
    foreign.add_portal("127.0.1.9:3260").add_lun(1, &foreign_disk).allow(&initiator()).enable();
    let node = || cmd("iscsiadm").args(["-m", "node", "-T", foreign.iqn(), "-p", "127.0.1.9:3260"]);
    node().args(["-o", "new"]).ok();
    node().arg("--login").ok();
    wait_for("disk of others", LIMIT, || disks().first().cloned());
    san.remember();
    assert_eq!(doctor(&[]), (0, Vec::new()), "others are none of its business");

    let mut half_made = 0;
    for after in [0, 40, 120, 250, 400, 700, 1200] {
        let mut child = begun(&info(&san, 1));
        thread::sleep(Duration::from_millis(after));
        child.kill().unwrap();
        child.wait().unwrap();

        let (code, found) = doctor(&[]);
        if found.is_empty() {
            // It was through; then the record says so, and so does the volume.
            assert_eq!(code, 0);
            assert_eq!(disconnect("v1")["already"], json!(false));
        } else {
            half_made += 1;
            assert_eq!((code, found.len()), (1, 1), "{found:#?}");
            let one = &found[0];
            assert_eq!(one["code"], json!("half_made_attachment"), "{one:#}");
            assert_eq!((&one["subject"], &one["fixable"]), (&json!("v1"), &json!(true)), "{one:#}");
            let (code, fixed) = doctor(&["--fix"]);
            assert_eq!(
                (code, &fixed[0]["repair"]),
                (0, &json!({ "result": "done" })),
                "{fixed:#?}"
            );
        }
        san.before.assert_restored_within(LIMIT);
        assert_eq!(doctor(&[]), (0, Vec::new()));
    }
    assert!(half_made >= 2, "only {half_made} were killed on the way");
    assert!(!Path::new("/var/lib/hawser/instance").exists(), "looking made it no server");
    let device = path(&connect(&info(&san, 1)));
    write(&device, 0, &[7; 4096]);
    assert_eq!(san.disks[0].read(0, 4096), vec![7; 4096], "the volume is as good as before");
    disconnect("v1");
    san.assert_clean();
    node().arg("--logout").ok();
    node().args(["-o", "delete"]).ok();
}

#[test]
fn an_attachment_that_its_user_mounted_is_no_finding() {
    let san = San::new(&[PORTAL], 1);
    let device = path(&connect(&info(&san, 1)));
    cmd("mkfs.ext4").args(["-q", "-F"]).arg(&device).ok();
    fs::create_dir_all("/mnt/library").unwrap();
    cmd("mount").arg(&device).arg("/mnt/library").ok();

    assert_eq!(doctor(&["--fix"]), (0, Vec::new()));
    fs::write("/mnt/library/file", "still here").unwrap();
    assert_eq!(error(&hawser(&["disconnect", "--volume", "v1"]))["kind"], json!("busy"));

    cmd("umount").arg("/mnt/library").ok();
    disconnect("v1");
    san.assert_clean();
}
