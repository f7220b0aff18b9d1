use crate::kubernetes::error::may_be_at_work;
use serde_json::{Value, json};
use tonic::Code;

use super::super::decide::{Step, next};
use super::super::status::{Failure, Verdict, begin, called_off, failed, finished, pending};
use super::super::{is_open, modify_secret, stirs, verdict};
use super::{at, claim, read, with_conditions};
use crate::kubernetes::names::{MODIFY_SECRET, MODIFY_SECRET_NAMESPACE};

#[test]
fn a_claim_that_names_another_class_gets_it() {
    for (wanted, current, step) in [
        ("gold", "", Step::Begin("gold")),
        ("gold", "silver", Step::Begin("gold")),
        ("gold", "gold", Step::Nothing),
        ("", "", Step::Nothing),
    ] {
        let claim = read(claim(wanted, current));
        assert_eq!(next(&claim, false), step, "{wanted} {current}");
        assert_eq!(is_open(&claim), step != Step::Nothing, "{wanted} {current}");
    }
}

#[test]
fn what_may_be_at_work_keeps_its_class_and_what_failed_makes_way() {
    for (wanted, target, status, failed, step) in [
        ("gold", "gold", "InProgress", false, Step::GoOn("gold")),
        ("gold", "silver", "InProgress", false, Step::GoOn("silver")),
        ("gold", "silver", "InProgress", true, Step::Begin("gold")),
        ("", "silver", "InProgress", true, Step::GoOn("silver")),
        ("gold", "silver", "Infeasible", false, Step::Begin("gold")),
        ("gold", "gold", "Infeasible", true, Step::Begin("gold")),
        ("gold", "", "Pending", false, Step::Begin("gold")),
        ("gold", "", "InProgress", false, Step::Begin("gold")),
        ("", "silver", "Infeasible", false, Step::CallOff),
    ] {
        let claim = with_conditions(at(wanted, "", target, status), &["ModifyingVolume"]);
        assert_eq!(next(&read(claim), failed), step, "{wanted} {target} {status}");
    }
    assert_eq!(next(&read(at("", "", "silver", "Infeasible")), false), Step::Nothing);
    // A wish that was taken back to what the volume has is applied once more: what the volume is
    // like after the failure is not known.
    let back = read(at("bronze", "bronze", "silver", "Infeasible"));
    assert_eq!(next(&back, true), Step::Begin("bronze"));
}

#[test]
fn the_claim_says_which_class_is_begun_before_it_is_and_not_twice() {
    let patch = begin(&read(claim("gold", "silver")), "gold").unwrap();
    assert_eq!(
        patch["status"]["modifyVolumeStatus"],
        json!({ "targetVolumeAttributesClassName": "gold", "status": "InProgress" })
    );
    assert_eq!(patch["status"]["conditions"][0]["type"], "ModifyingVolume");

    let mut said = at("gold", "silver", "gold", "InProgress");
    said["status"]["conditions"] = patch["status"]["conditions"].clone();
    assert_eq!(begin(&read(said), "gold"), None);
}

#[test]
fn a_class_that_is_missing_leaves_all_but_the_word_as_it_is() {
    let patch = pending(&read(claim("gold", "silver"))).unwrap();

    assert_eq!(patch, json!({ "status": { "modifyVolumeStatus": { "status": "Pending" } } }));
    assert_eq!(pending(&read(at("gold", "silver", "", "Pending"))), None);
}

#[test]
fn what_is_done_leaves_no_trace_but_the_class() {
    let told = ["Resizing", "ModifyingVolume", "ModifyVolumeError"];
    let claim = read(with_conditions(at("gold", "silver", "gold", "InProgress"), &told));

    let patch = finished(&claim, "gold").unwrap();

    assert_eq!(patch["status"]["modifyVolumeStatus"], Value::Null);
    assert_eq!(patch["status"]["currentVolumeAttributesClassName"], "gold");
    let left = patch["status"]["conditions"].as_array().unwrap();
    assert_eq!((left.len(), &left[0]["type"]), (1, &json!("Resizing")));
    assert_eq!(finished(&read(super::claim("gold", "gold")), "gold"), None);
}

#[test]
fn a_failure_says_its_code_and_whether_it_is_for_good() {
    let claim = read(at("gold", "silver", "gold", "InProgress"));
    for (verdict, status) in [
        (Verdict::Open, "InProgress"),
        (Verdict::Final, "InProgress"),
        (Verdict::Infeasible, "Infeasible"),
    ] {
        let failure = Failure { code: "Internal", why: "it burns", verdict };
        let patch = failed(&claim, "gold", failure).unwrap();

        assert_eq!(patch["status"]["modifyVolumeStatus"]["status"], status);
        let error = &patch["status"]["conditions"][1];
        assert_eq!(error["type"], "ModifyVolumeError");
        assert_eq!((&error["reason"], &error["message"]), (&json!("Internal"), &json!("it burns")));

        let mut told = at("gold", "silver", "gold", status);
        told["status"]["conditions"] = patch["status"]["conditions"].clone();
        assert_eq!(failed(&read(told), "gold", failure), None);
    }
}

#[test]
fn what_was_called_off_keeps_how_it_ended() {
    let told = ["ModifyingVolume", "ModifyVolumeError"];
    let claim = read(with_conditions(at("", "", "gold", "Infeasible"), &told));

    let patch = called_off(&claim).unwrap();

    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(patch["status"].get("modifyVolumeStatus"), None);
}

#[test]
fn only_an_invalid_argument_is_for_good() {
    for code in (1..17).map(Code::from_i32) {
        let wanted = if code == Code::InvalidArgument {
            Verdict::Infeasible
        } else if may_be_at_work(code) {
            Verdict::Open
        } else {
            Verdict::Final
        };
        assert_eq!(verdict(code), wanted, "{code:?}");
    }
}

#[test]
fn changes_that_are_not_about_the_class_do_not_stir() {
    let old = at("gold", "silver", "gold", "InProgress");
    let told = with_conditions(old.clone(), &["ModifyVolumeError"]);
    assert!(!stirs(&read(old.clone()), &read(told)));

    for new in [
        at("bronze", "silver", "gold", "InProgress"),
        at("gold", "gold", "gold", "InProgress"),
        at("gold", "silver", "gold", "Infeasible"),
        claim("gold", "silver"),
    ] {
        assert!(stirs(&read(old.clone()), &read(new)));
    }
}

#[test]
fn the_secret_is_the_one_for_changes_or_else_the_one_for_expansion() {
    let secret = |annotations: Value, expand: Value| {
        let volume = serde_json::from_value(json!({
            "metadata": { "name": "pv-1", "annotations": annotations },
            "spec": { "csi": { "driver": "d", "controllerExpandSecretRef": expand } },
        }));
        modify_secret(&volume.unwrap()).map(|found| (found.namespace, found.name))
    };
    let both = json!({ MODIFY_SECRET: "m", MODIFY_SECRET_NAMESPACE: "ns" });
    let expand = json!({ "name": "e", "namespace": "ns" });
    let named = |name: &str| Some(("ns".to_owned(), name.to_owned()));

    assert_eq!(secret(both, expand.clone()), named("m"));
    assert_eq!(secret(json!({ MODIFY_SECRET: "m" }), expand), named("e"));
    assert_eq!(secret(Value::Null, Value::Null), None);
}
