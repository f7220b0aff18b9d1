//! A volume that is attached, asked for once more through the library.

use std::sync::Arc;

use hawser_core::Reason;
use hawser_core::port::Library;
use hawser_core::port::library::{DeviceInfo, VolumeKey};
use hawser_testkit::sim::iscsi::PortalState;

use super::*;
use crate::library::instance;
use crate::node::{NodeHalf, NodeParts};
use crate::{CONNECTORS, FileRegistry};

/// A program's library on the host of a storage system with two portals.
struct Program {
    library: NodeHalf,
    host: Arc<FakeHost>,
    portals: Vec<String>,
}

impl Program {
    fn new() -> Self {
        let program = Self::without_multipathd();
        program.host.kernel().multipathd(FindMultipaths::Strict);
        program
    }

    fn without_multipathd() -> Self {
        let Storage { host, portals, .. } = Storage::new(2);
        let host = Arc::new(host);
        let folder = host.dir().join("registry");
        let registry = FileRegistry::open(&folder, &folder.join("locks")).unwrap();
        let library = NodeHalf::new(NodeParts {
            id: "localhost".parse().unwrap(),
            instance: instance(),
            host: Arc::<FakeHost>::clone(&host),
            connectors: CONNECTORS.into(),
            registry: Arc::new(registry),
            pools: Vec::new(),
        });
        Self { library, host, portals }
    }

    fn info(&self) -> ConnectionInfo {
        info(json!({ "target_portals": self.portals, "target_iqns": [IQN, IQN],
            "target_luns": [1, 1], "volume_id": "v1" }))
    }

    async fn connect(&self, multipath: Multipath) -> Result<Change<DeviceInfo>> {
        let attach = Attach { multipath, ..Attach::default() };
        self.library.connect(&self.info(), &attach).await
    }

    async fn disconnect(&self) {
        let volume = VolumeKey::Volume("v1".into());
        self.library.disconnect(&volume, &Detach::default()).await.unwrap();
        assert_eq!(iscsi::sessions(self.host.kernel()).len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_that_was_dead_at_the_first_attach_is_brought_in_by_asking_again() {
    let program = Program::new();
    let kernel = program.host.kernel();
    iscsi::set_portal(kernel, &program.portals[1], PortalState::Silent);
    let first = program.connect(Multipath::Wanted).await.unwrap().into_inner();
    assert_eq!(first.paths.len(), 1);

    let still = program.connect(Multipath::Wanted).await.unwrap();
    assert!(!still.is_made());
    assert_eq!(still.get().paths.len(), 1, "it is tried, and nothing else happens");
    iscsi::set_portal(kernel, &program.portals[1], PortalState::Open);
    let again = program.connect(Multipath::Wanted).await.unwrap();

    assert!(again.is_made());
    assert_eq!((again.get().paths.len(), &again.get().path), (2, &first.path));
    assert!(!program.connect(Multipath::Wanted).await.unwrap().is_made());
    program.disconnect().await;
}

#[tokio::test(start_paused = true)]
async fn paths_that_were_not_asked_for_at_first_become_a_map_when_they_are() {
    let program = Program::new();
    let one = program.connect(Multipath::Off).await.unwrap().into_inner();
    assert!(one.path.starts_with("/dev/sda"), "{one:?}");

    let both = program.connect(Multipath::Enforced).await.unwrap().into_inner();

    assert!(both.multipath_id.is_some() && both.paths.len() == 2, "{both:?}");
    let fewer = program.connect(Multipath::Off).await.unwrap();
    assert_eq!(*fewer.get(), both, "none is taken away");
    program.disconnect().await;
}

#[tokio::test(start_paused = true)]
async fn a_path_that_somebody_uses_as_it_is_stays_his() {
    let program = Program::new();
    let one = program.connect(Multipath::Off).await.unwrap().into_inner();
    program.host.set_busy(&one.path, true);

    let refused = program.connect(Multipath::Enforced).await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::DeviceBusy), "{refused:?}");
    let kept = program.connect(Multipath::Wanted).await.unwrap();
    assert!(!kept.is_made());
    assert_eq!(*kept.get(), one);
    assert_eq!(iscsi::sessions(program.host.kernel()).len(), 1, "nothing was made");

    program.host.set_busy(&one.path, false);
    let both = program.connect(Multipath::Wanted).await.unwrap().into_inner();
    assert_eq!(both.paths.len(), 2, "{both:?}");
    program.disconnect().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_without_multipath_keeps_its_one_path_when_it_is_enforced() {
    let program = Program::without_multipathd();
    let one = program.connect(Multipath::Off).await.unwrap().into_inner();

    let refused = program.connect(Multipath::Enforced).await.unwrap_err();

    assert_eq!(refused.reason(), Some(Reason::MultipathUnavailable), "{refused:?}");
    assert_eq!(*program.connect(Multipath::Off).await.unwrap().get(), one);
    program.disconnect().await;
}

#[tokio::test(start_paused = true)]
async fn one_more_key_of_the_storage_system_is_no_other_volume() {
    let program = Program::new();
    program.connect(Multipath::Off).await.unwrap();
    let mut more = program.info();
    more.data.insert("vendor_word".into(), json!("x"));
    let mut less = program.info();
    less.data["target_luns"] = json!([1, 2]);

    let again = program.library.connect(&more, &Attach::default()).await.unwrap();
    let refused = program.library.connect(&less, &Attach::default()).await.unwrap_err();

    assert!(!again.is_made());
    assert_eq!(refused.reason(), Some(Reason::InvalidParameters), "{refused:?}");
    program.disconnect().await;
}

/// The raw device below an encrypted volume would be handed out, and taken away with the second name.
#[tokio::test(start_paused = true)]
async fn a_volume_under_a_second_name_is_refused_and_the_first_keeps_its_device() {
    let program = Program::without_multipathd();
    let one_way = |portal: usize, name: &str| {
        let mut info = info(json!({ "target_portal": program.portals[portal], "target_iqn": IQN,
            "target_lun": 1, "volume_id": name }));
        info.identity = None;
        info
    };
    let attach = Attach::default();
    let first = program.library.connect(&one_way(0, "v1"), &attach).await.unwrap().into_inner();
    let before = program.host.snapshot();
    let mut unnamed = one_way(0, "");
    unnamed.data.remove("volume_id");
    let mut by_naa = one_way(1, "v2");
    by_naa.identity = Some(Identity::new("naa", NAA));

    // The same address; another way to it; the same in other words.
    for other in [one_way(0, "v2"), unnamed, one_way(1, "v2"), by_naa] {
        let refused = program.library.connect(&other, &attach).await.unwrap_err();

        assert_eq!(refused.reason(), Some(Reason::DeviceBusy), "{refused:?}");
        assert!(refused.sentence().contains("detach that first"), "{refused:?}");
        assert_eq!(before.difference(&program.host.snapshot()), "", "{other:?}");
        let key = VolumeKey::Volume("v2".into());
        let gone = program.library.disconnect(&key, &Detach::default()).await.unwrap();
        assert!(!gone.is_made());
    }
    let again = program.library.connect(&one_way(0, "v1"), &attach).await.unwrap();
    assert!(!again.is_made());
    assert_eq!(again.get().path, first.path);
    program.disconnect().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_target_ends_with_the_deadline() {
    let rig = single();
    let target = crate::iscsi::data::read(&rig.info).unwrap().targets.remove(0);
    let soon = Deadline::after(std::time::Duration::from_secs(3));
    let _held = Notes::lock(&rig.host, &notes::Key::of(&target), soon).await.unwrap();
    let begun = tokio::time::Instant::now();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::HostTimeout), "{error:?}");
    assert!(error.sentence().contains(IQN), "{error:?}");
    assert!(begun.elapsed() < 3 * rig.attach.deadline, "{:?}", begun.elapsed());
}
