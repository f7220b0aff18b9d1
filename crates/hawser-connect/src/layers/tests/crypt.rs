use std::path::PathBuf;
use std::time::Duration;

use hawser_core::attach::{
    Attach, AttachRecord, Attached, Detach, Encryption, EncryptionFormat, Multipath, SingleWriter,
};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::port::host::Content;
use hawser_core::secret::Secret;
use hawser_core::{ByteSize, Change, Reason};
use hawser_testkit::fake_host::kernel::{DiskSpec, FindMultipaths, Flush, Lun, Target};
use hawser_testkit::fake_host::{FakeHost, HostState, Ran, ToolCall, Tree};
use hawser_testkit::sim::{iscsi, multipath};
use serde_json::json;
use tokio::time::Instant;

use crate::iscsi::Iscsi;
use crate::layers::{Layered, crypt};
use crate::shared::wait::Deadline;

const IQN: &str = "iqn.2020-01.org.example:t1";
const WITH_LUKS: &str = "crypto_LUKS";
const EIO: i32 = 5;
const EBUSY: i32 = 16;

/// An encrypted volume behind iSCSI.
struct Rig {
    host: FakeHost,
    volume: Lun,
    info: ConnectionInfo,
    attach: Attach,
    /// Before anything was attached.
    before: HostState,
}

impl Rig {
    fn new(paths: usize) -> Self {
        let host = FakeHost::new();
        iscsi::install(&host);
        multipath::install(&host);
        host.tool("cryptsetup", cryptsetup);
        let volume = Lun::scsi("6001405aaaaaaaaaaaaaaaaaaaaaaaaa", ByteSize::mib(64));
        let target = Target::new().with(1, &volume);
        let portals: Vec<String> = (0..paths).map(|_| iscsi::listen(host.kernel())).collect();
        for portal in &portals {
            iscsi::add_portal(host.kernel(), portal, IQN, &target);
        }
        let mut multipath = Multipath::Off;
        if paths > 1 {
            host.kernel().multipathd(FindMultipaths::Strict);
            multipath = Multipath::Enforced;
        }
        let data = json!({ "target_portals": portals, "target_iqns": vec![IQN; paths],
            "target_luns": vec![1; paths], "volume_id": "v1" });
        let envelope = json!({ "driver_volume_type": "iscsi", "data": data });
        let mut info: ConnectionInfo = serde_json::from_value(envelope).unwrap();
        info.secrets.insert("encryption_key".into(), Secret::new("correct horse"));
        let attach = Attach { multipath, encryption: Some(luks()), ..Attach::default() };
        let before = host.snapshot();
        Self { host, volume, info, attach, before }
    }

    /// Attaches it as it is, and puts a header on it.
    async fn with_header(paths: usize) -> Self {
        let rig = Self::new(paths);
        let plain = Attach { encryption: None, ..rig.attach.clone() };
        let raw = LAYERED.connect(&rig.host, &rig.info, &plain).await.unwrap().into_inner();
        rig.host.set_content(raw.path(), &Content::Other(WITH_LUKS.into()));
        rig
    }

    async fn connect(&self) -> Result<Change<Attached>> {
        LAYERED.connect(&self.host, &self.info, &self.attach).await
    }

    async fn lookup(&self) -> Result<Option<Attached>> {
        LAYERED.lookup(&self.host, &self.info, Some(&self.attach)).await
    }

    fn record(&self, attached: &Attached) -> AttachRecord {
        crypt::record_of(&self.info, &self.attach, attached.clone())
    }

    async fn disconnect(&self, attached: &Attached, force: bool) -> Result<Change<()>> {
        let detach = Detach { force, ..Detach::default() };
        LAYERED.disconnect(&self.host, &self.record(attached), &detach).await
    }

    fn assert_nothing_left(&self) {
        assert_eq!(self.before.difference(&self.host.snapshot()), "");
    }
}

const LAYERED: Layered<'static> = Layered(&Iscsi);

fn luks() -> Encryption {
    Encryption {
        format: EncryptionFormat::Luks2,
        cipher: None,
        key_size: None,
        format_if_blank: false,
        discards: false,
    }
}

/// As far as it is used here: the last arguments of `open` are the device and the name.
fn cryptsetup(tree: &mut Tree, call: &ToolCall) -> Ran {
    let name = call.args.last().expect("a name").clone();
    match call.args[0].as_str() {
        "open" => {
            let below = tree.disk_at(&call.args[call.args.len() - 2]).expect("a device");
            let lun = tree.lun_of(&below).expect("a volume");
            open_over(tree, &name, &below, &lun);
            Ran::ok("")
        }
        "close" => match tree.remove_map(&name) {
            Ok(()) => Ran::ok(""),
            Err(EBUSY) => Ran::failed(5, "is still in use"),
            Err(_) => Ran::failed(4, "is not active"),
        },
        "resize" => Ran::ok(""),
        other => panic!("cryptsetup {other}"),
    }
}

fn open_over(tree: &mut Tree, name: &str, below: &str, lun: &Lun) -> String {
    tree.add_map(name, &format!("CRYPT-LUKS2-0-{name}"), ("crypt", ""), &[below], lun).unwrap()
}

fn name_of(clear: &Attached) -> String {
    clear.path().file_name().unwrap().to_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_raw_device_is_no_answer_for_an_encrypted_volume() {
    let rig = Rig::with_header(1).await;
    let clear = rig.connect().await.unwrap().into_inner();
    assert_eq!(rig.lookup().await.unwrap().as_ref(), Some(&clear));

    // Somebody closes it by hand.
    rig.host.kernel().edit(|tree| tree.remove_map(&name_of(&clear))).unwrap();

    assert_eq!(rig.lookup().await.unwrap(), None);
    let record = rig.record(&clear);
    assert!(!LAYERED.health(&rig.host, &record).await.unwrap().healthy);
    let grown = LAYERED.extend(&rig.host, &record).await.unwrap_err().sentence();
    assert!(grown.contains("not open"), "{grown}");
    assert_eq!(rig.connect().await.unwrap(), Change::Made(clear.clone()), "it is opened again");
    rig.disconnect(&clear, false).await.unwrap();
    rig.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_clear_side_over_another_device_is_used_by_nobody() {
    let rig = Rig::with_header(1).await;
    let clear = rig.connect().await.unwrap().into_inner();
    let (name, record) = (name_of(&clear), rig.record(&clear));

    // It stands on what the volume was once; the volume came back as another device.
    let dead = Lun::scsi("6001405bbbbbbbbbbbbbbbbbbbbbbbbb", ByteSize::mib(64));
    rig.host.kernel().disk(DiskSpec::new("sdz", &dead));
    rig.host.kernel().edit(|tree| {
        tree.remove_map(&name).unwrap();
        open_over(tree, &name, "sdz", &dead);
    });

    let refusals = [
        rig.connect().await.map(|_| ()),
        rig.lookup().await.map(|_| ()),
        LAYERED.health(&rig.host, &record).await.map(|_| ()),
        LAYERED.extend(&rig.host, &record).await.map(|_| ()),
        rig.disconnect(&clear, false).await.map(|_| ()),
    ];
    for refused in refusals {
        let error = refused.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
        assert!(error.sentence().contains("sdz"), "{error:?}");
    }

    rig.disconnect(&clear, true).await.expect("by force it is closed");
    rig.host.kernel().edit(|tree| tree.remove_disk("sdz"));
    rig.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_map_of_our_name_that_is_not_luks_is_not_even_closed_by_force() {
    let rig = Rig::with_header(1).await;
    let clear = rig.connect().await.unwrap().into_inner();
    let name = name_of(&clear);
    rig.host.kernel().edit(|tree| {
        tree.remove_map(&name).unwrap();
        let lun = tree.lun_of("sda").unwrap();
        tree.add_map(&name, "LVM-x", ("linear", ""), &["sda"], &lun).unwrap();
    });

    for force in [false, true] {
        let error = rig.disconnect(&clear, force).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    }
    assert!(rig.host.kernel().edit(|tree| tree.map_device(&name)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_forced_detach_goes_on_below_a_clear_side_that_cannot_be_written_out() {
    let rig = Rig::with_header(1).await;
    let clear = rig.connect().await.unwrap().into_inner();
    rig.host.kernel().set_flush(clear.path(), Flush::Fails(EIO));

    let refused = rig.disconnect(&clear, false).await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::FlushFailed), "{refused:?}");
    assert_eq!(rig.lookup().await.unwrap().as_ref(), Some(&clear), "everything stays");

    let lost = rig.disconnect(&clear, true).await.unwrap_err();
    assert_eq!(lost.reason(), Some(Reason::DataLost), "{lost:?}");
    rig.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_clear_side_over_a_map_without_paths_does_not_hang_its_detach() {
    let rig = Rig::with_header(2).await;
    let clear = rig.connect().await.unwrap().into_inner();
    let paths: Vec<String> = rig.host.kernel().edit(|tree| {
        let disk = tree.disk_at(clear.path()).unwrap();
        tree.make_dirty(&disk);
        tree.disk_names().into_iter().filter(|name| name.starts_with("sd")).collect()
    });
    assert_eq!(paths.len(), 2);
    for path in &paths {
        rig.host.kernel().edit(|tree| tree.set_online(path, false));
        rig.host.kernel().value(format!("/sys/block/{path}/device/state"), "transport-offline");
    }

    let begun = Instant::now();
    let refused = rig.disconnect(&clear, false).await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::FlushFailed), "{refused:?}");
    assert!(refused.sentence().contains("no path"), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "took {:?}", begun.elapsed());
    assert!(rig.host.kernel().edit(|tree| tree.map_device(&name_of(&clear))).is_some());

    let lost = rig.disconnect(&clear, true).await.unwrap_err();
    assert_eq!(lost.reason(), Some(Reason::DataLost), "{lost:?}");
    rig.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_device_that_cannot_be_read_gets_no_header() {
    let host = FakeHost::new();
    host.tool("cryptsetup", cryptsetup);
    let volume = Lun::new(ByteSize::mib(64));
    host.kernel().disk(DiskSpec::new("sdb", &volume));
    host.kernel().edit(|tree| tree.set_online("sdb", false));
    let info = Rig::new(1).info;
    let plain = Attached::Block {
        device: PathBuf::from("/dev/sdb"),
        identity: None,
        size: ByteSize::mib(64),
    };
    let clear = crypt::Clear::of(&info, Some(&plain));
    let encryption = Encryption { format_if_blank: true, ..luks() };
    let deadline = Deadline::after(Duration::from_secs(60));

    let refused = clear.open(&host, &info, &encryption, false, deadline).await.unwrap_err();

    assert!(refused.sentence().contains("I/O error"), "{refused:?}");
    assert_eq!(host.arguments(), Vec::<String>::new(), "cryptsetup ran");
    assert_eq!(volume.read_at(0, 4096), vec![0; 4096]);
}

/// Somebody who has the device open still writes to it.
#[tokio::test(start_paused = true)]
async fn a_device_that_could_not_be_detached_keeps_its_reservation() {
    let mut rig = Rig::new(1);
    rig.attach.encryption = None;
    rig.attach.reservation = Some(SingleWriter { key: 7, preempt: false });
    let disk = rig.connect().await.unwrap().into_inner();
    let name = name_of(&disk);
    rig.host.kernel().edit(|tree| {
        let lun = Lun::new(ByteSize::mib(1));
        tree.add_map("of-a-user", "LVM-x", ("linear", ""), &[&name], &lun).unwrap();
    });

    let busy = rig.disconnect(&disk, false).await.unwrap_err();

    assert_eq!(busy.reason(), Some(Reason::DeviceBusy), "{busy:?}");
    let held = rig.volume.registrations(|all| all.read());
    assert!(held.held.is_some() && held.registered.len() == 1, "{held:?}");
    rig.host.kernel().edit(|tree| tree.remove_map("of-a-user")).unwrap();
    rig.disconnect(&disk, false).await.unwrap();
    rig.volume.registrations(|all| assert!(all.is_empty(), "{all:?}"));
    rig.assert_nothing_left();
}
