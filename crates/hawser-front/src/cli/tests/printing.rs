//! What is printed: tables, JSON, YAML, sentences, errors.

use hawser_api::rest::groups::GroupView;
use hawser_api::rest::list::ListView;
use hawser_api::rest::volumes::VolumeView;
use hawser_core::doctor::Repair;
use hawser_core::{Error, Kind};
use serde_json::Value;

use super::fake::*;
use crate::cli::Exit;

async fn out(line: &str) -> String {
    let ran = hawser(&FakeControl::new(), line).await;
    assert_eq!(ran.exit, Exit::Done, "{line}: {}", ran.err);
    assert_eq!(ran.err, "", "{line}");
    ran.out
}

#[tokio::test]
async fn lists_are_aligned_tables_of_all_pages() {
    assert_eq!(
        out("hawser volume list").await,
        "\
NAME             SIZE  ACCESS  CLASS    STATE  USED BY  AGE
a-longer-name  1.4GiB  block   default  ready  -        32d
data             2GiB  ext4    default  ready  host-a    3h
"
    );
    assert_eq!(
        out("hawser snapshot list").await,
        "\
NAME  VOLUME                          SIZE  ACCESS  CLASS    STATE  GROUP  AGE
s1    vol-01k5zzzzzzzzzzzzzzzzzzzzzz  2GiB  ext4    default  ready  -      60m
"
    );
    assert_eq!(
        out("hawser class list").await,
        "\
NAME     PROVIDER  DEFAULT  AVAILABLE   TOTAL  CAN
default  local     yes          98GiB  100GiB  snapshots,capacity
"
    );
    assert_eq!(
        out("hawser node list").await,
        "\
ID      ADDRESS   PRIVILEGED  TOPOLOGY  LAST SEEN
host-a  10.0.0.1  yes         -         5s ago
"
    );
    assert_eq!(
        out("hawser operation list").await,
        "\
ID                             WHAT           OF    STATE    PROGRESS     AGE
op-01k5zzzzzzzzzzzzzzzzzzzzzz  create volume  data  running  copying 45%  30s
"
    );
}

#[tokio::test]
async fn one_object_is_shown_line_by_line() {
    assert_eq!(
        out("hawser volume show data").await,
        "\
name:       data
id:         vol-01k5zzzzzzzzzzzzzzzzzzzzzz
class:      default
size:       2GiB
access:     ext4
sharing:    single writer
state:      ready
source:     -
labels:     team=db
parameters: -
handle:     h1
identity:   -
operation:  -
created:    2026-01-01T21:00:00Z (3h ago)
used by:    host-a (published) as /pool/v on /srv/data
"
    );
    assert_eq!(
        out("hawser snapshot group show nightly").await,
        "\
name:    nightly
id:      grp-01k5zzzzzzzzzzzzzzzzzzzzzz
created: 2026-01-01T23:00:00Z (60m ago)

NAME          VOLUME                          SIZE  ACCESS  CLASS    STATE  GROUP                           AGE
nightly.data  vol-01k5zzzzzzzzzzzzzzzzzzzzzz  2GiB  ext4    default  ready  grp-01k5zzzzzzzzzzzzzzzzzzzzzz  60m
nightly.logs  vol-01k5zzzzzzzzzzzzzzzzzzzzzz  2GiB  ext4    default  ready  grp-01k5zzzzzzzzzzzzzzzzzzzzzz  60m
"
    );
    let class = out("hawser class show default").await;
    assert!(class.contains("largest volume: 98GiB\n"), "{class}");
}

#[tokio::test]
async fn json_and_yaml_are_the_shapes_of_the_rest_api() {
    let list: ListView<VolumeView> =
        serde_json::from_str(&out("hawser volume list -o json").await).unwrap();
    assert_eq!(list.items.len(), 2);
    assert_eq!(list.items[1], VolumeView::from(volume()));
    let one: VolumeView =
        serde_json::from_str(&out("hawser volume show data -o json").await).unwrap();
    assert_eq!(one, VolumeView::from(volume()));
    let yaml: VolumeView =
        serde_norway::from_str(&out("hawser volume show data -o yaml").await).unwrap();
    assert_eq!(yaml, VolumeView::from(volume()));
    let class: Value =
        serde_json::from_str(&out("hawser class show default -o json").await).unwrap();
    assert_eq!(class["name"], "default");
    assert_eq!(class["capacity"]["available"], 98_u64 << 30);
    let made: VolumeView =
        serde_json::from_str(&out("hawser volume create data --size 2GiB -o json").await).unwrap();
    assert_eq!(made.name, "data");
    assert_eq!(out("hawser volume delete data -o json").await, "", "nothing is left to show");
    for line in
        ["hawser snapshot group show g -o json", "hawser snapshot group create g a b -o json"]
    {
        let shown: GroupView = serde_json::from_str(&out(line).await).unwrap();
        assert_eq!(shown, GroupView::from(group()), "{line}");
    }
}

#[tokio::test]
async fn changes_say_what_they_did() {
    for (line, said) in [
        (
            "hawser volume create data --size 2GiB",
            "volume data created: 2GiB ext4 in class default\n",
        ),
        ("hawser volume clone data copy", "volume data created: 2GiB ext4 in class default\n"),
        ("hawser volume delete data", "volume data deleted\n"),
        ("hawser volume expand data 4GiB", "volume data expanded to 4GiB\n"),
        ("hawser volume label data team=db", "volume data labelled team=db\n"),
        ("hawser volume health data", "volume data is healthy\n"),
        ("hawser volume publish data", "volume data published to node host-a\n"),
        ("hawser volume unpublish data", "volume data unpublished from node host-a\n"),
        ("hawser volume attach data", "volume data attached to node host-a as /pool/v\n"),
        ("hawser volume detach data", "volume data detached from node host-a\n"),
        ("hawser snapshot create s1 --volume data", "snapshot s1 of volume data taken\n"),
        ("hawser snapshot delete s1", "snapshot s1 deleted\n"),
        (
            "hawser snapshot group create nightly data logs",
            "group nightly taken: nightly.data, nightly.logs\n",
        ),
        ("hawser snapshot group delete nightly", "group nightly deleted\n"),
        ("hawser mount data ../x/./y", "volume data mounted on /users/x/y\n"),
        ("hawser unmount data", "volume data unmounted from node host-a\n"),
        ("hawser doctor", "everything belongs together\n"),
    ] {
        assert_eq!(out(line).await, said, "{line}");
        assert_eq!(
            out(&format!("{line} --quiet")).await,
            if line.contains("health") { said } else { "" }
        );
    }
}

#[tokio::test]
async fn requests_carry_what_was_typed() {
    for (line, parts) in [
        (
            "hawser volume create n --size 1GiB --fs xfs --class gold --label a=b --param c=d --sharing many-readers",
            vec![
                "Filesystem(Xfs)",
                "gold",
                "\"a\": \"b\"",
                "\"c\": \"d\"",
                "ManyReaders",
                "1073741824",
            ],
        ),
        ("hawser volume create n --from-snapshot s1", vec!["Snapshot(Alias", "size: None"]),
        ("hawser snapshot restore s1 n --size 5G", vec!["Snapshot(Alias", "5000000000"]),
        ("hawser volume clone a n", vec!["Volume(Alias", "access: None"]),
        (
            "hawser mount data d --read-only -o noatime --node b",
            vec!["\"/users/me/d\"", "read_only: true", "noatime", "\"b\""],
        ),
        ("hawser unmount data d", vec!["unmount data host-a Some(\"/users/me/d\")"]),
        ("hawser volume label data x- y=1", vec!["\"x\": None", "\"y\": Some(\"1\")"]),
        (
            "hawser volume create n --size 1GiB --place node=a --place zone=b",
            vec!["\"node\": \"a\", \"zone\": \"b\""],
        ),
        ("hawser class show default --place zone=b --place node=a", vec!["room at node=a,zone=b"]),
        (
            "hawser snapshot group create g a b --label x=y",
            vec!["group GroupRequest", "name: \"a\"", "name: \"b\"", "\"x\": \"y\""],
        ),
        ("hawser doctor --fix", vec!["doctor true"]),
    ] {
        let control = FakeControl::new();
        let ran = hawser(&control, line).await;
        assert_eq!(ran.exit, Exit::Done, "{line}: {}", ran.err);
        let asked = control.asked.lock().unwrap().join("\n");
        for part in parts {
            assert!(asked.contains(part), "{line}: no {part} in {asked}");
        }
    }
}

#[tokio::test]
async fn what_is_not_there_is_an_error_unless_it_is_ignored() {
    let control = std::sync::Arc::new(FakeControl { missing: true, ..FakeControl::default() });

    let strict = hawser(&control, "hawser volume delete gone").await;
    let lenient = hawser(&control, "hawser volume delete gone --ignore-missing").await;

    assert_eq!((strict.exit, strict.exit.code()), (Exit::Failed, 1));
    assert!(strict.err.starts_with("error: volume gone does not exist\nhint: "), "{}", strict.err);
    assert_eq!((lenient.exit, lenient.out.as_str()), (Exit::Done, "volume gone was not there\n"));
}

#[tokio::test]
async fn an_error_is_one_sentence_and_what_to_do_next() {
    let control = FakeControl::new();
    *control.fail.lock().unwrap() = Some(full);

    let ran = hawser(&control, "hawser volume create data --size 2GiB").await;
    let json = hawser(&control, "hawser volume create data --size 2GiB -o json").await;

    assert_eq!(
        ran.err,
        "error: creating volume data: the pool has 1GiB left\n\
         hint: free room or use another class: `hawser class list` shows the room\n"
    );
    assert_eq!((ran.out.as_str(), ran.exit), ("", Exit::Failed));
    let value: Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!(value["error"]["kind"], "no_space");
    assert_eq!(value["error"]["outcome"], "nothing");
    assert_eq!(value["error"]["messages"][1], "the pool has 1GiB left");
    assert_eq!((json.out.as_str(), json.exit), ("", Exit::Failed));
}

#[tokio::test]
async fn an_unknown_outcome_is_told_as_such() {
    let control = FakeControl::new();
    *control.fail.lock().unwrap() = Some(lost);
    let ran = hawser(&control, "hawser volume delete data").await;
    assert!(ran.err.contains("hint: whether it happened is not known yet"), "{}", ran.err);
}

#[test]
fn every_kind_has_its_own_hint() {
    let hints: std::collections::BTreeSet<_> = Kind::ALL
        .iter()
        .map(|kind| crate::cli::CliError::from(Error::new(*kind, "x")).hint())
        .collect();
    assert_eq!(hints.len(), Kind::ALL.len());
}

#[tokio::test]
async fn several_nodes_must_be_told_apart() {
    let control = FakeControl::new();
    control.nodes.lock().unwrap().push("host-b".parse().unwrap());

    let ran = hawser(&control, "hawser mount data /x").await;

    assert_eq!(ran.exit, Exit::Usage);
    assert!(ran.err.contains("--node with one of host-a, host-b"), "{}", ran.err);
    assert!(control.asked.lock().unwrap().is_empty());
    assert_eq!(hawser(&control, "hawser mount data /x --node host-b").await.exit, Exit::Done);
}

#[tokio::test]
async fn sickness_and_findings_are_failures_and_repairs_are_not() {
    let sick = hawser(&FakeControl::new(), "hawser volume health sick").await;
    assert_eq!(sick.exit, Exit::Failed);
    assert!(sick.err.contains("volume sick is not healthy: a path is down"), "{}", sick.err);

    let control = FakeControl::new();
    control.findings.lock().unwrap().push(finding(None));
    let found = hawser(&control, "hawser doctor").await;
    assert_eq!(found.exit, Exit::Failed);
    assert!(found.out.starts_with("/dev/loop7 (fixable)\n  carries our mark"), "{}", found.out);
    assert!(found.err.contains("doctor --fix"), "{}", found.err);

    *control.findings.lock().unwrap() = vec![finding(Some(Repair::Done))];
    let fixed = hawser(&control, "hawser doctor --fix").await;
    assert_eq!(fixed.exit, Exit::Done);
    assert!(fixed.out.contains("/dev/loop7 (repaired)"), "{}", fixed.out);
}

#[tokio::test(start_paused = true)]
async fn events_are_lines_that_cannot_steer_a_terminal() {
    let text = out("hawser events").await;
    assert!(text.contains("     7  2026-01-01T23:59:55Z  volume changed"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let json: Value = serde_json::from_str(&out("hawser events -o json").await).unwrap();
    assert_eq!(json["sequence"], 7);
}

#[tokio::test]
async fn quiet_lists_are_bare_names_and_empty_ones_a_heading() {
    assert_eq!(out("hawser volume list -q").await, "a-longer-name\ndata\n");
    assert_eq!(out("hawser operation list -q").await, "op-01k5zzzzzzzzzzzzzzzzzzzzzz\n");
    let none = std::sync::Arc::new(FakeControl { empty: true, ..FakeControl::default() });
    let ran = hawser(&none, "hawser volume list").await;
    assert_eq!(ran.out, "NAME  SIZE  ACCESS  CLASS  STATE  USED BY  AGE\n");
}
