//! The simulators of vendors' mount programs take what their specifications list and refuse the rest.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with their test")]

use std::fs;
use std::path::PathBuf;

use hawser_core::port::Host;
use hawser_core::port::host::Tool;
use hawser_core::secret::Secret;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::sim::{quobyte, scality, vzstorage};

/// A host with a folder to mount on, and something to mount.
fn host() -> (FakeHost, PathBuf, tempfile::TempDir) {
    let host = FakeHost::new();
    let target = host.dir().join("target");
    fs::create_dir(&target).unwrap();
    (host, target, tempfile::tempdir().unwrap())
}

async fn code(host: &FakeHost, tool: &Tool) -> i32 {
    host.run(tool).await.unwrap().code.unwrap()
}

#[tokio::test]
async fn quobyte_mounts_the_volume_that_it_knows_and_nothing_else() {
    let (host, target, content) = host();
    quobyte::install(&host, "r/vols", content.path());
    let mount = |args: &[&str]| Tool::new("mount").args(args).arg(&target);

    assert_eq!(code(&host, &mount(&["-t", "ext4", "r/vols"])).await, 1);
    assert_eq!(code(&host, &mount(&["-t", "quobyte", "--bind", "x", "r/vols"])).await, 1);
    assert_eq!(code(&host, &mount(&["-t", "quobyte", "r/other"])).await, 32);
    assert!(host.snapshot().mounts.is_empty());
    assert_eq!(code(&host, &mount(&["-t", "quobyte", "-o", "ro", "r/vols"])).await, 0);

    let entry = host.snapshot().mounts.remove(0);
    assert!(entry.read_only() && entry.source == "quobyte@r/vols", "{entry:?}");
}

#[tokio::test]
async fn scality_mounts_its_settings_and_nothing_else() {
    let (host, target, content) = host();
    scality::install(&host, content.path());
    let mount = |args: &[&str]| Tool::new("mount").args(args).arg(&target);

    assert_eq!(code(&host, &mount(&["-t", "sofs", "-o", "ro", scality::SETTINGS])).await, 1);
    assert_eq!(code(&host, &mount(&["-t", "sofs", "/etc/other.conf"])).await, 32);
    assert_eq!(code(&host, &mount(&["-t", "sofs", scality::SETTINGS])).await, 0);

    assert_eq!(host.snapshot().mounts.len(), 1);
}

#[tokio::test]
async fn vzstorage_wants_a_list_of_servers_a_password_and_flags_that_it_knows() {
    let (host, target, content) = host();
    let (name, password) = ("c1".to_owned(), Some("hunter2".to_owned()));
    let cluster = vzstorage::Cluster { name, servers: vec!["mds1".into()], password };
    vzstorage::install(&host, &cluster, content.path());
    let mount = |args: &[&str]| Tool::new("pstorage-mount").args(args).arg(&target);
    let let_in = |password: &str| {
        let mut tool = Tool::new("pstorage").args(["-c", "c1", "auth-node", "-P"]);
        tool.stdin = Some(Secret::new(password));
        tool
    };

    assert_eq!(code(&host, &mount(&["-c", "c1"])).await, 1, "no server is known");
    host.kernel().file("/etc/pstorage/clusters/c1/bs_list", "mds1\n");
    assert_eq!(code(&host, &mount(&["-c", "c1"])).await, 1, "not let in");
    assert_eq!(code(&host, &let_in("wrong")).await, 1);
    assert_eq!(code(&host, &let_in("hunter2")).await, 0);
    assert_eq!(code(&host, &mount(&["-c", "c1", "-z", "x"])).await, 1, "an unknown flag");
    assert_eq!(code(&host, &mount(&["-c", "c1", "-u", "stack"])).await, 0);

    assert_eq!(host.snapshot().mounts.len(), 1);
}
