//! Local pools on real file systems: images over loop devices, with every file system inside, and
//! what must never be formatted.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use hawser_core::filesystem::FsKind;
use hawser_core::port::Host;
use hawser_core::port::host::Tool;
use hawser_core::port::progress::Silent;
use hawser_core::volume::SourceRef;
use hawser_core::{ByteSize, Kind};
use hawser_live::real::{Real, has, snapshot, volume};

/// What is written into volumes: far more than the noise of any file system's own bookkeeping.
const CONTENT: usize = 16 << 20;

/// Bytes that no file system shares or compresses away.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(CONTENT);
    while bytes.len() < CONTENT {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn write(folder: &Path, content: &[u8]) {
    let mut file = fs::File::create(folder.join("file")).expect("it is mounted");
    file.write_all(content).and_then(|()| file.sync_all()).expect("there is room");
}

#[track_caller]
fn assert_content(folder: &Path, content: &[u8]) {
    let found = fs::read(folder.join("file")).expect("it is mounted");
    assert!(found == content, "{} holds other bytes", folder.display());
}

fn total(folder: &Path) -> u64 {
    let usage = rustix::fs::statvfs(folder).expect("it is mounted");
    usage.f_blocks * usage.f_frsize
}

/// The kernel's version, as two numbers.
fn kernel() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The whole life of volumes with every file system, in a pool on this one.
async fn live_on(pool: FsKind) {
    let Some(real) = Real::start(pool).await else { return };
    for fs in FsKind::ALL {
        live(&real, pool, fs).await;
        real.assert_empty().await;
    }
}

async fn live(real: &Real, pool: FsKind, fs: FsKind) {
    let at = format!("{fs} on {pool}");
    let size = ByteSize::mib(fs.smallest_mib().max(64).next_multiple_of(64));
    let (first, second) = (noise(1), noise(2));

    real.create("data", size, fs).await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    let data = real.mount("data").await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    write(&data, &first);
    let before = real.used().await;
    real.snapshot("s1", "data").await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    let copied = real.used().await.saturating_sub(before);
    let shares = pool != FsKind::Ext4;
    assert_eq!(copied < CONTENT as u64 / 2, shares, "{at}: the snapshot took {copied} bytes");
    write(&data, &second);

    let restored = real.copy("restored", SourceRef::Snapshot(snapshot("s1"))).await;
    restored.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    let cloned = real.copy("clone", SourceRef::Volume(volume("data"))).await;
    cloned.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    // Copies have the file system UUID of their original, which is mounted.
    if fs != FsKind::Btrfs || kernel() >= (6, 7) {
        let clone = real.mount("clone").await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
        let restored =
            real.mount("restored").await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
        assert_content(&restored, &first);
        assert_content(&clone, &second);
        write(&clone, &first);
        assert_content(&data, &second);
        for name in ["clone", "restored"] {
            real.unmount(name).await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
        }
    }

    let (small, grown) = (total(&data), ByteSize::bytes(size.get() + (128 << 20)));
    real.expand("data", grown).await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    let large = total(&data);
    assert!(large > small + (96 << 20), "{at}: {small} bytes became {large}");
    assert_content(&data, &second);

    real.unmount("data").await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    let again = real.mount("data").await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    assert_content(&again, &second);
    real.unmount("data").await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    real.delete_snapshot("s1").await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    for name in ["data", "clone", "restored"] {
        real.delete(name).await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_volumes_live_in_a_pool_on_ext4() {
    live_on(FsKind::Ext4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_volumes_live_in_a_pool_on_xfs() {
    live_on(FsKind::Xfs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_volumes_live_in_a_pool_on_btrfs() {
    live_on(FsKind::Btrfs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_copies_share_their_blocks_where_the_pool_can() {
    for (pool, shares) in [(FsKind::Ext4, false), (FsKind::Xfs, true), (FsKind::Btrfs, true)] {
        let Some(real) = Real::start(pool).await else { return };
        let (from, to) = (real.disk().join("from"), real.disk().join("to"));
        fs::write(&from, noise(3)).expect("there is room");

        let copied = real.host.copy_file(&from, &to, &Silent).await.expect("a copy");

        assert_eq!(copied.shared, shares, "on {pool}");
        assert!(fs::read(&to).expect("a copy") == noise(3), "on {pool}: other bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_a_full_pool_is_refused_before_anything_is_made() {
    for pool in FsKind::ALL {
        let Some(real) = Real::start(pool).await else { return };
        real.create("first", ByteSize::gib(2), FsKind::Ext4).await.expect("there is room");
        let before = real.pool();

        let refused = real.create("second", ByteSize::gib(2), FsKind::Ext4).await;
        let grown = real.expand("first", ByteSize::gib(8)).await;

        for error in [refused.map(drop).expect_err("too large"), grown.expect_err("too large")] {
            assert_eq!(error.kind(), Kind::NoSpace, "on {pool}: {error:?}");
        }
        assert_eq!(real.pool(), before, "on {pool}: something was made");
        assert_eq!(real.show("second").await.expect_err("no record").kind(), Kind::NotFound);
        assert_eq!(real.show("first").await.expect("it is there").size, ByteSize::gib(2));
        real.delete("first").await.expect("it is not used");
        real.assert_empty().await;
    }
}

/// Something that a device may hold and that nobody may format.
enum Dirt {
    /// Bytes at an offset; from the end where it is negative.
    Bytes(i64, Vec<u8>),
    /// A file system that somebody else made.
    Foreign(FsKind),
    /// A partition table by sfdisk.
    Table(&'static str),
}

impl Dirt {
    async fn put(&self, real: &Real, image: &Path) {
        let run = async |tool: Tool| {
            let ended = real.host.run(&tool).await.expect("the program runs");
            ended.ok().expect("the program does its work");
        };
        match self {
            Self::Bytes(offset, bytes) => {
                let mut file = fs::File::options().write(true).open(image).expect("an image");
                let at = match u64::try_from(*offset) {
                    Ok(offset) => SeekFrom::Start(offset),
                    Err(_) => SeekFrom::End(*offset),
                };
                file.seek(at).and_then(|_| file.write_all(bytes)).expect("room");
                file.sync_all().expect("sync");
            }
            Self::Foreign(fs) => {
                let force = if *fs == FsKind::Ext4 { "-F" } else { "-f" };
                run(Tool::new(format!("mkfs.{fs}")).args(["-q", force]).arg(image)).await;
            }
            Self::Table(label) => {
                let mut tool = Tool::new("sfdisk").args(["--label", label]).arg(image);
                tool.stdin = Some(hawser_core::secret::Secret::new("size=8MiB\n"));
                run(tool).await;
            }
        }
    }
}

/// Every kind of dirt, by name.
fn dirt() -> Vec<(&'static str, Dirt)> {
    let mut boot_record = vec![0; 512];
    boot_record[450] = 0x83;
    boot_record[510..].copy_from_slice(&[0x55, 0xaa]);
    vec![
        ("an ext4 of somebody else", Dirt::Foreign(FsKind::Ext4)),
        ("an xfs of somebody else", Dirt::Foreign(FsKind::Xfs)),
        ("a btrfs of somebody else", Dirt::Foreign(FsKind::Btrfs)),
        ("a DOS partition table", Dirt::Table("dos")),
        ("a GPT", Dirt::Table("gpt")),
        ("a bare boot record", Dirt::Bytes(0, boot_record)),
        ("an LVM label", Dirt::Bytes(512, b"LABELONE\x01\0\0\0\0\0\0\0".to_vec())),
        ("one byte at the start", Dirt::Bytes(0, vec![1])),
        ("text in the first mebibyte", Dirt::Bytes(700_000, b"my diary".to_vec())),
        ("one byte at the very end", Dirt::Bytes(-1, vec![1])),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_a_device_that_holds_something_is_never_formatted() {
    let Some(real) = Real::start(FsKind::Xfs).await else { return };
    if !has("sfdisk") {
        return;
    }
    for (what, dirt) in dirt() {
        let made = real.create("data", ByteSize::mib(320), FsKind::Ext4).await.expect("room");
        let image = real.image(&made);
        dirt.put(&real, &image).await;
        let before = fs::read(&image).expect("an image");

        let refused = real.mount("data").await;

        let error = refused.expect_err(what);
        assert_eq!(error.kind(), Kind::Precondition, "{what}: {error:?}");
        assert!(fs::read(&image).expect("an image") == before, "{what}: the device was changed");
        let now = real.show("data").await.expect("it is there");
        assert!(now.publications.is_empty(), "{what}: {now:?}");
        assert!(!real.folder("data").exists(), "{what}: a folder was left");
        real.delete("data").await.expect("it is not used");
    }
    real.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_a_formatted_volume_whose_content_was_replaced_is_not_mounted() {
    let Some(real) = Real::start(FsKind::Xfs).await else { return };
    let made = real.create("data", ByteSize::mib(320), FsKind::Ext4).await.expect("room");
    real.mount("data").await.expect("it is new");
    real.unmount("data").await.expect("it is mounted");
    let image = real.image(&made);
    let other = Dirt::Foreign(FsKind::Ext4);
    let wiped = Dirt::Bytes(0, vec![0; 8 << 20]);

    for (what, dirt) in [("another file system", other), ("nothing any more", wiped)] {
        dirt.put(&real, &image).await;
        let before = fs::read(&image).expect("an image");

        let error = real.mount("data").await.expect_err(what);

        assert_eq!(error.kind(), Kind::Precondition, "{what}: {error:?}");
        assert!(fs::read(&image).expect("an image") == before, "{what}: the device was changed");
    }
    real.delete("data").await.expect("it is not used");
    real.assert_empty().await;
}
