use hawser_core::attach::Identity;
use hawser_core::connection::Protocol;
use hawser_core::{Error, Kind, Outcome, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{DiskSpec, Lun, Target as Slots, Tree};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn info(data: Value) -> ConnectionInfo {
    let Value::Object(data) = data else { panic!("data is an object") };
    ConnectionInfo::new(Protocol::new("aoe"), data, None)
}

/// The targets of one network; the number is shelf * 256 + slot.
#[derive(Clone)]
struct Network {
    slots: Slots,
}

fn number(shelf: u64, slot: u64) -> u64 {
    shelf * 256 + slot
}

fn volume(serial: &str) -> Lun {
    let lun = Lun::new(ByteSize::mib(8));
    let mut ident = vec![0; 512];
    ident[20..40].copy_from_slice(format!("{serial:<20}").as_bytes());
    lun.set_page(None, ident);
    lun
}

impl Network {
    /// The driver as the kernel has it.
    fn install(&self, host: &FakeHost) {
        let kernel = host.kernel();
        kernel.module("aoe").value("/sys/module/aoe/parameters/aoe_iflist", "eth0");
        kernel
            .value("/sys/class/net/eth0/flags", "0x1003")
            .value("/sys/class/net/eth1/flags", "0x1002");
        for file in ["discover", "revalidate", "flush", "interfaces"] {
            kernel.file(format!("/dev/etherd/{file}"), "");
        }
        let slots = self.slots.clone();
        kernel.on_write("/dev/etherd/discover", move |tree, _| {
            for found in slots.numbers() {
                let name = format!("etherd!e{}.{}", found / 256, found % 256);
                if !tree.exists(format!("/sys/block/{name}")) {
                    let (slots, name) = (slots.clone(), name.clone());
                    tree.later(1, move |tree| add(tree, &name, &slots, found));
                }
            }
            Ok(())
        });
        kernel.on_write("/dev/etherd/revalidate", |tree, write| {
            let name = format!("etherd!{}", write.text());
            if !tree.exists(format!("/sys/block/{name}")) {
                return Err(22);
            }
            let size = tree.lun_of(&name).map_or(0, |lun| lun.size());
            tree.set_size(&name, size);
            tree.emit();
            Ok(())
        });
        // As the driver does it: a beginning of a name is enough, unless a NUL ends it.
        kernel.on_write("/dev/etherd/flush", |tree, write| {
            for name in tree.disk_names() {
                let Some(short) = name.strip_prefix("etherd!") else { continue };
                let whole = format!("{short}\0");
                if whole.as_bytes().starts_with(write.data) {
                    tree.remove_disk(&name);
                }
            }
            Ok(())
        });
        kernel.on_write("/dev/etherd/interfaces", |tree, write| {
            tree.value("/sys/module/aoe/parameters/aoe_iflist", write.text());
            Ok(())
        });
        kernel.on_control("/dev/etherd/*", |tree, write| {
            let name = tree.disk_at(write.path).ok_or(6)?;
            let ident = tree.lun_of(&name).and_then(|lun| lun.page(None));
            if write.request == 0x030d { ident.ok_or(19) } else { Err(25) }
        });
        host.only_looks(|call| {
            call.method == "Files::control" || call.detail.contains("/dev/etherd/revalidate")
        });
    }
}

fn add(tree: &mut Tree, name: &str, slots: &Slots, number: u64) {
    if tree.exists(format!("/sys/block/{name}")) {
        return;
    }
    tree.add_disk(DiskSpec::slot(name, slots, number));
    tree.value(format!("/sys/block/{name}/state"), "up");
    tree.emit();
}

fn rig_of(network: &Network) -> ConnectorRig {
    let host = FakeHost::new();
    // Nothing is kept there that could be left by a dead process.
    host.only_looks(|call| call.method == "Files::settled" && call.detail == driver::FOLDER);
    network.install(&host);
    let mut info = info(json!({ "target_shelf": 7, "target_lun": "3" }));
    info.identity = Some(Identity::new("serial", "7.3:one"));
    let (swapped, grown) = (network.clone(), network.clone());
    ConnectorRig::new(&Aoe, host, info, ())
        .on_swap(move |_| swapped.slots.show(number(7, 3), &volume("7.3:other")))
        .on_grow(move |_| {
            let lun = grown.slots.get(number(7, 3)).unwrap();
            lun.resize(ByteSize::mib(16));
            ByteSize::mib(16)
        })
}

fn network() -> Network {
    Network { slots: Slots::new().with(number(7, 3), &volume("7.3:one")) }
}

fn rig() -> ConnectorRig {
    rig_of(&network())
}

hawser_testkit::connector_contract!(rig());

#[tokio::test(start_paused = true)]
async fn a_target_becomes_a_device_with_its_serial_number() {
    let rig = rig();

    let attached = rig.connect().await.unwrap().into_inner();

    assert_eq!(attached.path().to_str(), Some("/dev/etherd/e7.3"));
    assert_eq!(attached.identity(), Some(&Identity::new("serial", "7.3:one")));
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_merely_there_is_no_attachment() {
    let rig = rig();
    rig.host.kernel().edit(|tree| {
        let lun = volume("7.3:one");
        tree.add_disk(DiskSpec::new("etherd!e7.3", &lun));
        tree.value("/sys/block/etherd!e7.3/state", "up");
    });
    let before = rig.host.snapshot();

    assert_eq!(Aoe.lookup(&rig.host, &rig.info).await.unwrap(), None);
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Already(()));
    assert_eq!(rig.host.snapshot(), before, "left alone");
    assert!(rig.connect().await.unwrap().is_made());
    assert!(rig.disconnect(&rig.intent()).await.unwrap().is_made());
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_whose_name_begins_the_same_way_stays() {
    let network = network();
    network.slots.show(number(7, 30), &volume("7.30:neighbour"));
    let rig = rig_of(&network);
    rig.connect().await.unwrap();
    let names = || rig.host.kernel().edit(|tree| tree.disk_names());
    assert_eq!(names(), ["etherd!e7.3", "etherd!e7.30"]);

    rig.disconnect(&rig.intent()).await.unwrap();

    assert_eq!(names(), ["etherd!e7.30"]);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_not_there_is_asked_for_several_times_and_given_up() {
    let network = network();
    network.slots.hide(number(7, 3));
    let rig = rig_of(&network);

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::TargetNotFound), "{error:?}");
    let asked = rig.host.calls().iter().filter(|call| call.detail.contains("discover")).count();
    assert_eq!(asked, 4);
}

#[tokio::test(start_paused = true)]
async fn an_address_is_an_identity_for_those_who_know_no_serial_number() {
    let mut rig = rig();
    rig.info.identity = Some(Identity::new("aoe", "e7.3"));
    assert!(rig.connect().await.unwrap().is_made());
    rig.info.identity = None;
    rig.info.data.insert("wwn".into(), json!("3600"));

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn interfaces_are_added_and_must_be_up() {
    let mut rig = rig();
    rig.info.data.insert("interfaces".into(), json!(["eth1"]));
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    rig.info.data.insert("interfaces".into(), json!("eth9"));
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ToolOrModuleMissing), "{error:?}");
    rig.host.kernel().value("/sys/class/net/eth9/flags", "0x1003");

    rig.connect().await.unwrap();

    let list = rig.host.kernel().edit(|tree| tree.text("/sys/module/aoe/parameters/aoe_iflist"));
    assert_eq!(list.trim(), "eth0 eth9");
}

#[tokio::test(start_paused = true)]
async fn a_silent_target_is_told_by_health_and_can_only_be_forced_away() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let record = rig.record(&attached);
    rig.host.kernel().edit(|tree| {
        tree.set_online("etherd!e7.3", false);
        tree.value("/sys/block/etherd!e7.3/state", "down,closewait");
    });
    let health = Aoe.health(&rig.host, &record).await.unwrap();
    assert!(health.message.contains("does not answer"), "{health:?}");
    rig.host.kernel().edit(|tree| tree.make_dirty("etherd!e7.3"));

    let error = rig.disconnect(&record).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    let force = Detach { force: true, ..Detach::default() };
    let error = Aoe.disconnect(&rig.host, &record, &force).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::DataLost), "{error:?}");
    assert_eq!(rig.disconnect(&record).await.unwrap(), Change::Already(()));
}

#[tokio::test(start_paused = true)]
async fn the_other_mode_is_refused_with_advice() {
    let rig = rig();
    let attach = Attach { read_only: true, ..Attach::default() };
    rig.connect_as(&attach).await.unwrap();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Nothing);
    assert!(error.sentence().contains("disconnect it first"), "{error:?}");
}

#[test]
fn bad_data_is_refused_by_the_name_of_its_field() {
    let good = json!({ "target_shelf": 0, "target_lun": 0 });
    assert!(data::read(&info(good.clone())).is_ok(), "zeroes are numbers");
    for (field, value) in [
        ("target_shelf", json!(null)),
        ("target_shelf", json!(65535)),
        ("target_shelf", json!("e7")),
        ("target_lun", json!(255)),
        ("target_lun", json!(-1)),
        ("interfaces", json!(["eth0 eth1"])),
        ("interfaces", json!("../x")),
        ("interfaces", json!(7)),
        ("access_mode", json!("r")),
    ] {
        let mut data = good.clone();
        data[field] = value.clone();
        let error = Error::from(data::read(&info(data)).unwrap_err());
        assert_eq!(error.kind(), Kind::Invalid, "{field} {value}");
        assert!(error.sentence().contains(field), "{}", error.sentence());
    }
}

#[test]
fn both_spellings_are_read() {
    let snake = data::read(&info(json!({ "target_shelf": 7, "target_lun": 3 }))).unwrap();
    let camel = data::read(&info(json!({ "targetShelf": "7", "lun": "0x3" }))).unwrap();

    assert_eq!(snake, camel);
    assert_eq!(snake.name(), "e7.3");
}

proptest! {
    #[test]
    fn any_data_is_a_target_or_refused(
        key in "(target_shelf|targetLun|interfaces|access_mode|wwn)",
        text in "\\PC{0,20}",
        number: u64,
    ) {
        for value in [json!(text), json!(number), json!([text])] {
            let mut data = Map::new();
            data.insert("target_shelf".into(), json!(1));
            data.insert(key.clone(), value);
            let _ = data::read(&info(Value::Object(data)));
        }
    }
}
