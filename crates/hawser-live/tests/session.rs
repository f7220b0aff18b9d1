//! A session at the command line: `hawser up` in one terminal, its commands in another, and the
//! server killed in between.

use std::fs;
use std::path::Path;

use hawser_live::book::Book;
use hawser_live::process::{Ground, command, is_root, run};
use hawser_live::raw;
use serde_json::{Value, json};

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// The size of a mounted file system.
fn total(folder: &Path) -> u64 {
    let usage = rustix::fs::statvfs(folder).expect("it is mounted");
    usage.f_blocks * usage.f_frsize
}

/// `curl` on the socket; without curl, the same request by hand.
fn curl(ground: &Ground, path: &str) -> Value {
    let socket = ground.socket();
    if !Path::new("/usr/bin/curl").exists() {
        return raw::call(&socket, "GET", path, None).json();
    }
    let mut curl = command("/usr/bin/curl");
    curl.args(["--silent", "--fail", "--unix-socket"]).arg(&socket).arg(format!("http://h{path}"));
    let ran = run(&mut curl, ground.path());
    assert!(ran.status.success(), "curl {path}: {ran:?}");
    json_of(&ran.stdout)
}

#[tokio::test]
async fn loop_a_whole_session_survives_a_killed_server() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let mut server = ground.up(&[]).await;
    let folder = ground.mounts().join("data");
    let shown = folder.display().to_string();
    let content = "written before the snapshot\n".repeat(10_000);

    ground.ok(&["volume", "create", "data", "--size", "2GiB", "--fs", "ext4"]);
    ground.ok(&["mount", "data", &shown]);
    fs::write(folder.join("file"), &content).expect("it is mounted");
    ground.ok(&["snapshot", "create", "s1", "--volume", "data"]);
    fs::write(folder.join("file"), "written after").expect("it is mounted");
    server.kill();
    assert_eq!(
        fs::read_to_string(folder.join("file")).expect("mounts outlive the server"),
        "written after"
    );
    server = ground.up(&[]).await;
    ground.ok(&["volume", "create", "copy", "--from-snapshot", "s1"]);
    ground.ok(&["snapshot", "group", "create", "g1", "data", "copy"]);
    let before = total(&folder);
    ground.ok(&["volume", "expand", "data", "4GiB"]);
    let after = total(&folder);
    assert!(before < 2 << 30 && after > 3 << 30, "{before} bytes became {after}");

    let listed = json_of(&ground.ok(&["volume", "list", "-o", "json"]));
    let names: Vec<_> =
        listed["items"].as_array().expect("items").iter().map(|v| &v["name"]).collect();
    assert_eq!(names, ["data", "copy"]);
    assert_eq!(listed["items"][0]["size"], json!(4_u64 << 30));
    let operations = ground.ok(&["operation", "list"]);
    // The memory of the operation that ended just before the kill may have died with the server.
    for word in ["create volume", "mount volume", "expand volume"] {
        assert!(operations.contains(word), "{word} is not in\n{operations}");
    }
    assert_api_agrees(&ground, &listed);
    assert_copy(&ground, &content);

    ground.ok(&["unmount", "data"]);
    ground.ok(&["snapshot", "delete", "s1"]);
    ground.ok(&["snapshot", "group", "delete", "g1"]);
    ground.ok(&["volume", "delete", "data"]);
    ground.ok(&["volume", "delete", "copy"]);
    let listed = json_of(&ground.ok(&["volume", "list", "-o", "json"]));
    assert_eq!(listed["items"], json!([]));
    ground.ok(&["doctor"]);
    server.stop();
    ground.assert_no_traces();
    for part in ["volumes", "snapshots", "staging"] {
        let left = fs::read_dir(ground.state().join("pool").join(part)).expect("a pool").count();
        assert_eq!(left, 0, "left in {part}");
    }
}

/// The copy has what was in the volume when the snapshot was taken.
fn assert_copy(ground: &Ground, content: &str) {
    let folder = ground.mounts().join("copy");
    ground.ok(&["mount", "copy", &folder.display().to_string()]);
    let found = fs::read_to_string(folder.join("file")).expect("it is mounted");
    assert!(found == content, "{} bytes of other content", found.len());
    ground.ok(&["unmount", "copy"]);
}

/// The command line, curl and the served document say the same.
fn assert_api_agrees(ground: &Ground, listed: &Value) {
    let socket = ground.socket();
    assert_eq!(&curl(ground, "/v1/volumes"), listed, "curl (left) and `volume list` (right)");
    let book = Book::open(&socket);
    assert_eq!(curl(ground, "/v1/openapi.json")["openapi"].as_str().map(|v| &v[..2]), Some("3."));
    let id = listed["items"][0]["id"].as_str().expect("an id");
    let node = curl(ground, "/v1/nodes")["items"][0]["id"].as_str().expect("a node").to_owned();
    let operation = curl(ground, "/v1/operations?limit=1")["items"][0]["id"].clone();
    let operation = operation.as_str().expect("an operation").to_owned();
    for (path, status) in [
        ("/v1/volumes", 200),
        ("/v1/volumes?limit=1", 200),
        ("/v1/volumes/data", 200),
        (&*format!("/v1/volumes/{id}"), 200),
        ("/v1/volumes/data/health", 200),
        (&*format!("/v1/volumes/data/publications/{node}"), 200),
        ("/v1/volumes/none", 404),
        ("/v1/snapshots", 200),
        ("/v1/snapshots/s1", 200),
        ("/v1/snapshots/g1.copy", 200),
        ("/v1/groups/g1", 200),
        ("/v1/groups/none", 404),
        ("/v1/operations", 200),
        (&*format!("/v1/operations/{operation}"), 200),
        ("/v1/classes", 200),
        ("/v1/classes/default/capacity", 200),
        (&*format!("/v1/classes/default/capacity?place=node%3D{node}"), 200),
        ("/v1/nodes", 200),
        ("/v1/doctor", 200),
        ("/readyz", 200),
    ] {
        let answer = book.call(&socket, "GET", path, None);
        assert_eq!(answer.status, status, "{path}: {}", answer.json());
    }
    for (method, path, body, status) in [
        ("POST", "/v1/volumes", json!({ "name": "api", "size": "64MiB" }), 201),
        ("POST", "/v1/volumes", json!({ "name": "api", "size": "64MiB" }), 200),
        ("POST", "/v1/volumes", json!({ "name": "api", "size": "65MiB" }), 409),
        ("PATCH", "/v1/volumes/api", json!({ "labels": { "a": "b" } }), 200),
        ("POST", "/v1/volumes/api/expand", json!({ "size": "80MiB" }), 200),
        ("POST", "/v1/snapshots", json!({ "name": "s2", "volume": "api" }), 201),
        ("POST", "/v1/groups", json!({ "name": "g2", "volumes": ["api"] }), 201),
        ("POST", "/v1/groups", json!({ "name": "g2", "volumes": ["api"] }), 200),
        ("POST", "/v1/groups", json!({ "name": "g2", "volumes": ["api", "copy"] }), 409),
        ("DELETE", "/v1/snapshots/g2.api", Value::Null, 400),
        ("DELETE", "/v1/groups/g2", Value::Null, 204),
        ("PUT", &*format!("/v1/volumes/api/publications/{node}"), json!({}), 201),
        ("DELETE", &*format!("/v1/volumes/api/publications/{node}"), Value::Null, 204),
        ("PUT", &*format!("/v1/volumes/api/attachments/{node}"), json!({}), 201),
        ("POST", "/v1/groups", json!({ "name": "g3", "volumes": ["api"] }), 412),
        ("DELETE", &*format!("/v1/volumes/api/attachments/{node}"), Value::Null, 204),
        ("DELETE", "/v1/snapshots/s2", Value::Null, 204),
        ("DELETE", "/v1/volumes/api", Value::Null, 204),
    ] {
        let body = Some(&body).filter(|body| !body.is_null());
        let answer = book.call(&socket, method, path, body);
        assert_eq!(
            answer.status,
            status,
            "{method} {path}: {}",
            String::from_utf8_lossy(&answer.body)
        );
    }
}
