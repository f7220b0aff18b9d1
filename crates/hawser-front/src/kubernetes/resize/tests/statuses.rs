use serde_json::json;

use super::super::decide::Amount;
use super::super::status::{begin, failed, finished, node_done, node_pending, volume as grown};
use super::{at, claim, kinds, read, read_volume, volume, with_conditions};
use crate::kubernetes::names::{NODE_EXPANSION_NOT_REQUIRED, PRE_RESIZE_CAPACITY};

const GIB: u64 = 1 << 30;
const TO: Amount<'static> = Amount { text: "2Gi", bytes: 2 * GIB };

#[test]
fn the_claim_says_what_is_begun_before_it_is() {
    let told = ["Other", "FileSystemResizePending", "ControllerResizeError"];
    let claim = read(with_conditions(claim("2Gi", "1Gi"), &told));

    let patch = begin(&claim, TO, false).unwrap();

    assert_eq!(kinds(&patch), ["Other", "Resizing"]);
    assert_eq!(patch["status"]["allocatedResources"], json!({ "storage": "2Gi" }));
    let statuses = &patch["status"]["allocatedResourceStatuses"];
    assert_eq!(*statuses, json!({ "storage": "ControllerResizeInProgress" }));
    assert_eq!(patch.get("metadata"), None);
}

#[test]
fn what_is_begun_is_not_said_twice_and_its_failure_stays() {
    let begun = at("2Gi", "1Gi", "2Gi", "ControllerResizeInfeasible");
    let said = with_conditions(begun.clone(), &["Resizing", "ControllerResizeError"]);
    assert_eq!(begin(&read(said), TO, true), None);

    let unsaid = with_conditions(begun, &["ControllerResizeError"]);
    let patch = begin(&read(unsaid), TO, true).unwrap();
    assert_eq!(kinds(&patch), ["ControllerResizeError", "Resizing"]);
    assert_eq!(patch["status"].get("allocatedResourceStatuses"), None);
}

#[test]
fn the_mark_of_an_earlier_expansion_goes() {
    let mut before = claim("2Gi", "1Gi");
    before["metadata"]["annotations"] = json!({ NODE_EXPANSION_NOT_REQUIRED: "true" });
    let before = read(before);

    for patch in [begin(&before, TO, false), node_pending(&before, 2 * GIB)] {
        let patch = patch.unwrap();
        assert_eq!(patch["metadata"]["annotations"], json!({ NODE_EXPANSION_NOT_REQUIRED: null }));
    }
}

#[test]
fn a_node_goes_on_or_all_is_done() {
    let claim = at("2Gi", "1Gi", "2Gi", "ControllerResizeInProgress");
    let claim = read(with_conditions(claim, &["Resizing", "ControllerResizeError", "Other"]));

    let node = node_pending(&claim, 2 * GIB).unwrap();
    assert_eq!(kinds(&node), ["Resizing", "Other", "FileSystemResizePending"]);
    let statuses = &node["status"]["allocatedResourceStatuses"];
    assert_eq!(*statuses, json!({ "storage": "NodeResizePending" }));
    assert_eq!(node["status"].get("capacity"), None);

    let done = finished(&claim, 2 * GIB).unwrap();
    assert_eq!(kinds(&done), ["Other"]);
    assert_eq!(done["status"]["capacity"], json!({ "storage": "2Gi" }));
    assert_eq!(done["status"]["allocatedResourceStatuses"], json!({ "storage": null }));
    assert_eq!(done["metadata"]["annotations"][NODE_EXPANSION_NOT_REQUIRED], "true");
}

#[test]
fn a_node_that_was_faster_is_not_sent_again() {
    let reached = read(at("2Gi", "2Gi", "2Gi", ""));

    assert_eq!(node_pending(&reached, 2 * GIB), None);
    assert_eq!(finished(&reached, 2 * GIB), None);
}

#[test]
fn a_failure_is_told_once_and_what_cannot_be_is_told_as_that() {
    let begun = at("2Gi", "1Gi", "2Gi", "ControllerResizeInProgress");
    let claim = read(with_conditions(begun, &["Resizing"]));

    let patch = failed(&claim, false, "no room").unwrap();
    assert_eq!(kinds(&patch), ["Resizing", "ControllerResizeError"]);
    assert_eq!(patch["status"]["conditions"][1]["message"], "no room");
    assert_eq!(patch["status"].get("allocatedResourceStatuses"), None);

    let patch = failed(&claim, true, "too large").unwrap();
    let statuses = &patch["status"]["allocatedResourceStatuses"];
    assert_eq!(*statuses, json!({ "storage": "ControllerResizeInfeasible" }));

    let mut told = at("2Gi", "1Gi", "2Gi", "ControllerResizeInfeasible");
    told["status"]["conditions"] = patch["status"]["conditions"].clone();
    assert_eq!(failed(&read(told.clone()), true, "too large"), None);
    assert!(failed(&read(told), true, "much too large").is_some());
}

#[test]
fn the_volume_says_its_size_and_what_the_claim_had() {
    let before = read_volume(volume("1Gi"));
    assert_eq!(
        grown(&before, "1Gi", 2 * GIB, false).unwrap(),
        json!({ "spec": { "capacity": { "storage": "2Gi" } } })
    );
    assert_eq!(
        grown(&before, "1Gi", 2 * GIB, true).unwrap(),
        json!({
            "spec": { "capacity": { "storage": "2Gi" } },
            "metadata": { "annotations": { PRE_RESIZE_CAPACITY: "1Gi" } },
        })
    );
    let mut after = volume("2048Mi");
    after["metadata"]["annotations"] = json!({ PRE_RESIZE_CAPACITY: "1Gi" });
    assert_eq!(grown(&read_volume(after), "1536Mi", 2 * GIB, true), None);
}

#[test]
fn what_the_claim_had_is_forgotten_when_the_node_is_done() {
    let mut noted = volume("2Gi");
    noted["metadata"]["annotations"] = json!({ PRE_RESIZE_CAPACITY: "1Gi" });
    let noted = read_volume(noted);

    assert_eq!(node_done(&read(claim("2Gi", "1Gi")), &noted), None);
    assert_eq!(
        node_done(&read(claim("2Gi", "2Gi")), &noted).unwrap(),
        json!({ "metadata": { "annotations": { PRE_RESIZE_CAPACITY: null } } })
    );
    assert_eq!(node_done(&read(claim("2Gi", "2Gi")), &read_volume(volume("2Gi"))), None);
}
