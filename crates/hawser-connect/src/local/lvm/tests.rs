//! Logical volumes on a host whose LVM is scripted: groups, volumes and their maps.

use std::collections::BTreeMap;

use hawser_core::attach::{Attach, Attached, Identity};
use hawser_core::connection::ConnectionInfo;
use hawser_core::{ByteSize, Change, Kind, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::kernel::{Lun, Tree};
use hawser_testkit::fake_host::{FakeHost, Ran, ToolCall};
use serde_json::{Value, json};

use super::super::{Local, data};

const VG_UUID: &str = "Vg0000-0000-0000-0000-0000-0000-000001";
const LV_UUID: &str = "Lv0000-0000-0000-0000-0000-0000-000001";

/// What LVM keeps of one volume.
#[derive(Clone)]
struct Lv {
    uuid: String,
    attr: &'static str,
    shared: &'static str,
    lun: Lun,
}

/// The metadata of all groups; `crashes` programs die before they do anything.
#[derive(Default)]
struct Lvm {
    volumes: BTreeMap<String, Lv>,
    crashes: usize,
}

fn map_uuid(uuid: &str) -> String {
    format!("LVM-{}{}", VG_UUID.replace('-', ""), uuid.replace('-', ""))
}

fn map_name(name: &str) -> String {
    name.replace('/', "-")
}

/// A program of LVM; `None` is one that has crashed.
fn begin(tree: &mut Tree, call: &ToolCall) -> Option<(String, Option<Lv>)> {
    tree.with::<Lvm, _>(|lvm, _| {
        if lvm.crashes > 0 {
            lvm.crashes -= 1;
            return None;
        }
        let name = call.args.last().expect("a volume").clone();
        let found = lvm.volumes.get(&name).cloned();
        Some((name, found))
    })
}

fn missing(name: &str) -> Ran {
    Ran::failed(5, format!("  Failed to find logical volume \"{name}\""))
}

fn lvs(tree: &mut Tree, call: &ToolCall) -> Ran {
    let Some((name, found)) = begin(tree, call) else { return Ran::failed(139, "") };
    let Some(lv) = found else { return missing(&name) };
    let (vg, short) = name.split_once('/').expect("group and volume");
    let report = json!({ "report": [{ "lv": [{ "vg_name": vg, "lv_name": short,
        "vg_uuid": VG_UUID, "lv_uuid": lv.uuid, "lv_attr": lv.attr,
        "lv_size": lv.lun.size().to_string(), "vg_shared": lv.shared,
        "lv_active_exclusively": "" }] }] });
    Ran::ok(report.to_string())
}

fn lvchange(tree: &mut Tree, call: &ToolCall) -> Ran {
    let Some((name, found)) = begin(tree, call) else { return Ran::failed(139, "") };
    let Some(lv) = found else { return missing(&name) };
    let map = map_name(&name);
    if call.has("--refresh") {
        let disk = tree.map_device(&map).expect("it is active");
        tree.set_size(&disk, lv.lun.size());
        return Ran::ok("");
    }
    match call.value(&["-a"]) {
        Some("n") => match tree.remove_map(&map) {
            Ok(()) => Ran::ok(""),
            Err(_) => Ran::failed(5, format!("  Logical volume {name} in use.")),
        },
        Some("y" | "ey") => {
            activate(tree, &name, &lv);
            Ran::ok("")
        }
        _ => Ran::failed(3, "  Invalid argument"),
    }
}

fn activate(tree: &mut Tree, name: &str, lv: &Lv) {
    if tree.map_device(&map_name(name)).is_none() {
        let target = ("linear", "8:16 2048");
        tree.add_map(&map_name(name), &map_uuid(&lv.uuid), target, &[], &lv.lun).unwrap();
    }
}

fn put(host: &FakeHost, name: &str, uuid: &str, lun: &Lun) {
    let lv = Lv { uuid: uuid.into(), attr: "-wi-------", shared: "", lun: lun.clone() };
    change(host, |lvm| lvm.volumes.insert(name.into(), lv));
}

fn change<R>(host: &FakeHost, act: impl FnOnce(&mut Lvm) -> R) -> R {
    host.kernel().edit(|tree| tree.with::<Lvm, _>(|lvm, _| act(lvm)))
}

fn activate_by_hand(host: &FakeHost, name: &str) {
    let lv = change(host, |lvm| lvm.volumes[name].clone());
    host.kernel().edit(|tree| activate(tree, name, &lv));
}

fn info(data: Value) -> ConnectionInfo {
    serde_json::from_value(json!({ "driver_volume_type": "local", "data": data })).unwrap()
}

fn rig() -> ConnectorRig {
    let host = FakeHost::new();
    let lun = Lun::new(ByteSize::mib(64));
    put(&host, "vg0/v1", LV_UUID, &lun);
    put(&host, "vg0/other", "Lv-other", &Lun::new(ByteSize::mib(8)));
    host.tool("lvs", lvs);
    host.tool("lvchange", lvchange);
    host.only_looks(|call| call.method == "run" && call.detail.contains("lvs"));
    let mut info = info(json!({ "vgName": "vg0", "lvName": "v1", "activate": true }));
    info.identity = Some(Identity::new("lvm", format!("{VG_UUID}/{LV_UUID}")));
    ConnectorRig::new(&Local, host, info, ())
        .on_grow(move |_| {
            lun.resize(ByteSize::mib(128));
            ByteSize::mib(128)
        })
        .on_swap(|host| {
            // The administrator removed it, and made and activated another of its name.
            host.kernel().edit(|tree| tree.remove_map("vg0-v1").is_ok());
            put(host, "vg0/v1", "Lv-new", &Lun::new(ByteSize::mib(64)));
        })
}

hawser_testkit::connector_contract!(rig());

#[tokio::test(start_paused = true)]
async fn what_was_active_before_stays_active() {
    let rig = rig();
    activate_by_hand(&rig.host, "vg0/v1");
    let before = rig.host.snapshot();

    let found = rig.connect().await.unwrap();

    assert!(!found.is_made());
    let read_only = Attach { read_only: true, ..Attach::default() };
    let error = rig.connect_as(&read_only).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "another's device is not changed: {error:?}");
    assert_eq!(rig.disconnect(&rig.record(found.get())).await.unwrap(), Change::Already(()));
    assert_eq!(rig.host.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_may_not_be_activated_is_not() {
    let mut rig = rig();
    rig.info.data.insert("activate".into(), json!(false));
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    assert_eq!(rig.host.snapshot(), before);
    activate_by_hand(&rig.host, "vg0/v1");
    assert!(!rig.connect().await.unwrap().is_made());
}

#[tokio::test(start_paused = true)]
async fn exclusive_is_asked_of_lvm_and_missed_in_a_shared_group() {
    let mut rig = rig();
    rig.info.data.insert("exclusive".into(), json!(true));

    let attached = rig.connect().await.unwrap().into_inner();

    assert!(rig.host.arguments().iter().any(|arg| arg == "ey"), "{:?}", rig.host.arguments());
    change(&rig.host, |lvm| lvm.volumes.get_mut("vg0/v1").unwrap().shared = "shared");
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    rig.disconnect(&rig.record(&attached)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn programs_that_crash_are_started_again_but_not_for_ever() {
    let rig = rig();
    change(&rig.host, |lvm| lvm.crashes = 2);
    assert!(rig.connect().await.unwrap().is_made());
    assert!(rig.disconnect(&rig.intent()).await.unwrap().is_made());

    change(&rig.host, |lvm| lvm.crashes = 3);
    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_absent_or_a_pool_is_refused() {
    let mut rig = rig();
    rig.info.identity = None;
    rig.info.data.insert("lvName".into(), json!("none"));
    let error = rig.connect().await.unwrap_err();
    assert_eq!((error.kind(), error.reason()), (Kind::NotFound, Some(Reason::LunNotFound)));
    assert_eq!(rig.connector.lookup(&rig.host, &rig.info).await.unwrap(), None);
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Already(()));

    rig.info.data.insert("lvName".into(), json!("other"));
    for attr in ["twi-aotz--", "ewi-------", "Iwi-------"] {
        change(&rig.host, |lvm| lvm.volumes.get_mut("vg0/other").unwrap().attr = attr);
        let error = rig.connect().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{attr}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_read_only_attach_is_made_good() {
    let rig = rig();
    let read_only = Attach { read_only: true, ..Attach::default() };
    let attached = rig.connect_as(&read_only).await.unwrap().into_inner();
    let name = attached.path().file_name().unwrap().to_string_lossy().into_owned();
    rig.host.kernel().edit(|tree| tree.set_read_only(&name, false));

    assert!(!rig.connect_as(&read_only).await.unwrap().is_made());

    assert!(rig.host.refuses_writes(attached.path()));
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
}

fn sysfs_of(attached: &Attached) -> String {
    format!("/sys/block/{}", attached.path().file_name().unwrap().to_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_program_left_half_made_is_mended_if_it_is_ours() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let folder = sysfs_of(&attached);
    rig.host.kernel().value(format!("{folder}/dm/suspended"), 1);
    rig.host.forget_calls();

    assert!(!rig.connect().await.unwrap().is_made());

    assert!(rig.host.calls().iter().any(|call| call.detail.contains("lvchange")));
    assert!(rig.disconnect(&rig.intent()).await.unwrap().is_made());
    activate_by_hand(&rig.host, "vg0/v1");
    rig.host.kernel().value(format!("{folder}/dm/suspended"), 1);
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_half_made_has_nothing_to_write_out() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let folder = sysfs_of(&attached);
    rig.host.kernel().value(format!("{folder}/size"), 0);
    rig.host.forget_calls();

    assert!(rig.disconnect(&rig.intent()).await.unwrap().is_made());

    assert!(!rig.host.calls().iter().any(|call| call.method == "Disk::flush"));
}

#[tokio::test(start_paused = true)]
async fn case_14_a_device_that_lvm_put_above_it_keeps_it() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let below = attached.path().file_name().unwrap().to_string_lossy().into_owned();
    let guest = Lun::new(ByteSize::mib(32));
    rig.host.kernel().edit(|tree| {
        tree.add_map("guest-root", "LVM-guest", ("linear", ""), &[&below], &guest).unwrap();
    });
    let before = rig.host.snapshot();

    let error = rig.disconnect(&rig.record(&attached)).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    assert!(error.sentence().contains("dm-1"), "{error:?}");
    assert_eq!(rig.host.snapshot(), before);
    assert!(matches!(attached, Attached::Block { .. }));
}

#[test]
fn names_that_lvm_does_not_allow_never_reach_it() {
    for (data, field) in [
        (json!({ "vg_name": "vg0" }), "lv_name"),
        (json!({ "lv_name": "v1" }), "vg_name"),
        (json!({ "vg_name": "-f", "lv_name": "v1" }), "vg_name"),
        (json!({ "vg_name": "vg0", "lv_name": "a/b" }), "lv_name"),
        (json!({ "vg_name": "vg0", "lv_name": ".." }), "lv_name"),
        (json!({ "vg_name": "vg0", "lv_name": "a b" }), "lv_name"),
        (json!({ "vg_name": "vg0", "lv_name": "v", "file_path": "/a" }), "file_path"),
        (json!({ "vg_name": "vg0", "lv_name": "v", "path": "/a", "kind": "device" }), "vg_name"),
        (json!({ "file_path": "/a", "offset": 4096 }), "offset"),
        (json!({ "file_path": "/a", "size_limit": "512" }), "size_limit"),
        (json!({ "file_path": "/a", "offset": "x" }), "offset"),
        (json!({ "file_path": "/a", "direct_io": false }), "direct_io"),
    ] {
        let said = data::parse(&info(data.clone())).unwrap_err().to_string();
        assert!(said.contains(field), "{data}: {said}");
    }
}
