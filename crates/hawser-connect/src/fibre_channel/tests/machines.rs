//! IBM Z and POWER: what differs there.

use hawser_core::Reason;

use super::*;

const UNITS: &str = "/sys/bus/ccw/drivers/zfcp/0.0.1940/0x500a0980000000a1";

fn units(host: &FakeHost) -> Vec<String> {
    let names = host.files().list(UNITS.as_ref()).unwrap();
    names.into_iter().filter(|name| name.starts_with("0x")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_named_to_zfcp_and_its_name_goes_with_it() {
    let rig = s390x(false);

    let attached = rig.connect().await.unwrap();
    assert_eq!(units(&rig.host), ["0x0001000000000000"]);
    rig.disconnect(&rig.record(attached.get())).await.unwrap();

    assert_eq!(units(&rig.host), [""; 0]);
    assert_eq!(devices(&rig.host), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_virtual_port_scans_and_nothing_is_named() {
    let rig = s390x(true);

    let attached = rig.connect().await.unwrap();
    assert_eq!((units(&rig.host).len(), devices(&rig.host).len()), (0, 1));
    rig.disconnect(&rig.record(attached.get())).await.unwrap();

    assert_eq!(devices(&rig.host), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_virtual_port_that_may_not_scan_wants_names() {
    let storage = Storage::new();
    storage.host.set_machine("s390x");
    fc::add_ccw_adapter(storage.host.kernel(), 0, "c05076ffe5005611", "0.0.1940");
    fc::set_npiv(storage.host.kernel(), 0, false);
    fc::add_remote_port(storage.host.kernel(), 0, THEIRS[0], &storage.target);
    let rig = storage.rig(one_port());

    rig.connect().await.unwrap();

    assert_eq!(units(&rig.host).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_not_there_leaves_no_name() {
    let mut rig = s390x(false);
    rig.info.data["target_lun"] = json!(77);
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::LunNotFound), "{error:?}");
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_given_before_is_used() {
    let rig = s390x(false);
    let file = format!("{UNITS}/unit_add");
    let limit = std::time::Duration::from_secs(1);
    rig.host.files().write(file.as_ref(), b"0x0001000000000000", limit).await.unwrap();
    // The device went, as by hand; the name stayed.
    rig.host.kernel().edit(|tree| {
        tree.settle();
        hawser_testkit::sim::scsi::remove_lun(tree, (0, 0, 0), 1);
    });

    let attached = rig.connect().await.unwrap();
    rig.disconnect(&rig.record(attached.get())).await.unwrap();

    assert_eq!((units(&rig.host).len(), devices(&rig.host).len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_port_that_zfcp_has_not_heard_of_is_asked_for() {
    let storage = Storage::new();
    storage.host.set_machine("s390x");
    fc::add_ccw_adapter(storage.host.kernel(), 0, "c05076ffe5005611", "0.0.1940");
    fc::add_unheard_port(storage.host.kernel(), 0, THEIRS[0], &storage.target);
    let rig = storage.rig(one_port());

    rig.connect().await.unwrap();

    assert_eq!(units(&rig.host).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn numbers_of_two_levels_are_in_the_order_of_the_wire_on_s390x() {
    let storage = Storage::new();
    storage.host.set_machine("s390x");
    let target = Target::new().with(0x400a_4020, &storage.volume);
    fc::add_ccw_adapter(storage.host.kernel(), 0, "c05076ffe5005611", "0.0.1940");
    fc::add_remote_port(storage.host.kernel(), 0, THEIRS[0], &target);
    let mut data = one_port();
    data["target_lun"] = json!("0x4020400a");
    let rig = storage.rig(data);

    rig.connect().await.unwrap();

    assert_eq!(units(&rig.host), ["0x4020400a00000000"]);
    assert_eq!(devices(&rig.host), [format!("0:0:0:{}", 0x400a_4020)]);
}

#[tokio::test(start_paused = true)]
async fn two_ports_of_an_ibm_z_become_one_map() {
    let storage = Storage::new();
    storage.host.set_machine("s390x");
    storage.host.kernel().multipathd(FindMultipaths::Strict);
    for (number, (theirs, bus_id)) in (0..).zip(THEIRS.iter().zip(["0.0.1940", "0.0.1980"])) {
        let ours = format!("c05076ffe500561{number}");
        fc::add_ccw_adapter(storage.host.kernel(), number, &ours, bus_id);
        fc::add_remote_port(storage.host.kernel(), number, theirs, &storage.target);
    }
    let mut rig = storage.rig(both_ports());
    rig.attach = Attach { multipath: Multipath::Enforced, ..Attach::default() };
    let before = rig.host.snapshot();

    let attached = rig.connect().await.unwrap();
    assert!(attached.get().path().starts_with("/dev/"), "{attached:?}");
    assert_eq!(devices(&rig.host).len(), 2);
    rig.disconnect(&rig.record(attached.get())).await.unwrap();

    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn a_virtual_adapter_of_power_scans_like_any_other() {
    let rig = ppc64();

    let attached = rig.connect().await.unwrap();

    assert_eq!(devices(&rig.host), ["1:0:0:1"]);
    rig.disconnect(&rig.record(attached.get())).await.unwrap();
    assert_eq!(devices(&rig.host), [""; 0]);
}
