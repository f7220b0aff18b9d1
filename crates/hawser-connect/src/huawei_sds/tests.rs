use hawser_core::ByteSize;
use hawser_core::attach::Identity;
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::Lun;
use hawser_testkit::sim::huawei_sds;
use proptest::prelude::*;
use serde_json::json;

use super::answer::Answer;
use super::*;
use crate::shared::vendor::Vendor;

static CONNECTOR: Vendor<HuaweiSds> = Vendor(HuaweiSds);

fn rig() -> ConnectorRig {
    let host = FakeHost::new();
    huawei_sds::install(&host, "v1", &Lun::new(ByteSize::mib(8)));
    let serde_json::Value::Object(data) = json!({ "volume_id": "v1" }) else { unreachable!() };
    let identity = Identity::new("huaweisdshypervisor", "v1");
    let info = ConnectionInfo::new(Protocol::new("huaweisdshypervisor"), data, Some(identity));
    ConnectorRig::new(&CONNECTOR, host, info, ())
}

hawser_testkit::connector_contract!(rig());

#[test]
fn codes_that_mean_done_already_count_as_done_and_others_do_not() {
    let answer = |code: i64| Answer::read(&format!("ret_code={code}\nret_desc=x\n")).unwrap();

    for code in [0, 50_151_401, 50_151_405] {
        answer(code).expect(&ATTACHED, "attaching", "v1").unwrap();
    }
    for code in [0, 50_151_209, 50_155_007] {
        answer(code).expect(&DETACHED, "detaching", "v1").unwrap();
    }
    assert!(answer(50_151_402).expect(&ATTACHED, "attaching", "v1").is_err());
    assert!(answer(50_151_401).expect(&DETACHED, "detaching", "v1").is_err());
}

#[test]
fn an_answer_without_a_code_and_a_device_outside_dev_are_not_believed() {
    assert!(Answer::read("").is_err());
    let strange = Answer::read("ret_code=0\ndev_addr=/etc/passwd\n").unwrap();
    assert_eq!(strange.device(), None);
    let complaint = Answer::read("ret_code=1\ndev_addr=/dev/hioa\n").unwrap();
    assert_eq!(complaint.device(), None);
}

proptest! {
    #[test]
    fn any_output_is_read_or_refused(text in "\\PC{0,100}") {
        let _ = Answer::read(&text);
    }
}

hawser_testkit::fuzz_corpus!(corpus, "sds_cli", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let _ = Answer::read(&text);
});
