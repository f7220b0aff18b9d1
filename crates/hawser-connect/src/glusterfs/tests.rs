use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hawser_core::attach::Attached;
use hawser_core::connection::Protocol;
use hawser_core::error::Result;
use hawser_core::port::Connector;
use hawser_core::port::host::{Arg, Tool, ToolOutput};
use hawser_core::{ByteSize, Change, Kind, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::{Ended, FakeHost, Ran, Remote as Elsewhere};
use serde_json::{Value, json};

use super::*;
use crate::shared::remote_fs::Remote;
use crate::shared::remote_fs::data::digest;

static GLUSTER: Remote<Glusterfs> = Remote(Glusterfs);

const EXPORT: &str = "127.0.0.1:/vols";

/// A glusterd that only listens, and a mount.glusterfs that mounts what it knows.
struct Bench {
    host: FakeHost,
    listener: TcpListener,
    server: tempfile::TempDir,
    ran: Arc<Mutex<Vec<Vec<String>>>>,
}

fn words(tool: &Tool) -> Vec<String> {
    let word = |arg: &Arg| match arg {
        Arg::Plain(word) => word.to_string_lossy().into_owned(),
        Arg::Hidden(_) => panic!("there are no secrets in {tool:?}"),
    };
    tool.args.iter().map(word).collect()
}

impl Bench {
    fn new() -> Self {
        let host = FakeHost::new();
        host.kernel().folder("/run/hawser/mounts").folder("/var/log/glusterfs");
        let server = tempfile::tempdir().unwrap();
        let share = server.path().to_owned();
        fs::write(share.join("volume-1"), "data").unwrap();
        fs::create_dir(host.dir().join("base")).unwrap();
        let ran = Arc::<Mutex<Vec<Vec<String>>>>::default();
        let log = ran.clone();
        host.on_mounting_tool("mount.glusterfs", move |tool| {
            assert!(tool.leaves_daemon, "{tool:?}");
            let args = words(tool);
            log.lock().unwrap().push(args.clone());
            let known = args[0].ends_with(":/vols");
            let output = ToolOutput {
                program: tool.program.clone(),
                code: Some(i32::from(!known)),
                stdout: String::new(),
                stderr: if known { "" } else { "Mounting glusterfs on /x failed." }.into(),
            };
            let remote = Elsewhere {
                fs_type: "fuse.glusterfs".into(),
                source: args[0].clone(),
                super_options: vec!["rw".into()],
                folder: share.clone(),
            };
            let read_only = args[3].split(',').any(|option| option == "ro");
            let mounted = known.then(|| (PathBuf::from(&args[1]), remote, read_only));
            Ok(Ended { output, mounted })
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Self { host, listener, server, ran }
    }

    fn info(&self, options: &str, more: &Value) -> ConnectionInfo {
        let port = self.listener.local_addr().unwrap().port();
        let mut data = json!({
            "export": EXPORT, "name": "volume-1",
            "options": format!("-o server-port={port}{options}"),
            "mount_point_base": self.host.dir().join("base"),
        });
        for (key, value) in more.as_object().unwrap() {
            data[key] = value.clone();
        }
        let data = data.as_object().unwrap().clone();
        ConnectionInfo::new(Protocol::new("glusterfs"), data, None)
    }

    async fn connect(&self, options: &str, more: &Value) -> Result<Change<Attached>> {
        GLUSTER.connect(&self.host, &self.info(options, more), &Attach::default()).await
    }

    fn options(&self) -> String {
        self.ran.lock().unwrap().last().expect("a run")[3].clone()
    }
}

fn rig() -> ConnectorRig {
    let bench = Bench::new();
    let info = bench.info("", &json!({}));
    let file = bench.server.path().join("volume-1");
    let alive = (bench.listener, bench.server);
    ConnectorRig::new(&GLUSTER, bench.host, info, alive).on_grow(move |_| {
        let size = ByteSize::mib(5);
        fs::File::options().write(true).open(&file).unwrap().set_len(size.get()).unwrap();
        size
    })
}

hawser_testkit::connector_contract!(rig());

#[tokio::test]
async fn a_volume_is_mounted_by_the_program_with_a_log_of_its_own() {
    let bench = Bench::new();

    let attached = bench.connect(",noatime", &json!({})).await.unwrap().into_inner();

    let path = bench.host.dir().join("base").join(digest(EXPORT)).join("volume-1");
    assert_eq!(attached, Attached::File { path });
    let options = bench.options();
    let log = format!("log-file=/var/log/glusterfs/hawser-{}.log", digest(EXPORT));
    assert!(options.contains(&log) && options.contains(",noatime"), "{options}");
}

#[tokio::test]
async fn servers_beyond_the_first_are_handed_on_from_fields_and_options() {
    let bench = Bench::new();
    let more = json!({ "backup_servers": ["b", "127.0.0.1"] });

    bench.connect(",backup-volfile-servers=c:[fd00::1]", &more).await.unwrap();

    let options = bench.options();
    assert!(options.contains("backup-volfile-servers=b:c:[fd00::1]"), "{options}");
}

#[tokio::test]
async fn one_server_that_answers_is_enough_and_none_is_told_before_the_program_runs() {
    let bench = Bench::new();
    // Nobody listens there; the backup does.
    let more = json!({ "export": "127.9.9.9:/vols", "backup_servers": "127.0.0.1" });
    bench.connect("", &more).await.unwrap();

    let error = bench.connect("", &json!({ "export": "127.9.9.9:/vols" })).await;
    assert_eq!(
        error.unwrap(),
        Change::Already(Attached::File {
            path: bench.host.dir().join("base").join(digest("127.9.9.9:/vols")).join("volume-1"),
        }),
        "what is mounted needs no server"
    );

    let silent = bench.info("", &json!({ "export": "127.9.9.8:/vols" }));
    let error = GLUSTER.connect(&bench.host, &silent, &Attach::default()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::PortalRefused), "{error:?}");
    assert_eq!(bench.ran.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_log_says_why_a_mount_failed() {
    for (said, reason) in [
        (
            "E [glusterfsd-mgmt.c] 0-glusterfs: failed to get the 'volume file' from server",
            Some(Reason::TargetNotFound),
        ),
        (
            "W [client-handshake.c] 0-v-client-0: SETVOLUME on remote-host failed: \
          Authentication failed",
            Some(Reason::AuthFailed),
        ),
        ("W [fuse-bridge.c] 0-fuse: all subvolumes are down", Some(Reason::TargetUnreachable)),
        ("something nobody has seen", None),
    ] {
        let bench = Bench::new();
        let before = bench.host.snapshot();
        let file = format!("/var/log/glusterfs/hawser-{}.log", digest("127.0.0.1:/other"));
        bench.host.tool("mount.glusterfs", move |tree, _| {
            tree.file(&file, said);
            Ran::failed(1, "Mounting failed.")
        });

        let error = bench.connect("", &json!({ "export": "127.0.0.1:/other" })).await.unwrap_err();

        assert_eq!(error.reason(), reason, "{said}: {error:?}");
        assert_eq!(bench.host.snapshot().files, before.files);
    }
}

#[tokio::test]
async fn what_the_script_would_misread_is_refused() {
    let bench = Bench::new();
    for (options, more) in [
        ("", json!({ "export": "/etc/glusterfs/x.vol" })),
        ("", json!({ "export": "a:/v*" })),
        (",log-file=relative", json!({})),
        (",xlator-option=*dht*.x=1", json!({})),
        ("", json!({ "backup_servers": ["a b"] })),
        ("", json!({ "backup_servers": 7 })),
    ] {
        let error = bench.connect(options, &more).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{options} {more}: {error:?}");
    }
    assert!(bench.ran.lock().unwrap().is_empty());
}
