//! Connection info of every protocol, whole and damaged, through every connector.

use std::cell::RefCell;

use hawser_core::connection::{ConnectionInfo, Data};
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fuzz;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use super::key::Key;
use crate::find;
use crate::shared::fields::ASKED;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

thread_local! {
    /// An empty host; looking changes nothing there.
    static HOST: RefCell<(Runtime, FakeHost)> = RefCell::new((
        Builder::new_current_thread().enable_all().start_paused(true).build().unwrap(),
        FakeHost::new(),
    ));
}

/// What the library does with what a caller sent, up to the first look at the host.
fn take(info: &ConnectionInfo) {
    let written = serde_json::to_string(&info.without_secrets()).expect("it can be written");
    let read: ConnectionInfo = serde_json::from_str(&written).expect("and read back");
    assert_eq!(read.protocol, info.protocol);
    let Some(connector) = find(&info.protocol) else { return };
    let _ = Key::of_info(connector, info);
    HOST.with_borrow(|(runtime, host)| {
        let found = runtime.block_on(connector.lookup(host, info));
        assert!(!matches!(found, Ok(Some(_))), "{info:?} was found on an empty host");
    });
}

fn take_bytes(bytes: &[u8]) {
    if let Ok(info) = serde_json::from_slice(bytes) {
        take(&info);
    }
}

fn take_value(value: Value) {
    if let Ok(info) = serde_json::from_value(value) {
        take(&info);
    }
}

#[test]
fn every_protocol_has_its_info_in_the_corpus() {
    let known: Vec<ConnectionInfo> = fuzz::corpus(ROOT, "connection_info")
        .iter()
        .filter_map(|bytes| serde_json::from_slice(bytes).ok())
        .collect();
    for connector in crate::CONNECTORS {
        for protocol in connector.info().protocols {
            assert!(known.iter().any(|info| info.protocol.as_str() == *protocol), "{protocol}");
        }
    }
}

#[test]
fn every_field_that_a_connector_reads_to_find_a_volume_counts() {
    for bytes in fuzz::corpus(ROOT, "connection_info") {
        let Ok(info) = serde_json::from_slice::<ConnectionInfo>(&bytes) else { continue };
        let Some(connector) = find(&info.protocol) else { continue };
        ASKED.with_borrow_mut(|asked| asked.clear());
        take(&info);
        let (asked, data) = (ASKED.take(), info.parse::<Data>().unwrap_or_default());
        let within = |field: &str| data.values().any(|value| value.get(field).is_some());
        for field in asked.iter().filter(|field| !within(field)) {
            assert!(connector.counts(&data, field), "{} reads {field}", info.protocol);
        }
    }
}

#[test]
fn an_info_that_lost_its_end_is_refused_in_words() {
    fuzz::whole_and_cut_off(ROOT, "connection_info", take_bytes);
}

#[test]
fn an_info_with_damaged_bytes_makes_no_connector_panic_or_hang() {
    fuzz::damaged(ROOT, "connection_info", take_bytes);
}

#[test]
fn an_info_with_other_values_makes_no_connector_panic_or_hang() {
    fuzz::damaged_json(ROOT, "connection_info", take_value);
}
