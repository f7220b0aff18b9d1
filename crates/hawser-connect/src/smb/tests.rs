use std::fs;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use hawser_core::attach::Attached;
use hawser_core::error::Result;
use hawser_core::port::Connector;
use hawser_core::port::host::{HostMount, MountEntry, MountSource};
use hawser_core::{ByteSize, Change, Kind, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::{FakeHost, Remote as Elsewhere};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::*;
use crate::shared::remote_fs::Remote;
use crate::shared::remote_fs::data::digest;

static SMB: Remote<Smb> = Remote(Smb);

const EXPORT: &str = "//127.0.0.1/vols";

/// A server on loopback, which only listens; the fake kernel answers for it, as a samba with one
/// user would.
struct Bench {
    host: FakeHost,
    listener: TcpListener,
    server: tempfile::TempDir,
    asked: Arc<Mutex<Vec<HostMount>>>,
}

fn value<'a>(request: &'a HostMount, key: &str) -> Option<&'a str> {
    request.flags.iter().find_map(|flag| flag.strip_prefix(key))
}

impl Bench {
    fn new() -> Self {
        let host = FakeHost::new();
        host.kernel().folder("/run/hawser/mounts");
        let server = tempfile::tempdir().unwrap();
        let share = server.path().to_owned();
        fs::write(share.join("volume-1"), "data").unwrap();
        fs::create_dir(host.dir().join("base")).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let asked = Arc::<Mutex<Vec<HostMount>>>::default();
        let log = asked.clone();
        host.on_network_mount(move |request| {
            log.lock().unwrap().push(request.clone());
            let MountSource::Network { fs_type, source, secrets } = &request.source else {
                panic!("{request:?}")
            };
            assert_eq!(fs_type, "cifs");
            if !source.ends_with("/vols") {
                return Err(Errno::NOENT.raw_os_error());
            }
            let password = secrets.iter().find(|(key, _)| key == "password");
            let known = value(request, "username=") == Some("u")
                && password.is_some_and(|(_, secret)| secret.expose() == "hunter2");
            if !known && value(request, "sec=") != Some("none") {
                return Err(Errno::ACCESS.raw_os_error());
            }
            let address = value(request, "ip=").expect("an address");
            let mut super_options = vec!["rw".into(), format!("addr={address}")];
            super_options.extend(value(request, "username=").map(|u| format!("username={u}")));
            super_options.extend(request.flags.iter().find(|flag| *flag == "seal").cloned());
            let (fs_type, source) = ("cifs".into(), source.clone());
            Ok(Elsewhere { fs_type, source, super_options, folder: share.clone() })
        });
        Self { host, listener, server, asked }
    }

    fn info(&self, options: &str, more: &Value) -> ConnectionInfo {
        let port = self.listener.local_addr().unwrap().port();
        let mut data = json!({
            "export": EXPORT, "name": "volume-1",
            "options": format!("-o port={port}{options}"),
            "mount_point_base": self.host.dir().join("base"),
        });
        for (key, value) in more.as_object().unwrap() {
            data[key] = value.clone();
        }
        serde_json::from_value(json!({ "driver_volume_type": "cifs", "data": data })).unwrap()
    }

    fn good(&self) -> ConnectionInfo {
        self.info(",username=u", &json!({ "password": "hunter2" }))
    }

    async fn connect(&self, info: &ConnectionInfo) -> Result<Change<Attached>> {
        SMB.connect(&self.host, info, &Attach::default()).await
    }

    fn asked(&self) -> HostMount {
        self.asked.lock().unwrap().last().expect("a mount").clone()
    }
}

fn rig() -> ConnectorRig {
    let bench = Bench::new();
    let info = bench.good();
    let file = bench.server.path().join("volume-1");
    let alive = (bench.listener, bench.server);
    ConnectorRig::new(&SMB, bench.host, info, alive).on_grow(move |_| {
        let size = ByteSize::mib(5);
        fs::File::options().write(true).open(&file).unwrap().set_len(size.get()).unwrap();
        size
    })
}

hawser_testkit::connector_contract!(rig());

#[tokio::test]
async fn a_share_is_mounted_in_the_newest_dialect_with_the_password_as_a_secret() {
    let bench = Bench::new();

    let attached = bench.connect(&bench.good()).await.unwrap().into_inner();

    let path = bench.host.dir().join("base").join(digest(EXPORT)).join("volume-1");
    assert_eq!(attached, Attached::File { path });
    let asked = bench.asked();
    assert!(asked.flags.contains(&"vers=3.1.1".to_owned()), "{asked:?}");
    assert!(asked.flags.contains(&"ip=127.0.0.1".to_owned()), "{asked:?}");
    let calls = format!("{:?} {asked:?}", bench.host.calls());
    assert!(!calls.contains("hunter2"), "{calls}");
    assert!(bench.host.calls().iter().all(|call| call.method != "run"));
}

#[tokio::test]
async fn credentials_come_from_options_fields_and_files() {
    let bench = Bench::new();
    bench.host.kernel().file("/etc/cred", "username=u\npassword=hunter2\ndomain=D\n");
    for (options, more) in [
        (",user=u,password=hunter2", json!({})),
        ("", json!({ "username": "D\\u", "password": "hunter2" })),
        (",user=D\\u", json!({ "password": "hunter2" })),
        (",credentials=/etc/cred", json!({})),
        (",guest", json!({})),
    ] {
        let info = bench.info(options, &more);

        bench.connect(&info).await.unwrap();

        assert!(!format!("{info:?}").contains("hunter2"));
        let record = ConnectorRig::new(&SMB, FakeHost::new(), info, ()).intent();
        let detach = hawser_core::attach::Detach::default();
        let gone = SMB.disconnect(&bench.host, &record, &detach).await.unwrap();
        assert_eq!(gone, Change::Made(()), "{options}");
    }
}

#[tokio::test]
async fn wrong_credentials_and_shares_are_told_apart_and_leave_nothing() {
    let bench = Bench::new();
    let before = bench.host.snapshot();
    for (options, more, reason) in [
        (",username=u", json!({ "password": "wrong" }), Reason::AuthFailed),
        (",username=u", json!({}), Reason::AuthFailed),
        (",guest", json!({ "export": "//127.0.0.1/other" }), Reason::TargetNotFound),
        ("", json!({}), Reason::InvalidParameters),
        ("", json!({ "export": "nas:/vols" }), Reason::InvalidParameters),
    ] {
        let error = bench.connect(&bench.info(options, &more)).await.unwrap_err();

        assert_eq!(error.reason(), Some(reason), "{options} {more}: {error:?}");
        assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
        assert_eq!(bench.host.snapshot(), before);
    }
}

#[tokio::test]
async fn a_mount_in_the_clear_or_in_anothers_name_is_not_shared() {
    let bench = Bench::new();
    bench.connect(&bench.good()).await.unwrap();

    let sealed = bench.info(",username=u,seal", &json!({ "password": "hunter2" }));
    let error = bench.connect(&sealed).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    assert!(error.sentence().contains("without the encryption"), "{error:?}");
    let other = bench.info(",username=v", &json!({ "password": "x" }));
    let error = bench.connect(&other).await.unwrap_err();
    assert!(error.sentence().contains("in the name of u, not of v"), "{error:?}");
}

#[test]
fn a_mount_is_recognised_by_share_and_server() {
    let host = FakeHost::new();
    let info = json!({ "driver_volume_type": "smbfs", "data": {
        "export": "//nas/Vols/a", "options": "-o username=u" } });
    let info = serde_json::from_value(info).unwrap();
    let (_, share) = Smb.read(&host, &info, &Attach::default()).unwrap();
    let at = ["10.0.0.1:0".parse().unwrap()];

    for (fs_type, source, address, known) in [
        ("cifs", "//NAS/vols/a", "10.0.0.1", true),
        ("smb3", "//10.0.0.1/Vols/a", "10.0.0.1", true),
        ("cifs", "//nas/Vols/A", "10.0.0.1", false),
        ("cifs", "//nas/Vols", "10.0.0.1", false),
        ("cifs", "//nas/Vols/a", "10.0.0.2", false),
        ("cifs", "//other/Vols/a", "10.0.0.2", false),
        ("nfs4", "//nas/Vols/a", "10.0.0.1", false),
    ] {
        let entry = MountEntry {
            id: 7,
            parent: 1,
            device: (0, 50),
            root: "/".into(),
            target: "/mnt".into(),
            options: vec!["rw".into()],
            propagation: Vec::new(),
            fs_type: fs_type.into(),
            source: source.into(),
            super_options: vec![format!("addr={address}"), "username=U".into()],
        };
        assert_eq!(share.recognise(&entry, &at).is_ok(), known, "{source} {address}");
    }
}
