//! Mounts of file systems that are no devices. `tmpfs` stands for one whose server answers, `fuse`
//! without anybody behind it for one whose server is dead: whoever asks it something hangs.

use std::io::Write;
use std::os::fd::AsRawFd;

use hawser_core::Outcome;
use hawser_core::secret::Secret;
use rustix::io::Errno;

use super::*;

fn network(fs_type: &str, source: &str, target: &Path, flags: &[&str]) -> HostMount {
    HostMount {
        source: MountSource::Network {
            fs_type: fs_type.into(),
            source: source.into(),
            secrets: Vec::new(),
        },
        target: target.into(),
        read_only: false,
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    }
}

impl Bench {
    async fn target(&self, name: &str) -> PathBuf {
        let target = self.base.join(name);
        self.host.make_target(&target).await.unwrap();
        target
    }

    async fn is_mounted(&self, target: &Path) -> bool {
        self.host.mounts().await.unwrap().iter().any(|entry| entry.target == target)
    }
}

#[tokio::test]
async fn loop_a_network_file_system_is_mounted_once() {
    let Some(bench) = Bench::new().await else { return };
    let target = bench.target("share").await;
    let request = network("tmpfs", "server:/a", &target, &["size=1m", "nodev", "_netdev"]);

    assert_eq!(bench.host.mount(&request).await.unwrap(), Change::Made(()));

    let table = bench.host.mounts().await.unwrap();
    let entry = table.iter().find(|entry| entry.target == target).unwrap();
    assert_eq!((&*entry.fs_type, &*entry.source), ("tmpfs", "server:/a"));
    assert!(entry.options.contains(&"nodev".into()), "{entry:?}");
    assert!(entry.super_options.contains(&"size=1024k".into()), "{entry:?}");
    assert_eq!(bench.host.mount(&request).await.unwrap(), Change::Already(()));
    let other = network("tmpfs", "server:/b", &target, &[]);
    assert_eq!(bench.host.mount(&other).await.unwrap_err().kind(), Kind::Precondition);
    let read_only = HostMount { read_only: true, ..request };
    assert_eq!(bench.host.mount(&read_only).await.unwrap_err().kind(), Kind::Precondition);
    assert_eq!(bench.host.unmount(&target).await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.mount(&read_only).await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.mount(&read_only).await.unwrap(), Change::Already(()));
    assert!(fs::File::create(target.join("x")).is_err());
}

#[tokio::test]
async fn loop_a_refused_network_mount_says_why_and_keeps_its_secrets() {
    let Some(bench) = Bench::new().await else { return };
    let target = bench.target("share").await;
    let mut request = network("tmpfs", "server:/a", &target, &[]);
    let MountSource::Network { secrets, .. } = &mut request.source else { unreachable!() };
    secrets.push(("passphrase".into(), Secret::new("hunter2")));

    let error = bench.host.mount(&request).await.unwrap_err();

    let sentence = error.sentence();
    assert!(sentence.contains("Unknown parameter 'passphrase'"), "{sentence}");
    assert!(!sentence.contains("hunter2"), "{sentence}");
    assert_eq!((error.kind(), error.errno()), (Kind::Invalid, Some(Errno::INVAL.raw_os_error())));
    assert!(!bench.is_mounted(&target).await);
}

#[tokio::test]
async fn loop_a_file_system_that_the_kernel_does_not_have_is_named() {
    let Some(bench) = Bench::new().await else { return };
    let target = bench.target("share").await;

    let error = bench.host.mount(&network("nosuchfs", "a:/b", &target, &[])).await.unwrap_err();

    assert_eq!((error.kind(), error.errno()), (Kind::Unsupported, Some(19)));
    assert!(error.sentence().contains("load the module nosuchfs"), "{error:?}");
}

/// A mount whose server has taken up the connection and never says anything.
struct DeadServer {
    /// Goes first: what hangs is set free by its end, so that a failed test ends too.
    _connection: fs::File,
    bench: Bench,
    target: PathBuf,
    request: HostMount,
}

impl DeadServer {
    async fn new() -> Option<Self> {
        let call_limit = Duration::from_secs(2);
        Self::on(HostSettings { call_limit, ..HostSettings::default() }).await
    }

    async fn on(settings: HostSettings) -> Option<Self> {
        let mut bench = Bench::new().await?;
        let Ok(connection) = fs::File::options().read(true).write(true).open("/dev/fuse") else {
            println!("skipped: this kernel has no fuse");
            return None;
        };
        bench.host = LinuxHost::new(settings);
        let target = bench.target("dead").await;
        let descriptor = format!("fd={}", connection.as_raw_fd());
        let flags = [&descriptor, "rootmode=40000", "user_id=0", "group_id=0"];
        let request = network("fuse", "dead:/a", &target, &flags);
        bench.host.mount(&request).await.unwrap();
        Some(Self { _connection: connection, bench, target, request })
    }
}

#[tokio::test]
async fn loop_a_dead_server_holds_up_neither_mount_nor_unmount() {
    let Some(dead) = DeadServer::new().await else { return };
    let host = &dead.bench.host;

    assert_eq!(host.make_target(&dead.target).await.unwrap(), Change::Already(()));
    assert_eq!(host.remove_target(&dead.target).await.unwrap(), Change::Already(()));
    assert_eq!(host.mount(&dead.request).await.unwrap(), Change::Already(()));
    let other = network("fuse", "dead:/b", &dead.target, &["fd=0"]);
    assert_eq!(host.mount(&other).await.unwrap_err().kind(), Kind::Precondition);
    assert_eq!(host.unmount(&dead.target).await.unwrap(), Change::Made(()));
    assert_eq!(host.unmount(&dead.target).await.unwrap(), Change::Already(()));
}

#[tokio::test]
async fn loop_a_mount_with_a_dead_server_is_abandoned() {
    let Some(dead) = DeadServer::new().await else { return };
    let host = &dead.bench.host;
    let hung = host.usage(&dead.target).await.unwrap_err();
    assert_eq!((hung.kind(), hung.outcome()), (Kind::Timeout, Outcome::Unknown));
    let busy = host.unmount(&dead.target).await.unwrap_err();
    assert_eq!(busy.kind(), Kind::Busy, "{busy:?}");

    assert_eq!(host.abandon_mount(&dead.target).await.unwrap(), Change::Made(()));

    assert!(!dead.bench.is_mounted(&dead.target).await);
    assert_eq!(host.abandon_mount(&dead.target).await.unwrap(), Change::Already(()));
    host.usage(&dead.target).await.expect("the folder below answers");
}

#[tokio::test]
async fn loop_asking_a_dead_server_again_and_again_takes_one_worker() {
    let call_limit = Duration::from_millis(200);
    let settings = HostSettings { call_limit, workers: 3, ..HostSettings::default() };
    let Some(dead) = DeadServer::on(settings).await else { return };
    let host = &dead.bench.host;

    for _ in 0..8 {
        let hung = host.usage(&dead.target).await.unwrap_err();
        assert_eq!(hung.kind(), Kind::Timeout, "{hung:?}");
    }

    host.usage(&dead.bench.base).await.expect("others are answered");
    assert_eq!(host.abandon_mount(&dead.target).await.unwrap(), Change::Made(()));
    host.usage(&dead.target).await.expect("the folder below answers");
}

#[tokio::test]
async fn loop_a_mount_in_use_is_abandoned_alone() {
    let Some(bench) = Bench::new().await else { return };
    let (target, bound) = (bench.target("share").await, bench.target("bound").await);
    bench.host.mount(&network("tmpfs", "a:/b", &target, &[])).await.unwrap();
    let source = MountSource::Bind { path: target.clone() };
    let flags = Vec::new();
    let bind = HostMount { source, target: bound.clone(), read_only: false, flags };
    bench.host.mount(&bind).await.unwrap();
    let mut file = fs::File::create_new(bound.join("file")).unwrap();
    assert_eq!(bench.host.unmount(&bound).await.unwrap_err().kind(), Kind::Busy);

    assert_eq!(bench.host.abandon_mount(&bound).await.unwrap(), Change::Made(()));

    assert!(!bench.is_mounted(&bound).await && bench.is_mounted(&target).await);
    file.write_all(b"still there").unwrap();
    assert_eq!(fs::read(target.join("file")).unwrap(), b"still there");
}

#[tokio::test]
async fn loop_an_abandoned_target_must_be_plain_and_no_link() {
    let Some(bench) = Bench::new().await else { return };
    let target = bench.target("share").await;
    bench.host.mount(&network("tmpfs", "a:/b", &target, &[])).await.unwrap();
    let link = bench.base.join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();

    assert_eq!(bench.host.abandon_mount(&link).await.unwrap(), Change::Already(()));
    let error = bench.host.abandon_mount(Path::new("share")).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Invalid);
    assert!(bench.is_mounted(&target).await);
}
