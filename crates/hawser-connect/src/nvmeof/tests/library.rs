//! Through the library, which keeps what the device said of itself in its record.

use std::sync::Arc;

use hawser_core::Reason;
use hawser_core::port::Library;
use hawser_core::port::library::VolumeKey;
use hawser_testkit::sim::nvme::Portal;
use tempfile::TempDir;

use super::*;
use crate::library::instance;
use crate::node::{NodeHalf, NodeParts};
use crate::{CONNECTORS, FileRegistry};

/// A program's library on the host of a lab.
struct Program {
    library: NodeHalf,
    host: Arc<FakeHost>,
    target: Target,
    _records: TempDir,
}

fn program() -> Program {
    let Lab { host, target, .. } = lab();
    let host = Arc::new(host);
    let records = tempfile::tempdir().unwrap();
    let (run, locks) = (records.path().join("run"), records.path().join("lock"));
    let library = NodeHalf::new(NodeParts {
        id: "localhost".parse().unwrap(),
        instance: instance(),
        host: Arc::<FakeHost>::clone(&host),
        connectors: CONNECTORS.into(),
        registry: Arc::new(FileRegistry::open(&run, &locks).unwrap()),
        pools: Vec::new(),
    });
    Program { library, host, target, _records: records }
}

impl Program {
    async fn connect(&self, info: &ConnectionInfo) -> Result<()> {
        self.library.connect(info, &all_paths()).await.map(|_| ())
    }

    async fn disconnect(&self, info: &ConnectionInfo, detach: &Detach) -> Result<Change<()>> {
        let gone = self.library.disconnect(&VolumeKey::Info(info.clone()), detach).await;
        gone.map(|change| change.map(|_| ()))
    }

    fn controllers(&self) -> usize {
        self.host.kernel().edit(|tree| tree.list("/sys/class/nvme")).len()
    }
}

/// The volume by its number alone.
fn bare() -> ConnectionInfo {
    let mut bare = data();
    bare.as_object_mut().unwrap().remove("vol_uuid");
    bare["ns_id"] = json!(1);
    info(bare)
}

/// The same, as a storage system tells it that knows whose number it is.
fn called(name: &str, uuid: &str) -> ConnectionInfo {
    let mut called = bare();
    called.data.insert("volume_id".into(), json!(name));
    called.identity = Some(Identity::new("uuid", uuid));
    called
}

#[tokio::test(start_paused = true)]
async fn what_was_connected_without_an_identity_is_gone_after_disconnect() {
    for info in [info(data()), bare()] {
        let program = program();
        let before = program.host.snapshot();
        for _ in 0..2 {
            program.connect(&info).await.unwrap();
            program.connect(&info).await.unwrap();
            assert_eq!(program.controllers(), 2);

            let gone = program.disconnect(&info, &Detach::default()).await.unwrap();

            assert!(gone.is_made());
            assert_eq!(before.difference(&program.host.snapshot()), "");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_portal_that_was_dead_at_first_is_added_by_the_next_connect() {
    let program = program();
    let info = info(data());
    nvme::set_portal(program.host.kernel(), B, Portal::Refused);

    program.connect(&info).await.unwrap();
    assert_eq!(program.controllers(), 1);
    nvme::set_portal(program.host.kernel(), B, Portal::Open);
    program.connect(&info).await.unwrap();

    assert_eq!(program.controllers(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_forced_detach_without_a_path_says_that_data_was_lost_and_is_finished_by_the_next() {
    let program = program();
    let before = program.host.snapshot();
    let info = info(data());
    program.connect(&info).await.unwrap();
    for portal in [A, B] {
        nvme::set_reachable(program.host.kernel(), portal, false);
    }

    let refused = program.disconnect(&info, &Detach::default()).await.unwrap_err();
    let force = Detach { force: true, ..Detach::default() };
    let lost = program.disconnect(&info, &force).await.unwrap_err();
    program.disconnect(&info, &Detach::default()).await.unwrap();

    assert_eq!(refused.reason(), Some(Reason::FlushFailed), "{refused:?}");
    assert_eq!(lost.reason(), Some(Reason::DataLost), "{lost:?}");
    for portal in [A, B] {
        nvme::set_reachable(program.host.kernel(), portal, true);
    }
    assert_eq!(before.difference(&program.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn case_16_a_number_is_claimed_by_one_volume_after_the_other() {
    let program = program();
    let before = program.host.snapshot();
    let (old, new) = (called("old", UUID), called("new", OTHER));
    program.connect(&old).await.unwrap();
    program.target.show(1, &nvme::namespace(OTHER, ByteSize::mib(64)));

    let refused = program.connect(&new).await.unwrap_err();
    let kept = program.disconnect(&new, &Detach::default()).await.unwrap();
    assert_eq!(refused.reason(), Some(Reason::IdentityMismatch), "{refused:?}");
    assert!(!kept.is_made(), "the claim is the old volume's");

    assert!(program.disconnect(&old, &Detach::default()).await.unwrap().is_made());
    program.connect(&new).await.unwrap();
    assert!(program.disconnect(&new, &Detach::default()).await.unwrap().is_made());
    assert_eq!(before.difference(&program.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn case_16_a_number_that_is_another_volumes_after_a_reboot_is_let_go() {
    let program = program();
    let before = program.host.snapshot();
    let info = bare();
    program.connect(&info).await.unwrap();
    program.host.reboot();
    program.target.show(1, &nvme::namespace(OTHER, ByteSize::mib(64)));

    let refused = program.connect(&info).await.unwrap_err();

    assert!(refused.sentence().contains(OTHER), "{refused:?}");
    assert_eq!(before.difference(&program.host.snapshot()), "");
}
