//! The contract on the real host: in a temporary folder, and as root on file systems of our own,
//! where copies share their blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hawser_core::filesystem::FsKind;
use hawser_core::port::Host;
use hawser_core::port::host::{HostMount, LoopAttach, LoopDevice, MountSource};
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::{Provision, ProvisionSource};
use hawser_core::{ByteSize, Kind};
use hawser_host::{HostSettings, LinuxHost};
use hawser_testkit::contract::provider::ProviderRig;
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

use super::super::PoolKind;
use super::rig::PoolRig;
use super::volumes::at_provider;

/// A pool in the temporary folder, whatever its file system is.
async fn plain(kind: PoolKind) -> Option<PoolRig> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let host: Arc<dyn Host> = Arc::new(LinuxHost::new(HostSettings::default()));
    let path = dir.path().canonicalize().expect("it exists").join("pool");
    let mut rig = PoolRig::new(None, host, json!({ "path": path, "kind": kind })).await;
    rig.ground = Some(Box::new(dir));
    Some(rig)
}

/// A mounted file system on a loop device; unmounted and detached when dropped.
struct Disk {
    host: Arc<LinuxHost>,
    device: LoopDevice,
    mounted: PathBuf,
    _dir: TempDir,
}

impl Disk {
    async fn new(fs: FsKind) -> Self {
        let host = Arc::new(LinuxHost::new(HostSettings::default()));
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (file, mounted) = (dir.path().join("disk"), dir.path().join("mnt"));
        std::fs::File::create(&file).and_then(|f| f.set_len(512 << 20)).expect("a sparse file");
        std::fs::create_dir(&mounted).expect("a folder to mount on");
        let mark = format!("hawser-provider-test-{}", std::process::id());
        let attach = LoopAttach { file, mark, read_only: false, sector_size: 512 };
        let device = host.attach_loop(&attach).await.expect("a loop device").into_inner();
        let disk = Self { host, device, mounted, _dir: dir };
        let node = &disk.device.device;
        disk.host.make_filesystem(node, fs, Uuid::new_v4()).await.expect("mkfs");
        let source = MountSource::Device { device: node.clone(), fs };
        let target = disk.mounted.clone();
        let request = HostMount { source, target, read_only: false, flags: Vec::new() };
        disk.host.mount(&request).await.expect("mount");
        disk
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let (host, device, mounted) =
            (Arc::clone(&self.host), self.device.clone(), self.mounted.clone());
        // A test's own runtime cannot wait here; and what tidies up in the background may hold the
        // pool for a moment.
        let tidy = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                for _ in 0..200 {
                    match host.unmount(&mounted).await {
                        Err(error) if error.kind() == Kind::Busy => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Ok(_) | Err(_) => break,
                    }
                }
                host.detach_loop(&device, false).await.map(drop)
            })
        });
        let tidied = tidy.join().expect("no panic");
        assert!(tidied.is_ok() || std::thread::panicking(), "{tidied:?}");
    }
}

/// A pool on a file system of its own; `None` where that cannot be made.
async fn disk_pool(fs: FsKind, kind: PoolKind) -> Option<PoolRig> {
    let mkfs = format!("mkfs.{fs}");
    let found =
        ["/usr/sbin", "/sbin", "/usr/bin"].iter().any(|p| Path::new(p).join(&mkfs).exists());
    if !rustix::process::geteuid().is_root() || !found {
        hawser_testkit::skip(format!("needs root and {mkfs}"));
        return None;
    }
    let disk = Disk::new(fs).await;
    let host: Arc<dyn Host> = disk.host.clone();
    let path = disk.mounted.join("pool");
    let mut rig = PoolRig::new(None, host, json!({ "path": path, "kind": kind })).await;
    rig.ground = Some(Box::new(disk));
    Some(rig)
}

mod image {
    hawser_testkit::provider_contract!(super::plain(super::PoolKind::Image));
}

mod folder {
    hawser_testkit::provider_contract!(super::plain(super::PoolKind::Folder));
}

mod loop_xfs_image {
    use hawser_core::filesystem::FsKind;
    hawser_testkit::provider_contract!(super::disk_pool(FsKind::Xfs, super::PoolKind::Image));
}

mod loop_btrfs_folder {
    use hawser_core::filesystem::FsKind;
    hawser_testkit::provider_contract!(super::disk_pool(FsKind::Btrfs, super::PoolKind::Folder));
}

/// Writes 300 MiB into a volume of a pool on 512 MiB and clones it.
async fn clone_more_than_fits(fs: FsKind) -> Option<hawser_core::Result<()>> {
    let mut rig = disk_pool(fs, PoolKind::Image).await?;
    rig.settings["overcommit"] = json!(10);
    rig.reopen().await;
    let provider = rig.provider();
    let wanted = Provision {
        id: hawser_core::id::VolumeId::generate(),
        size: ByteSize::mib(320),
        access: hawser_core::volume::Access::Block,
        source: None,
        parameters: Default::default(),
        place: None,
    };
    provider.create(&wanted, &Silent).await.expect("there is room");
    let image = rig.path.join(format!("volumes/{}.img", wanted.id));
    let mut file = std::fs::File::options().write(true).open(&image).expect("the image");
    for _ in 0..300 {
        std::io::Write::write_all(&mut file, &[7; 1 << 20]).expect("there is room");
    }
    file.sync_all().expect("sync");
    let clone = Provision {
        id: hawser_core::id::VolumeId::generate(),
        source: Some(ProvisionSource::Volume(at_provider(&wanted))),
        ..wanted
    };
    let held = rig.holds();
    let made = provider.create(&clone, &Silent).await;
    if made.is_err() {
        assert_eq!(rig.holds(), held, "a refused clone left something");
    }
    Some(made.map(drop))
}

#[tokio::test]
async fn loop_xfs_clones_share_their_blocks() {
    if let Some(cloned) = clone_more_than_fits(FsKind::Xfs).await {
        cloned.expect("a clone that shares its blocks needs no room");
    }
}

#[tokio::test]
async fn loop_ext4_refuses_a_clone_that_the_medium_cannot_take() {
    if let Some(cloned) = clone_more_than_fits(FsKind::Ext4).await {
        let error = cloned.expect_err("ext4 copies");
        assert_eq!(error.kind(), Kind::NoSpace, "{error:?}");
        assert!(error.sentence().contains("free"), "{error:?}");
    }
}

#[tokio::test]
async fn loop_a_folder_that_is_mounted_elsewhere_is_not_deleted() {
    let Some(rig) = disk_pool(FsKind::Ext4, PoolKind::Folder).await else { return };
    let host = LinuxHost::new(HostSettings::default());
    let target = tempfile::tempdir().expect("a temporary folder");
    let wanted = Provision {
        id: hawser_core::id::VolumeId::generate(),
        size: ByteSize::mib(1),
        access: hawser_core::volume::Access::Folder,
        source: None,
        parameters: Default::default(),
        place: None,
    };
    rig.provider().create(&wanted, &Silent).await.expect("there is room");
    let bind = HostMount {
        source: MountSource::Bind { path: rig.path.join(format!("volumes/{}/data", wanted.id)) },
        target: target.path().to_owned(),
        read_only: false,
        flags: Vec::new(),
    };
    host.mount(&bind).await.expect("bind");

    let refused = rig.provider().delete(&at_provider(&wanted)).await;
    host.unmount(target.path()).await.expect("unmount");

    let error = refused.expect_err("it is mounted");
    assert_eq!(error.kind(), Kind::Busy, "{error:?}");
    assert!(error.sentence().contains(&target.path().display().to_string()), "{error:?}");
    assert!(rig.provider().delete(&at_provider(&wanted)).await.expect("delete").is_made());
}
