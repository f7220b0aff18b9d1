use serde_json::{Value, json};
use tonic::Code;

use super::super::decide::{Step, next};
use super::super::{is_infeasible, is_open, stirs};
use super::{at, claim, read, read_volume, volume, with_conditions};

/// The size that comes next and whether it is begun, as text.
fn step(claim: Value, size: &str, failed: bool) -> String {
    let claim = read(claim);
    match next(&claim, &read_volume(volume(size)), failed) {
        Step::Nothing => "nothing".to_owned(),
        Step::Expand { to, begun: true, .. } => format!("on to {}", to.text),
        Step::Expand { to, begun: false, .. } => to.text.to_owned(),
    }
}

#[test]
fn a_claim_that_asks_for_more_than_it_has_gets_it() {
    for (requested, capacity, wanted) in [
        ("2Gi", "1Gi", "2Gi"),
        ("1Gi", "1Gi", "nothing"),
        ("1Gi", "2Gi", "nothing"),
        ("1024Mi", "1Gi", "nothing"),
        ("1.5G", "1Gi", "1.5G"),
        ("1073741824001m", "1Gi", "1073741824001m"),
        ("lots", "1Gi", "nothing"),
        ("2Gi", "", "nothing"),
    ] {
        assert_eq!(step(claim(requested, capacity), "1Gi", false), wanted, "{requested}");
    }
}

#[test]
fn a_volume_that_is_too_small_ends_what_was_begun_first() {
    for (allocated, progress, volume, failed, wanted) in [
        // The driver may be at work on the earlier size, unless it has said that it is not.
        ("2Gi", "ControllerResizeInProgress", "1Gi", false, "on to 2Gi"),
        ("2Gi", "ControllerResizeInProgress", "1Gi", true, "3Gi"),
        ("3Gi", "ControllerResizeInProgress", "1Gi", true, "on to 3Gi"),
        // A node goes on by itself once the volume is as large as was begun.
        ("2Gi", "NodeResizePending", "2Gi", false, "nothing"),
        ("2Gi", "NodeResizeInProgress", "2Gi", false, "nothing"),
        ("2Gi", "NodeResizePending", "1Gi", false, "on to 2Gi"),
        ("2Gi", "NodeResizeInfeasible", "2Gi", false, "on to 2Gi"),
        // What cannot be makes way.
        ("9Gi", "ControllerResizeInfeasible", "1Gi", false, "3Gi"),
        ("3Gi", "ControllerResizeInfeasible", "1Gi", false, "on to 3Gi"),
        ("1Gi", "", "1Gi", false, "3Gi"),
        ("2Gi", "SomethingNew", "1Gi", false, "3Gi"),
    ] {
        let claim = at("3Gi", "1Gi", allocated, progress);
        assert_eq!(step(claim, volume, failed), wanted, "{allocated} {progress} {volume}");
    }
}

#[test]
fn a_volume_that_has_grown_already_is_left_to_the_node_or_written_down() {
    for (allocated, progress, wanted) in [
        ("2Gi", "NodeResizePending", "nothing"),
        ("2Gi", "NodeResizeInProgress", "nothing"),
        ("2Gi", "NodeResizeInfeasible", "on to 2Gi"),
        ("2Gi", "ControllerResizeInProgress", "on to 2Gi"),
        ("4Gi", "ControllerResizeInProgress", "on to 4Gi"),
        ("2Gi", "ControllerResizeInfeasible", "on to 2Gi"),
        ("2Gi", "", "2Gi"),
    ] {
        let claim = at("2Gi", "1Gi", allocated, progress);
        assert_eq!(step(claim, "4Gi", false), wanted, "{allocated} {progress}");
    }
    let old = claim("2Gi", "1Gi");
    assert_eq!(step(old.clone(), "2Gi", false), "2Gi");
    assert_eq!(step(with_conditions(old, &["FileSystemResizePending"]), "2Gi", false), "nothing");
}

#[test]
fn what_cannot_be_may_be_lowered_again() {
    let infeasible = at("9Gi", "1Gi", "9Gi", "ControllerResizeInfeasible");
    assert_eq!(step(infeasible, "1Gi", true), "on to 9Gi");

    let lowered = at("2Gi", "1Gi", "9Gi", "ControllerResizeInfeasible");
    assert_eq!(step(lowered, "1Gi", true), "2Gi");
    // Not while the driver may still reach the larger one.
    let unknown = at("2Gi", "1Gi", "9Gi", "ControllerResizeInProgress");
    assert_eq!(step(unknown, "1Gi", false), "on to 9Gi");
}

#[test]
fn only_claims_that_are_bound_and_ask_for_more_are_looked_at() {
    let mut unbound = claim("2Gi", "1Gi");
    unbound["status"]["phase"] = json!("Pending");

    assert!(is_open(&read(claim("2Gi", "1Gi"))));
    assert!(!is_open(&read(claim("1Gi", "1Gi"))));
    assert!(!is_open(&read(unbound)));
}

#[test]
fn changes_that_are_not_about_the_size_do_not_stir() {
    let old = at("2Gi", "1Gi", "2Gi", "ControllerResizeInProgress");
    let mut labelled = with_conditions(old.clone(), &["ControllerResizeError"]);
    labelled["metadata"]["labels"] = json!({ "app": "a" });
    labelled["metadata"]["resourceVersion"] = json!("8");
    assert!(!stirs(&read(old.clone()), &read(labelled)));

    for new in [
        at("3Gi", "1Gi", "2Gi", "ControllerResizeInProgress"),
        at("2Gi", "2Gi", "2Gi", "ControllerResizeInProgress"),
        at("2Gi", "1Gi", "2Gi", "NodeResizeInfeasible"),
        at("2Gi", "1Gi", "2Gi", ""),
    ] {
        assert!(stirs(&read(old.clone()), &read(new)));
    }
}

#[test]
fn the_codes_that_can_never_work_are_three() {
    let codes: Vec<_> = (0..17).map(Code::from_i32).filter(|code| is_infeasible(*code)).collect();
    assert_eq!(codes, [Code::InvalidArgument, Code::NotFound, Code::OutOfRange]);
}
