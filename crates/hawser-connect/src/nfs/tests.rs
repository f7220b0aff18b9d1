use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hawser_core::attach::Attached;
use hawser_core::connection::Protocol;
use hawser_core::error::Result;
use hawser_core::port::Connector;
use hawser_core::port::host::{HostMount, MountEntry, MountSource, ToolOutput};
use hawser_core::{ByteSize, Change, Kind, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::{Ended, FakeHost, Remote as Elsewhere};
use rustix::io::Errno;
use serde_json::json;

use super::*;
use crate::shared::remote_fs::Remote;
use crate::shared::remote_fs::data::digest;

static NFS: Remote<Nfs> = Remote(Nfs);

const EXPORT: &str = "127.0.0.1:/exports/a";

/// A server on loopback, which only listens; the fake kernel answers for it.
struct Bench {
    host: FakeHost,
    listener: TcpListener,
    server: tempfile::TempDir,
    asked: Arc<Mutex<Vec<Vec<String>>>>,
    options: String,
    export: String,
}

impl Bench {
    /// `answer` says for each version what the kernel answers.
    fn new(answer: impl Fn(&str) -> std::result::Result<(), Errno> + Send + 'static) -> Self {
        let host = FakeHost::new();
        host.kernel().folder("/run/hawser/mounts");
        let server = tempfile::tempdir().unwrap();
        let share = server.path().to_owned();
        fs::write(share.join("volume-1"), "data").unwrap();
        fs::create_dir(host.dir().join("base")).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let asked = Arc::<Mutex<Vec<Vec<String>>>>::default();
        let (log, folder) = (asked.clone(), share.clone());
        host.on_network_mount(move |request| {
            log.lock().unwrap().push(request.flags.clone());
            let version = value(request, "vers=").expect("a version");
            answer(&version).map_err(Errno::raw_os_error)?;
            let MountSource::Network { fs_type, source, .. } = &request.source else {
                panic!("{request:?}")
            };
            assert_eq!(fs_type, "nfs4");
            let address = value(request, "addr=").expect("an address");
            Ok(Elsewhere {
                fs_type: "nfs4".into(),
                source: source.clone(),
                super_options: vec!["rw".into(), format!("addr={address}")],
                folder: folder.clone(),
            })
        });
        let export = EXPORT.to_owned();
        Self { host, listener, server, asked, options: String::new(), export }
    }

    fn info(&self) -> ConnectionInfo {
        let port = self.listener.local_addr().unwrap().port();
        let data = json!({
            "export": self.export, "name": "volume-1",
            "options": format!("-o port={port}{}", self.options),
            "mount_point_base": self.host.dir().join("base"),
        });
        let data = data.as_object().unwrap().clone();
        ConnectionInfo::new(Protocol::new("nfs"), data, None)
    }

    async fn connect(&self) -> Result<Change<Attached>> {
        NFS.connect(&self.host, &self.info(), &Attach::default()).await
    }

    fn versions(&self) -> Vec<String> {
        let version = |flags: &Vec<String>| {
            flags.iter().find_map(|flag| flag.strip_prefix("vers=")).unwrap().to_owned()
        };
        self.asked.lock().unwrap().iter().map(version).collect()
    }

    /// What `mount.nfs` does.
    fn helper(&self, code: i32, stderr: &'static str) {
        let folder = self.server.path().to_owned();
        self.host.on_mounting_tool("mount.nfs", move |tool| {
            let shown = format!("{tool:?}");
            assert!(shown.contains("vers=3") && tool.leaves_daemon, "{shown}");
            let program = "mount.nfs".into();
            let (stdout, stderr) = (String::new(), stderr.to_owned());
            let output = ToolOutput { program, code: Some(code), stdout, stderr };
            let remote = Elsewhere {
                fs_type: "nfs".into(),
                source: EXPORT.into(),
                super_options: vec!["rw".into(), "addr=127.0.0.1".into()],
                folder: folder.clone(),
            };
            let target = match &tool.args[1] {
                hawser_core::port::host::Arg::Plain(target) => PathBuf::from(target),
                hawser_core::port::host::Arg::Hidden(_) => panic!("{shown}"),
            };
            Ok(Ended { output, mounted: (code == 0).then_some((target, remote, false)) })
        });
    }
}

fn value(request: &HostMount, key: &str) -> Option<String> {
    request.flags.iter().find_map(|flag| flag.strip_prefix(key)).map(str::to_owned)
}

fn rig() -> ConnectorRig {
    let bench = Bench::new(|_| Ok(()));
    let info = bench.info();
    let file = bench.server.path().join("volume-1");
    let alive = (bench.listener, bench.server);
    ConnectorRig::new(&NFS, bench.host, info, alive).on_grow(move |_| {
        let size = ByteSize::mib(5);
        fs::File::options().write(true).open(&file).unwrap().set_len(size.get()).unwrap();
        size
    })
}

hawser_testkit::connector_contract!(rig());

#[tokio::test]
async fn the_newest_version_is_mounted_without_a_program() {
    let bench = Bench::new(|_| Ok(()));

    let attached = bench.connect().await.unwrap().into_inner();

    let path = bench.host.dir().join("base").join(digest(EXPORT)).join("volume-1");
    assert_eq!(attached, Attached::File { path });
    assert_eq!(bench.versions(), ["4.2"]);
    assert!(bench.host.calls().iter().all(|call| call.method != "run"));
    assert!(bench.asked.lock().unwrap()[0].contains(&"addr=127.0.0.1".to_owned()));
}

#[tokio::test]
async fn a_label_of_selinux_reaches_the_kernel_whole() {
    let bench = Bench::new(|_| Ok(()));
    let label = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";
    let attach = Attach { mount_flags: vec![label.into()], ..Attach::default() };

    NFS.connect(&bench.host, &bench.info(), &attach).await.unwrap();

    let flags = bench.asked.lock().unwrap()[0].clone();
    assert!(flags.contains(&label.to_owned()), "{flags:?}");
}

#[tokio::test]
async fn an_older_version_is_tried_only_when_the_server_does_not_speak_the_newer() {
    let speaks = |spoken: &'static str| {
        move |version: &str| {
            if version == spoken { Ok(()) } else { Err(Errno::PROTONOSUPPORT) }
        }
    };
    for (spoken, tried) in [("4.1", 2), ("4.0", 3)] {
        let bench = Bench::new(speaks(spoken));
        bench.connect().await.unwrap();
        assert_eq!(bench.versions().len(), tried, "{spoken}");
    }
    let bench = Bench::new(speaks("4.0"));
    bench.connect().await.unwrap();
    let last = bench.asked.lock().unwrap().last().unwrap().clone();
    assert!(last.contains(&"clientaddr=127.0.0.1".to_owned()), "{last:?}");
}

#[tokio::test]
async fn any_other_refusal_is_told_as_it_is_and_leaves_nothing() {
    for (errno, reason) in [
        (Errno::ACCESS, Reason::AuthFailed),
        (Errno::NOENT, Reason::TargetNotFound),
        (Errno::STALE, Reason::TargetNotFound),
        (Errno::TIMEDOUT, Reason::TargetUnreachable),
        (Errno::CONNREFUSED, Reason::PortalRefused),
        (Errno::NODEV, Reason::ToolOrModuleMissing),
    ] {
        let bench = Bench::new(move |_| Err(errno));
        let before = bench.host.snapshot();

        let error = bench.connect().await.unwrap_err();

        assert_eq!(error.reason(), Some(reason), "{errno}: {error:?}");
        assert_eq!(bench.versions(), ["4.2"], "{errno}");
        assert_eq!(bench.host.snapshot(), before, "{errno}");
    }
}

#[tokio::test]
async fn a_server_of_version_3_is_mounted_by_the_program() {
    let bench = Bench::new(|_| Err(Errno::PROTONOSUPPORT));
    bench.helper(0, "");

    bench.connect().await.unwrap();

    assert_eq!(bench.versions(), ["4.2", "4.1", "4.0"]);
    assert_eq!(bench.host.snapshot().mounts[0].fs_type, "nfs");
}

#[tokio::test]
async fn what_the_program_says_is_understood() {
    for (said, reason) in [
        ("mount.nfs: access denied by server while mounting a:/x", Reason::AuthFailed),
        ("mount.nfs: Connection refused", Reason::PortalRefused),
        ("mount.nfs: Connection timed out", Reason::TargetUnreachable),
        (
            "mount.nfs: mounting a:/x failed, reason given by server: No such file or directory",
            Reason::TargetNotFound,
        ),
        (
            "mount.nfs: requested NFS version or transport protocol is not supported",
            Reason::TargetUnreachable,
        ),
    ] {
        let mut bench = Bench::new(|_| Ok(()));
        bench.options = ",vers=3".into();
        bench.helper(32, said);

        let error = bench.connect().await.unwrap_err();

        assert_eq!(error.reason(), Some(reason), "{said}: {error:?}");
        assert!(bench.versions().is_empty(), "only version 3 was asked for");
    }
}

#[tokio::test]
async fn a_missing_program_does_not_hide_that_the_server_speaks_no_version_4() {
    let bench = Bench::new(|_| Err(Errno::PROTONOSUPPORT));

    let error = bench.connect().await.unwrap_err();

    assert!(error.sentence().contains("does not speak the version"), "{error:?}");
    assert!(error.sentence().contains("mount.nfs is not installed"), "{error:?}");
}

#[tokio::test]
async fn nobody_at_the_port_is_told_before_the_kernel_is_asked() {
    let mut bench = Bench::new(|_| Ok(()));
    let info = bench.info();
    bench.listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let before = bench.host.snapshot();

    let error = NFS.connect(&bench.host, &info, &Attach::default()).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::PortalRefused), "{error:?}");
    assert!(bench.versions().is_empty());
    assert_eq!(bench.host.snapshot(), before);
}

#[tokio::test]
async fn exports_that_are_none_are_refused() {
    for export in ["nas", "nas:relative", "fd00::1:/x", ":/x"] {
        let mut bench = Bench::new(|_| Ok(()));
        bench.export = export.into();

        let error = bench.connect().await.unwrap_err();

        assert_eq!(error.kind(), Kind::Invalid, "{export}");
        assert!(error.sentence().contains("export"), "{error:?}");
    }
}

fn entry(fs_type: &str, source: &str, address: &str) -> MountEntry {
    MountEntry {
        id: 7,
        parent: 1,
        device: (0, 50),
        root: "/".into(),
        target: "/mnt".into(),
        options: vec!["rw".into()],
        propagation: Vec::new(),
        fs_type: fs_type.into(),
        source: source.into(),
        super_options: vec!["rw".into(), "vers=4.2".into(), format!("addr={address}")],
    }
}

#[test]
fn a_mount_is_recognised_by_path_and_by_name_or_address_of_its_server() {
    let host = FakeHost::new();
    let read = |export: &str| {
        let data = json!({ "export": export });
        let data = data.as_object().unwrap().clone();
        let info = ConnectionInfo::new(Protocol::new("nfs"), data, None);
        Nfs.read(&host, &info, &Attach::default()).unwrap().1
    };
    let at = |address: &str| vec![format!("{address}:0").parse().unwrap()];
    let nas = read("nas:/exports/a");

    for (entry, known) in [
        (entry("nfs4", "nas:/exports/a", "10.0.0.1"), true),
        (entry("nfs", "NAS:/exports/a/", "10.0.0.1"), true),
        (entry("nfs4", "10.0.0.1:/exports/a", "10.0.0.1"), true),
        (entry("nfs4", "nas:/exports/a", "10.0.0.2"), false),
        (entry("nfs4", "other:/exports/a", "10.0.0.2"), false),
        (entry("nfs4", "nas:/exports/ab", "10.0.0.1"), false),
        (entry("nfs4", "nas:/exports", "10.0.0.1"), false),
        (entry("ext4", "nas:/exports/a", "10.0.0.1"), false),
    ] {
        assert_eq!(nas.recognise(&entry, &at("10.0.0.1")).is_ok(), known, "{entry:?}");
    }
    let by_name = entry("nfs4", "nas:/exports/a", "10.0.0.2");
    assert!(nas.recognise(&by_name, &[]).is_ok(), "without addresses by name alone");
    assert!(read("nas:/").recognise(&entry("nfs4", "nas:/", "10.0.0.1"), &at("10.0.0.1")).is_ok());
    let six = read("[fd00::1]:/a");
    let six_entry = entry("nfs4", "[fd00::1]:/a", "fd00::1");
    assert!(six.recognise(&six_entry, &["[fd00::1]:0".parse().unwrap()]).is_ok());
}
