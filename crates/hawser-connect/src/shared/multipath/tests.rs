use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::port::Host;
use hawser_core::port::kernel::MapTarget;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{DiskSpec, FindMultipaths as Find, Lun};
use hawser_testkit::sim::multipath as sim;
use proptest::prelude::*;

use super::daemon::{FindMultipaths, find_multipaths};
use super::forget::paths_of;
use super::join::Joined;
use super::status::{PathState, paths};
use super::*;
use crate::shared::users::Whole;
use crate::shared::wait::Deadline;

const WWID: &str = "36001405aaaaaaaaaaaaaaaaaaaaaaaaa";

fn target(parameters: &str) -> Vec<MapTarget> {
    vec![MapTarget { start: 0, length: 8, kind: "multipath".into(), parameters: parameters.into() }]
}

#[test]
fn the_states_of_paths_are_read_as_a_kernel_wrote_them() {
    // Two groups, the second with a failed path; as Linux 6.12 prints it.
    let status = "2 0 0 0 2 1 A 0 1 2 8:16 A 0 0 1 E 0 2 2 8:32 F 3 0 1 8:48 A 0 0 1 ";
    let path = |minor, active| PathState { number: (8, minor), active };

    assert_eq!(paths(&target(status)), Some(vec![path(16, true), path(32, false), path(48, true)]));
    assert_eq!(paths(&target("2 0 0 0 0 0 ")), Some(Vec::new()), "none at all");
    for odd in ["", "2 0", "2 0 0 0 1 1 A 0 1 2 816 A 0", "x", "2 0 0 0 9 1 A 0 1 2 8:16 A 0 0 1"] {
        assert_eq!(paths(&target(odd)), None, "{odd}");
    }
}

#[test]
fn the_mode_of_multipathd_is_read_from_its_configuration() {
    let config = "defaults {\n\tverbosity 2\n\tfind_multipaths \"strict\"\n}\n";
    assert_eq!(find_multipaths(config), Some(FindMultipaths::Strict));
    assert_eq!(find_multipaths("find_multipaths no"), Some(FindMultipaths::No));
    assert_eq!(find_multipaths("find_multipaths_timeout -10\n"), None);
    assert!(FindMultipaths::Greedy.takes_strangers() && !FindMultipaths::Yes.takes_strangers());
}

fn disk(host: &FakeHost, name: &str) -> Whole {
    let lun = Lun::scsi(&WWID[1..], ByteSize::mib(8));
    host.kernel().disk(DiskSpec::new(name, &lun).wwid(WWID));
    Whole::new(name)
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

async fn joined(host: &FakeHost, paths: &[Whole]) -> Option<Joined> {
    Join { host, wwid: WWID, paths, deadline: soon() }.run().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_path_becomes_a_map_where_multipathd_is_strict_and_is_forgotten_again() {
    let host = FakeHost::new();
    sim::install(&host);
    host.kernel().multipathd(Find::Strict);
    let before = host.snapshot();
    let path = disk(&host, "sdb");

    let joined = joined(&host, std::slice::from_ref(&path)).await.expect("a map");

    assert_eq!((joined.map.wwid.as_str(), joined.missing.len()), (WWID, 0));
    assert_eq!(Map::above(host.files(), &path).unwrap(), Some(joined.map.clone()));
    assert_eq!(joined.map.usable(&host).await.unwrap(), 1);
    remove(&host, &joined.map, soon()).await.unwrap();
    host.kernel().edit(|tree| tree.remove_disk("sdb"));
    forgotten(&host, WWID, &[path], soon()).await.unwrap();
    assert!(forget_wwid(&host, WWID).await.unwrap());
    assert!(!forget_wwid(&host, WWID).await.unwrap(), "once is enough");
    let after = host.snapshot();
    assert_eq!(before.difference(&after), "");
}

#[tokio::test(start_paused = true)]
async fn what_was_remembered_before_stays_remembered() {
    let host = FakeHost::new();
    sim::install(&host);
    host.kernel().multipathd(Find::Strict);
    host.kernel().edit(|tree| {
        let text = tree.text("/etc/multipath/wwids");
        tree.file("/etc/multipath/wwids", format!("{text}\n/{WWID}/\n"));
    });
    let path = disk(&host, "sdb");
    joined(&host, &[path]).await.expect("a map");

    assert!(!forget_wwid(&host, WWID).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_leftover_map_goes_unless_somebody_has_it() {
    for busy in [false, true] {
        let host = FakeHost::new();
        sim::install(&host);
        host.kernel().multipathd(Find::Greedy);
        let path = disk(&host, "sdb");
        let map = joined(&host, &[path]).await.expect("a map").map;
        host.set_busy(&map.disk.node, true);
        host.kernel().edit(|tree| tree.remove_disk("sdb"));
        // multipathd hears of it.
        host.events().subscribe().changed(Duration::from_secs(1)).await;
        host.set_busy(&map.disk.node, busy);

        let cleared = clear_leftover(&host, WWID, soon()).await;

        assert_eq!(cleared.is_err(), busy);
        assert_eq!(Map::of_wwid(host.files(), WWID).unwrap().is_some(), busy);
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_no_map_of_paths_is_none() {
    let host = FakeHost::new();
    let path = disk(&host, "sdb");
    let lun = Lun::new(ByteSize::mib(8));
    host.kernel().edit(|tree| {
        tree.add_map("luks-x", "CRYPT-LUKS2-x", ("crypt", ""), &["sdb"], &lun).unwrap();
    });

    assert_eq!(Map::above(host.files(), &path).unwrap(), None);
}

proptest! {
    #[test]
    fn any_status_is_read_or_none(text in "[0-9:AFDE ]{0,80}", more in "\\PC{0,40}") {
        let _ = (paths(&target(&text)), paths(&target(&more)));
        let _ = find_multipaths(&more);
    }

    /// A number of groups or paths from a broken kernel must not make us allocate for it.
    #[test]
    fn any_counts_end(a: u64, b: u64) {
        let _ = paths(&target(&format!("2 0 0 0 {a} 1 A 0 {b} 2 8:16 A 0 0 1")));
        let _ = paths(&target(&format!("{a} 0 {b}")));
    }
}

hawser_testkit::fuzz_corpus!(config, "multipathd_config", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let _ = find_multipaths(&text);
});

hawser_testkit::fuzz_corpus!(status, "dm_multipath_status", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let _ = paths(&target(&text));
});

hawser_testkit::fuzz_corpus!(known_paths, "multipathd_paths", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    for name in paths_of(&text, WWID) {
        assert!(!name.contains(char::is_whitespace) && text.contains(name), "{name}");
    }
});
