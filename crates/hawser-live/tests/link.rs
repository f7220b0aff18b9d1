//! The two halves as two processes: `hawser serve` and `hawser node`, linked over a Unix socket.

use std::fs;
use std::time::{Duration, Instant};

use hawser_core::port::Control;
use hawser_live::process::{Ground, Program, is_root};

/// A node dials again within this time.
const DIAL_LIMIT: Duration = Duration::from_secs(30);

async fn serve(ground: &Ground) -> Program {
    let mut server = ground.start("serve", &["serve"]);
    server.wait_ready(&ground.client()).await;
    server
}

fn node(ground: &Ground) -> Program {
    let server = format!("unix:{}", ground.state().join("node.sock").display());
    let state = ground.path().join("node-state").display().to_string();
    ground.start("node", &["--state-dir", &state, "--server", &server, "node", "--node-id", "far"])
}

/// Runs a command until it works: until the node has dialled in.
#[track_caller]
fn soon(ground: &Ground, args: &[&str]) {
    let begun = Instant::now();
    loop {
        let ran = ground.run(args);
        if ran.status.success() {
            return;
        }
        let waited = begun.elapsed();
        assert!(waited < DIAL_LIMIT, "hawser {}: {}", args.join(" "), ran.stderr);
        assert!(ran.stderr.contains("far"), "an error that does not name the node: {}", ran.stderr);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_volumes_live_over_the_link_while_either_half_dies() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let mut server = serve(&ground).await;
    let mut far = node(&ground);
    let folder = ground.mounts().join("data");
    let target = folder.display().to_string();
    let file = folder.join("file");

    ground.ok(&["volume", "create", "data", "--size", "64MiB", "--fs", "ext4"]);
    soon(&ground, &["mount", "data", &target, "--node", "far"]);
    fs::write(&file, "one").expect("it is mounted");

    far.kill();
    assert_eq!(fs::read_to_string(&file).expect("mounts outlive the node half"), "one");
    far = node(&ground);
    soon(&ground, &["snapshot", "create", "s1", "--volume", "data"]);
    fs::write(&file, "two").expect("it was thawed");

    server.kill();
    server = serve(&ground).await;
    soon(&ground, &["volume", "expand", "data", "96MiB"]);
    let usage = rustix::fs::statvfs(&folder).expect("it is mounted");
    assert!(usage.f_blocks * usage.f_frsize > 80 << 20, "the file system did not grow");
    assert_eq!(fs::read_to_string(&file).expect("still mounted"), "two");

    // Both at once, with a change under way at the node.
    let unmount = ground.start("unmount", &["unmount", "data", "--node", "far"]);
    tokio::time::sleep(Duration::from_millis(30)).await;
    far.kill();
    server.kill();
    drop(unmount);
    server = serve(&ground).await;
    far = node(&ground);
    soon(&ground, &["unmount", "data", "--node", "far"]);
    assert!(!file.exists(), "it is unmounted");
    let nodes = ground.client().list_nodes().await.expect("nodes can be listed");
    assert_eq!(nodes.iter().map(|node| node.id.as_str()).collect::<Vec<_>>(), ["far"]);
    ground.ok(&["snapshot", "delete", "s1"]);
    ground.ok(&["volume", "delete", "data"]);
    ground.ok(&["doctor"]);
    far.stop();
    server.stop();
    ground.assert_no_traces();
}
