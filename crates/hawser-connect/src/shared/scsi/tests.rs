use hawser_core::ByteSize;
use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Host;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{Lun, Target};
use hawser_testkit::sim::scsi as sim;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::shared::fields::Fields;
use crate::shared::wait::Deadline;

const NAA: &str = "600140512345678901234567890abcde";
const OTHER: &str = "6001405bbbbbbbbbbbbbbbbbbbbbbbbb";

fn designator(code_set: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    [&[code_set, kind, 0, value.len() as u8], value].concat()
}

fn page(designators: &[Vec<u8>]) -> Vec<u8> {
    let rest = designators.concat();
    [&[0, 0x83], (rest.len() as u16).to_be_bytes().as_slice(), &rest].concat()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_best_name_is_the_one_that_udev_takes() {
    let naa5 = designator(1, 3, &bytes("5000c50012345678"));
    let naa6 = designator(1, 3, &bytes(NAA));
    let eui = designator(1, 2, &bytes("0011223344556677"));
    let t10 = designator(2, 1, b"LIO-ORG IBLOCK:  abc ");
    let vendor = designator(2, 0, b"some serial");
    let port = designator(1, 0x13, &bytes("50000000000000ff"));
    let group = designator(1, 0x15, &[0, 0, 0, 1]);
    for (designators, wwid) in [
        (vec![t10.clone(), naa5.clone(), eui.clone(), naa6.clone()], format!("3{NAA}")),
        (vec![vendor.clone(), eui.clone(), naa5], "35000c50012345678".to_owned()),
        (vec![vendor.clone(), t10.clone(), eui], "20011223344556677".to_owned()),
        (vec![port.clone(), vendor.clone(), t10], "1LIO-ORG_IBLOCK:_abc".to_owned()),
        (vec![group.clone(), vendor], "0some_serial".to_owned()),
        (vec![designator(3, 8, b"naa.5000c50012345678\0\0\0\0")], "35000c50012345678".to_owned()),
        (vec![designator(3, 8, b"iqn.x:y\0")], "8iqn.x:y".to_owned()),
    ] {
        assert_eq!(Names::parse(&page(&designators)).unwrap().wwid(), wwid);
    }
    assert_eq!(Names::parse(&page(&[port, group])), None, "a port is no volume");
}

#[test]
fn a_volume_is_known_by_any_of_its_names_in_any_spelling() {
    let names = Names::parse(&page(&[
        designator(1, 3, &bytes(NAA)),
        designator(1, 2, &bytes("0011223344556677")),
        designator(2, 1, b"LIO-ORG IBLOCK:  abc "),
    ]))
    .unwrap();
    let upper = NAA.to_uppercase();
    for spelling in [
        format!("3{NAA}"),
        format!("naa.{NAA}"),
        format!("NAA.{upper}"),
        format!("0x{upper}"),
        NAA.to_owned(),
        upper,
        format!("wwn-0x{NAA}"),
        format!("scsi-3{NAA}"),
        format!("dm-uuid-mpath-3{NAA}"),
        format!("/dev/disk/by-id/scsi-3{NAA}"),
        "eui.0011223344556677".to_owned(),
        "20011223344556677".to_owned(),
        "t10.LIO-ORG IBLOCK:  abc ".to_owned(),
        "1LIO-ORG_IBLOCK:_abc".to_owned(),
    ] {
        assert!(names.has(&spelling), "{spelling}");
    }
    for other in [
        OTHER,
        &NAA[1..],
        "",
        "3",
        "naa.",
        &format!("2{NAA}"),
        &format!("eui.{NAA}"),
        "1lio-org_iblock:_abc",
        "somebody-elses-volume",
    ] {
        assert!(!names.has(other), "{other}");
    }
}

#[test]
fn a_name_is_read_back_as_it_was_told() {
    for designators in [
        vec![designator(1, 3, &bytes(NAA))],
        vec![designator(1, 2, &bytes("0011223344556677"))],
        vec![designator(2, 1, b"LIO-ORG IBLOCK:  abc ")],
    ] {
        let names = Names::parse(&page(&designators)).unwrap();
        let back = Names::of_udev(&names.wwid()).unwrap();
        assert_eq!(back.wwid(), names.wwid());
        assert!(back.has(&names.wwid()) && names.same(&back), "{}", names.wwid());
    }
    let serial =
        Names::of_serial("ACME", "disk", &[0, 0x80, 0, 4, b'1', b'2', b'3', b'4']).unwrap();
    assert_eq!(serial.wwid(), "SACME_disk_1234");
    assert_eq!(Names::of_udev("SACME_disk_1234").unwrap().wwid(), serial.wwid());
}

#[test]
fn identities_of_other_schemes_are_never_taken_on_trust() {
    let names = Names::of_wwid(&format!("naa.{NAA}")).unwrap();
    let fits = |scheme: &str, value: &str| fits_all(&names, &[Identity::new(scheme, value)]);

    assert!(
        fits("wwid", &format!("3{NAA}")) && fits("naa", NAA) && fits("naa", &format!("0x{NAA}"))
    );
    assert!(!fits("eui", NAA) && !fits("nguid", NAA) && !fits("image", NAA));
    let given = Identity::new("wwid", format!("naa.{NAA}"));
    assert_eq!(told(&names, Some(&given)), given, "in the caller's own words");
    assert_eq!(told(&names, None), Identity::new("wwid", format!("3{NAA}")));
}

#[test]
fn addresses_and_numbers_are_those_of_the_kernel() {
    let address: Address = "3:0:1:16385".parse().unwrap();
    assert_eq!((address.host, address.lun), (3, 16385));
    assert_eq!(address.to_string(), "3:0:1:16385");
    for bad in ["", "3:0:0", "3:0:0:1:2", "a:0:0:0", "+3:0:0:0", "3:0:0:", "-1:0:0:0"] {
        assert!(bad.parse::<Address>().is_err(), "{bad}");
    }
    let lun = |mode: Option<&str>, number| {
        let info = json!({ "driver_volume_type": "x", "data": { "addressingMode": mode } });
        let info: ConnectionInfo = serde_json::from_value(info).unwrap();
        Addressing::of(&Fields::of(&info).unwrap()).map(|mode| mode.lun(number))
    };
    assert_eq!(lun(None, 300).unwrap(), 300);
    assert_eq!(lun(Some("SAM2"), 255).unwrap(), 255);
    assert_eq!(lun(Some("SAM2"), 256).unwrap(), 16640);
    assert_eq!(lun(Some("SAM3-flat"), 1).unwrap(), 16385);
    assert!(lun(Some("sideways"), 1).is_err());
}

/// A volume under number 1 of target 0 of host 3.
struct Slot;

impl Route for Slot {
    fn place(
        &self,
        _: &dyn hawser_core::port::kernel::Files,
    ) -> hawser_core::Result<Option<Place>> {
        Ok(Some(Place { host: 3, channel: Some(0), target: Some(0), lun: 1 }))
    }

    fn address(
        &self,
        files: &dyn hawser_core::port::kernel::Files,
    ) -> hawser_core::Result<Option<Address>> {
        let there = files.resolve("/sys/class/scsi_device/3:0:0:1".as_ref())?.is_some();
        Ok(there.then_some(Address { host: 3, channel: 0, target: 0, lun: 1 }))
    }
}

fn fixture() -> (FakeHost, Target, Lun) {
    let host = FakeHost::new();
    let volume = Lun::scsi(NAA, ByteSize::mib(8));
    let target = Target::new().with(1, &volume);
    sim::install(host.kernel());
    host.kernel().edit(|tree| {
        sim::add_host(tree, 3, "/sys/devices/platform/host3");
        sim::add_target(tree, (3, 0, 0), "/sys/devices/platform/host3", &target);
    });
    (host, target, volume)
}

fn soon() -> Deadline {
    Deadline::after(std::time::Duration::from_secs(60))
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_comes_late_is_found_by_a_later_scan_and_nothing_else_is_scanned() {
    let (host, target, volume) = fixture();
    target.hide(1);
    target.show(2, &Lun::scsi(OTHER, ByteSize::mib(8)));
    let begun = tokio::time::Instant::now();
    let shown = async {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        target.show(1, &volume);
    };

    let (found, ()) = tokio::join!(appear(&host, &Slot, soon()), shown);

    let disk = found.unwrap().expect("it came");
    assert_eq!(disk.address.to_string(), "3:0:0:1");
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(sim::wide_scans(host.kernel()), 0);
    assert_eq!(host.kernel().edit(|tree| sim::luns(tree, (3, 0, 0))), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_not_there_is_given_up() {
    let (host, target, _) = fixture();
    target.hide(1);
    let begun = tokio::time::Instant::now();

    assert_eq!(appear(&host, &Slot, soon()).await.unwrap(), None);

    assert!(begun.elapsed() < std::time::Duration::from_secs(35), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_disk_whose_number_was_given_to_another_volume_is_made_anew() {
    let (host, target, _) = fixture();
    let old = appear(&host, &Slot, soon()).await.unwrap().unwrap();
    target.show(1, &Lun::scsi(OTHER, ByteSize::mib(16)));

    let expected = [Identity::new("wwid", format!("3{NAA}"))];
    let refused = fresh(&host, &Slot, old.clone(), &expected, soon()).await.unwrap_err();
    assert_eq!(refused.reason(), Some(hawser_core::Reason::IdentityMismatch));
    assert!(old.is_there(host.files()).unwrap(), "and left alone");
    let (disk, names) = fresh(&host, &Slot, old.clone(), &[], soon()).await.unwrap();

    assert_eq!(names.wwid(), format!("3{OTHER}"));
    assert_eq!(disk.remembered(host.files()).unwrap().unwrap().wwid(), names.wwid());
    assert_eq!(disk.disk.size(host.files()).unwrap(), 16 << 20);
    assert!(old.is_gone(host.files()).unwrap() && !disk.is_gone(host.files()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_disk_in_use_is_not_made_anew() {
    let (host, target, _) = fixture();
    let old = appear(&host, &Slot, soon()).await.unwrap().unwrap();
    target.show(1, &Lun::scsi(OTHER, ByteSize::mib(16)));
    host.set_busy(&old.disk.node, true);

    let error = fresh(&host, &Slot, old.clone(), &[], soon()).await.unwrap_err();

    assert_eq!(error.kind(), hawser_core::Kind::Busy, "{error:?}");
    assert!(old.is_there(host.files()).unwrap());
}

proptest! {
    #[test]
    fn any_bytes_are_names_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for mut page in [bytes.clone(), [&[0, 0x83, 0, 200][..], &bytes].concat()] {
            if let Some(names) = Names::parse(&page) {
                prop_assert!(names.has(&names.wwid()), "{}", names.wwid());
                prop_assert!(names.same(&names));
                prop_assert!(Names::of_udev(&names.wwid()).is_some());
            }
            page.insert(0, 0);
            let _ = Names::of_serial("v", "m", &page);
        }
    }

    #[test]
    fn any_text_is_a_name_or_none(text in "\\PC{0,60}") {
        let names = Names::of_wwid(&format!("naa.{NAA}")).unwrap();
        let _ = (names.has(&text), Names::of_wwid(&text), Names::of_udev(&text));
        let _ = text.parse::<Address>();
    }

    #[test]
    fn every_address_survives(host: u32, channel: u32, target: u32, lun: u64) {
        let address = Address { host, channel, target, lun };
        prop_assert_eq!(address.to_string().parse::<Address>().ok(), Some(address));
    }
}

hawser_testkit::fuzz_corpus!(device_identification, "vpd_83", |bytes| {
    if let Some(names) = Names::parse(bytes) {
        assert!(names.has(&names.wwid()), "{}", names.wwid());
        assert!(Names::of_udev(&names.wwid()).is_some(), "{}", names.wwid());
    }
});

hawser_testkit::fuzz_corpus!(serial_number, "vpd_80", |bytes| {
    let _ = Names::of_serial("LIO-ORG", "disk", bytes);
});

hawser_testkit::fuzz_corpus!(sysfs_name, "scsi_wwid", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    if let Some(names) = Names::of_wwid(&text) {
        assert!(names.has(&names.wwid()) && names.same(&names), "{}", names.wwid());
    }
});

hawser_testkit::fuzz_corpus!(address, "scsi_address", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(address) = text.trim().parse::<Address>() {
        assert_eq!(address.to_string().parse::<Address>().ok(), Some(address), "{text}");
    }
});
