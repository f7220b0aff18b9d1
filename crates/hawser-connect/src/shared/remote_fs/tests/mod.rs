mod faults;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Identity};
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_core::error::Error;
use hawser_core::port::Connector;
use hawser_core::port::connector::{Abilities, ConnectorInfo, Maturity, Platform, Proof, Proofs};
use hawser_core::port::host::{LoopAttach, Tool, ToolOutput};
use hawser_core::{ByteSize, Change, Outcome, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::{Ended, FakeHost, Remote as Elsewhere, Server};
use serde_json::json;

use super::connector::{FileProtocol, Remote};
use super::data::{Naming, Volume};
use super::*;

const EXPORT: &str = "172.18.194.100:/var/nfs";
/// What os-brick's `get_mount_point` says for that export.
const OS_BRICK_NAME: &str = "df0808229363aad55c27da50c38d6328";

/// A protocol that mounts with a program and has no server that could be asked.
struct Plain;

struct PlainFs {
    export: String,
}

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["PLAIN"],
    maturity: Maturity::Preview,
    note: "for tests",
    platforms: &[Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: false, reservation: false },
    proofs: Proofs::of(Proof::Fixtures),
    own: &[],
    needs: &[],
};

impl FileProtocol for Plain {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn read(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<(Volume, Box<dyn RemoteFs>), AttachError> {
        let volume = Volume::read(host, info, attach, Naming::Digest)?;
        let export = volume.export.clone();
        Ok((volume, Box::new(PlainFs { export })))
    }
}

#[async_trait]
impl RemoteFs for PlainFs {
    async fn addresses(&self, _deadline: Deadline) -> Result<Vec<SocketAddr>> {
        Ok(Vec::new())
    }

    fn recognise(
        &self,
        entry: &MountEntry,
        _addresses: &[SocketAddr],
    ) -> std::result::Result<(), String> {
        let same = entry.fs_type == "plain" && entry.source == self.export;
        if same { Ok(()) } else { Err(entry.source.clone()) }
    }

    async fn mount(
        &self,
        host: &dyn Host,
        volume: &Volume,
        _addresses: &[SocketAddr],
        _deadline: Deadline,
    ) -> Result<()> {
        let access = if volume.read_only { "ro" } else { "rw" };
        let tool = Tool::new("mount.plain").arg(&self.export).arg(&volume.target).arg(access);
        let output = host.run(&tool).await?;
        let attempt = format!("mounting {}", self.export);
        output.ok().map_err(AttachError::tool(attempt))?;
        Ok(())
    }
}

static PLAIN: Remote<Plain> = Remote(Plain);

fn ended(code: i32) -> ToolOutput {
    let program = "mount.plain".into();
    ToolOutput { program, code: Some(code), stdout: String::new(), stderr: "no".into() }
}

fn arguments(tool: &Tool) -> Vec<String> {
    let words = tool.args.iter().map(|arg| format!("{arg:?}"));
    words.map(|word| word.trim_start_matches("Plain(\"").trim_end_matches("\")").into()).collect()
}

/// A host, an export with two files in it, and a folder for mounts.
struct Bench {
    host: FakeHost,
    share: PathBuf,
    /// What another machine holds is no part of this host.
    server: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let host = FakeHost::new();
        host.kernel().folder("/run/hawser/mounts");
        let server = tempfile::tempdir().unwrap();
        let share = server.path().to_owned();
        for name in ["volume-1", "volume-2"] {
            fs::write(share.join(name), "data").unwrap();
        }
        fs::create_dir(host.dir().join("base")).unwrap();
        let folder = share.clone();
        host.on_mounting_tool("mount.plain", move |tool| {
            let args = arguments(tool);
            let mounted = (PathBuf::from(&args[1]), elsewhere(&args[0], &folder), args[2] == "ro");
            Ok(Ended { output: ended(0), mounted: Some(mounted) })
        });
        Self { host, share, server }
    }

    fn base(&self) -> PathBuf {
        self.host.dir().join("base")
    }

    fn target(&self) -> PathBuf {
        self.base().join(OS_BRICK_NAME)
    }

    fn info(&self, name: Option<&str>) -> ConnectionInfo {
        let data = json!({ "export": EXPORT, "name": name, "mount_point_base": self.base() });
        let data = data.as_object().unwrap().clone();
        ConnectionInfo::new(Protocol::new("plain"), data, None)
    }

    async fn connect(&self, name: &str) -> Result<Change<Attached>> {
        PLAIN.connect(&self.host, &self.info(Some(name)), &Attach::default()).await
    }

    async fn connect_ro(&self, name: &str) -> Result<Change<Attached>> {
        let attach = Attach { read_only: true, ..Attach::default() };
        PLAIN.connect(&self.host, &self.info(Some(name)), &attach).await
    }

    fn record(&self, name: &str) -> AttachRecord {
        let info = self.info(Some(name));
        ConnectorRig::new(&PLAIN, FakeHost::new(), info, ()).intent()
    }

    async fn disconnect(&self, name: &str) -> Result<Change<()>> {
        self.disconnect_with(name, &Detach::default()).await
    }

    async fn disconnect_with(&self, name: &str, detach: &Detach) -> Result<Change<()>> {
        PLAIN.disconnect(&self.host, &self.record(name), detach).await
    }

    fn mounts(&self) -> Vec<PathBuf> {
        self.host.snapshot().mounts.into_iter().map(|entry| entry.target).collect()
    }

    fn file(&self, name: &str) -> Attached {
        Attached::File { path: self.target().join(name) }
    }
}

fn elsewhere(source: &str, folder: &Path) -> Elsewhere {
    Elsewhere {
        fs_type: "plain".into(),
        source: source.into(),
        super_options: vec!["rw".into()],
        folder: folder.into(),
    }
}

fn forced(ignore_errors: bool) -> Detach {
    Detach { force: true, ignore_errors, ..Detach::default() }
}

fn rig(name: Option<&str>) -> ConnectorRig {
    let bench = Bench::new();
    let info = bench.info(name);
    let file = bench.share.join("volume-1");
    let is_file = name.is_some();
    ConnectorRig::new(&PLAIN, bench.host, info, bench.server).on_grow(move |_| {
        let size = ByteSize::mib(5);
        fs::File::options().write(true).open(&file).unwrap().set_len(size.get()).unwrap();
        if is_file { size } else { ByteSize::ZERO }
    })
}

hawser_testkit::connector_contract!(file_contract, rig(Some("volume-1")));
hawser_testkit::connector_contract!(folder_contract, rig(None));

#[tokio::test]
async fn a_mount_has_the_name_that_os_brick_gives_it() {
    let bench = Bench::new();

    let attached = bench.connect("volume-1").await.unwrap();

    assert_eq!(attached, Change::Made(bench.file("volume-1")));
    assert_eq!(bench.mounts(), [bench.target()]);
}

#[tokio::test]
async fn without_a_name_the_folder_is_the_volume() {
    let bench = Bench::new();

    let made = PLAIN.connect(&bench.host, &bench.info(None), &Attach::default()).await.unwrap();

    assert_eq!(made, Change::Made(Attached::Directory { path: bench.target() }));
}

#[tokio::test]
async fn volumes_of_one_export_share_its_mount_and_the_last_one_takes_it_away() {
    let bench = Bench::new();
    let before = bench.host.snapshot();
    bench.connect("volume-1").await.unwrap();

    let second = bench.connect("volume-2").await.unwrap();

    assert_eq!(second, Change::Made(bench.file("volume-2")));
    assert_eq!(bench.mounts().len(), 1);
    assert_eq!(bench.disconnect("volume-1").await.unwrap(), Change::Made(()));
    assert_eq!(bench.disconnect("volume-1").await.unwrap(), Change::Already(()));
    assert_eq!(bench.mounts().len(), 1, "volume-2 uses it");
    assert_eq!(bench.disconnect("volume-2").await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.snapshot(), before);
}

#[tokio::test]
async fn two_ids_of_one_file_are_two_users() {
    let bench = Bench::new();
    let with_id = |id: &str| {
        let mut info = bench.info(Some("volume-1"));
        info.data.insert("volume_id".into(), json!(id));
        info
    };
    for id in ["a", "b"] {
        let made = PLAIN.connect(&bench.host, &with_id(id), &Attach::default()).await.unwrap();
        assert!(made.is_made(), "{id}");
    }

    for (id, left) in [("a", 1), ("b", 0)] {
        let mut record = bench.record("volume-1");
        record.info = with_id(id);
        PLAIN.disconnect(&bench.host, &record, &Detach::default()).await.unwrap();
        assert_eq!(bench.mounts().len(), left, "{id}");
    }
}

#[tokio::test]
async fn a_mount_of_somebody_else_is_used_and_left() {
    let bench = Bench::new();
    fs::create_dir(bench.target()).unwrap();
    bench.host.add_remote_mount(&bench.target(), elsewhere(EXPORT, &bench.share));
    let before = bench.host.snapshot();

    assert!(bench.connect("volume-1").await.unwrap().is_made());
    assert!(!bench.connect("volume-1").await.unwrap().is_made());
    assert_eq!(bench.disconnect("volume-1").await.unwrap(), Change::Made(()));

    assert_eq!(bench.host.snapshot(), before);
}

#[tokio::test]
async fn a_mount_that_somebody_else_made_in_place_of_ours_is_left() {
    let bench = Bench::new();
    bench.connect("volume-1").await.unwrap();
    bench.host.unmount(&bench.target()).await.unwrap();
    bench.host.add_remote_mount(&bench.target(), elsewhere(EXPORT, &bench.share));

    assert_eq!(bench.disconnect("volume-1").await.unwrap(), Change::Made(()));

    assert_eq!(bench.mounts(), [bench.target()]);
}

#[tokio::test]
async fn another_export_at_the_place_is_refused_and_left() {
    let bench = Bench::new();
    fs::create_dir(bench.target()).unwrap();
    bench.host.add_remote_mount(&bench.target(), elsewhere("other:/x", &bench.share));
    let before = bench.host.snapshot();

    let error = bench.connect("volume-1").await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert!(error.sentence().contains("other:/x"), "{error:?}");
    assert_eq!(bench.disconnect("volume-1").await.unwrap(), Change::Already(()));
    assert_eq!(bench.host.snapshot(), before);
    let health = PLAIN.health(&bench.host, &bench.record("volume-1")).await.unwrap();
    assert!(health.message.contains("something else"), "{health:?}");
}

#[tokio::test]
async fn readers_get_a_mount_of_their_own_beside_the_writers() {
    let bench = Bench::new();
    let before = bench.host.snapshot();
    bench.connect("volume-1").await.unwrap();

    let reader = bench.connect_ro("volume-2").await.unwrap().into_inner();

    let target = bench.base().join(format!("{OS_BRICK_NAME}-ro"));
    assert_eq!(reader.path(), target.join("volume-2"));
    let table = bench.host.snapshot().mounts;
    assert!(table.iter().any(|entry| entry.target == target && entry.read_only()));
    let found = PLAIN.lookup(&bench.host, &bench.info(Some("volume-2"))).await.unwrap();
    assert_eq!(found, Some(reader));
    let mut record = bench.record("volume-2");
    record.attach.read_only = true;
    PLAIN.disconnect(&bench.host, &record, &Detach::default()).await.unwrap();
    bench.disconnect("volume-1").await.unwrap();
    assert_eq!(bench.host.snapshot(), before);
}

#[tokio::test]
async fn a_mount_that_refuses_writes_is_not_given_to_a_writer() {
    let bench = Bench::new();
    let mut readers = bench.info(Some("volume-1"));
    readers.data.insert("options".into(), json!("-o ro"));
    let made = PLAIN.connect(&bench.host, &readers, &Attach::default()).await.unwrap();
    assert_eq!(*made.get(), bench.file("volume-1"), "as os-brick names it");

    let error = bench.connect("volume-2").await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
    assert!(error.sentence().contains("mounted read-only already"), "{error:?}");
}

#[tokio::test]
async fn case_24_a_mount_that_is_not_there_after_all_is_refused() {
    let bench = Bench::new();
    let before = bench.host.snapshot();
    // The program says that all is well and has mounted nothing.
    bench.host.on_mounting_tool("mount.plain", |_| Ok(Ended { output: ended(0), mounted: None }));

    let error = bench.connect("volume-1").await.unwrap_err();

    assert!(error.sentence().contains("a disk of this host"), "{error:?}");
    assert_eq!(error.outcome(), Outcome::RolledBack);
    assert_eq!(bench.host.snapshot(), before);
}

#[tokio::test]
async fn case_24_the_folder_below_a_mount_is_closed_to_all() {
    let bench = Bench::new();
    let mut info = bench.info(Some("volume-1"));
    let deep = bench.base().join("deep/er");
    info.data.insert("mount_point_base".into(), json!(deep));
    let before = bench.host.snapshot();

    PLAIN.connect(&bench.host, &info, &Attach::default()).await.unwrap();

    let made: Vec<String> = bench
        .host
        .calls()
        .into_iter()
        .filter(|call| call.method == "make_folder")
        .map(|call| call.detail)
        .collect();
    let modes: Vec<_> = made.iter().filter_map(|call| call.split(' ').next_back()).collect();
    assert_eq!(modes, ["755", "755", "000"], "{made:?}");
    let mut record = bench.record("volume-1");
    record.info = info;
    PLAIN.disconnect(&bench.host, &record, &Detach::default()).await.unwrap();
    assert_eq!(bench.host.snapshot(), before, "folders that were made are gone");
}

#[tokio::test]
async fn a_volume_that_the_export_does_not_have_leaves_nothing() {
    let bench = Bench::new();
    let before = bench.host.snapshot();

    let error = bench.connect("volume-3").await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::LunNotFound), "{error:?}");
    assert_eq!(bench.host.snapshot(), before);
}

#[tokio::test]
async fn a_volume_must_be_a_plain_file() {
    let bench = Bench::new();
    fs::create_dir(bench.share.join("folder")).unwrap();
    symlink("/etc/passwd", bench.share.join("link")).unwrap();
    let before = bench.host.snapshot();

    for name in ["folder", "link"] {
        let error = bench.connect(name).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
        assert_eq!(bench.host.snapshot(), before, "{name}");
    }
}

/// As os-brick writes it, and as the design note does.
#[test]
fn every_protocol_reads_both_spellings_alike() {
    let host = FakeHost::new();
    let protocols: [(&str, &str, &dyn FileProtocol); 6] = [
        ("nfs", "nas:/vols", &crate::nfs::Nfs),
        ("smbfs", "//nas/vols", &crate::smb::Smb),
        ("glusterfs", "nas:/vols", &crate::glusterfs::Glusterfs),
        ("quobyte", "registry/vols", &crate::quobyte::Quobyte),
        ("scality", "vols", &crate::scality::Scality),
        ("vzstorage", "mds:/c1:hunter2", &crate::vzstorage::Vzstorage),
    ];
    for (protocol, export, connector) in protocols {
        let read = |value| {
            let info: ConnectionInfo = serde_json::from_value(value).unwrap();
            let attach = Attach::default();
            let (volume, _) = connector.read(&host, &info, &attach).unwrap_or_else(|error| {
                panic!("{protocol}: {error}");
            });
            volume
        };

        let snake = read(json!({ "driver_volume_type": protocol, "mount_point_base": "/mnt/base",
            "data": { "export": export, "name": "v", "volume_id": "VOL", "access_mode": "ro",
                "format": "raw", "auth_username": "u", "username": "u" } }));
        let camel = read(json!({ "driverVolumeType": protocol.to_ascii_uppercase(),
            "mountPointBase": "/mnt/base/", "data": { "exportLocations": [export, "other:/x"],
                "name": "v", "volumeId": "VOL", "accessMode": "ro", "username": "u" } }));

        assert_eq!(snake, camel, "{protocol}");
        assert!(snake.read_only && snake.id.as_deref() == Some("VOL"), "{protocol}: {snake:?}");
        assert!(snake.path().starts_with("/mnt/base") && snake.path().ends_with("v"), "{snake:?}");
        assert!(!format!("{snake:?}").contains("hunter2"), "{snake:?}");
    }
}

#[tokio::test]
async fn names_and_bases_that_lead_elsewhere_are_refused_by_field() {
    let bench = Bench::new();
    for (field, value) in [
        ("name", json!("a/b")),
        ("name", json!("..")),
        ("name", json!("a\u{0}b")),
        ("name", json!(7)),
        ("name", json!("x".repeat(256))),
        ("export", json!("")),
        ("export", json!("-o bind:/x")),
        ("export", json!(" a:/x")),
        ("export", json!("a:/x ")),
        ("export", json!(null)),
        ("mount_point_base", json!("relative")),
        ("mount_point_base", json!("/")),
        ("mount_point_base", json!("/a/../b")),
        ("options", json!("-t ext4")),
        ("options", json!(["ro"])),
        ("access_mode", json!("both")),
    ] {
        let mut info = bench.info(Some("volume-1"));
        info.data.insert(field.into(), value.clone());

        let error = PLAIN.connect(&bench.host, &info, &Attach::default()).await.unwrap_err();

        assert_eq!(error.kind(), Kind::Invalid, "{field} {value}: {error:?}");
        assert!(error.sentence().contains(field), "{field} {value}: {error:?}");
    }
    assert!(bench.host.changes().is_empty());
}

#[tokio::test]
async fn a_file_that_grew_is_seen_with_its_new_size() {
    let bench = Bench::new();
    bench.connect("volume-1").await.unwrap();
    let file = fs::File::options().write(true).open(bench.share.join("volume-1")).unwrap();
    file.set_len(5 << 20).unwrap();

    let size = PLAIN.extend(&bench.host, &bench.record("volume-1")).await.unwrap();

    assert_eq!(size, ByteSize::mib(5));
    bench.disconnect("volume-1").await.unwrap();
    let error = PLAIN.extend(&bench.host, &bench.record("volume-1")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
}

#[tokio::test]
async fn an_identity_is_the_export_and_the_name() {
    let bench = Bench::new();
    for (identity, right) in [
        (Identity::new("export", format!("{EXPORT}/volume-1")), true),
        (Identity::new("export", format!("{EXPORT}/volume-2")), false),
        (Identity::new("wwid", format!("{EXPORT}/volume-1")), false),
    ] {
        let mut info = bench.info(Some("volume-1"));
        info.identity = Some(identity.clone());
        let result = PLAIN.connect(&bench.host, &info, &Attach::default()).await;
        assert_eq!(result.is_ok(), right, "{identity}");
    }
    bench.disconnect("volume-1").await.unwrap();
    let mut info = bench.info(Some("volume-1"));
    info.data.insert("wwn".into(), json!("3600140500000000000000000000000001"));
    let error = PLAIN.connect(&bench.host, &info, &Attach::default()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "a file has none: {error:?}");
}

#[tokio::test]
async fn two_attaches_at_once_make_one_mount() {
    let bench = Bench::new();

    let (first, second) = tokio::join!(bench.connect("volume-1"), bench.connect("volume-2"));

    assert!(first.unwrap().is_made() && second.unwrap().is_made());
    assert_eq!(bench.mounts().len(), 1);
}
