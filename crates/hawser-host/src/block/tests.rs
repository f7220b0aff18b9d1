use std::path::{Path, PathBuf};

use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{Arg, Content, Tool, ToolOutput};
use hawser_core::{Change, Classify, Kind, Outcome};
use proptest::prelude::*;
use uuid::Uuid;

use super::probe::{Signature, regions, signature};
use super::*;

fn said(code: i32, stdout: &str, stderr: &str) -> ToolOutput {
    ToolOutput {
        program: "blkid".into(),
        code: Some(code),
        stdout: stdout.into(),
        stderr: stderr.into(),
    }
}

fn read(code: i32, stdout: &str, stderr: &str) -> Result<Signature, BlockError> {
    signature(Path::new("/dev/loop0"), &said(code, stdout, stderr))
}

#[test]
fn answers_of_blkid_are_read() {
    let ext4 = read(0, include_str!("../../testdata/corpus/blkid/ext4"), "").unwrap();
    let uuid = "0f5b3e62-7c3f-4a39-93c5-0d5e6f2b8a11".parse().ok();
    assert_eq!(ext4, Signature::Found(Content::Filesystem { fs: FsKind::Ext4, uuid }));

    let lvm = read(0, include_str!("../../testdata/corpus/blkid/lvm"), "").unwrap();
    assert_eq!(lvm, Signature::Found(Content::Other("LVM2_member".into())));

    let gpt = read(0, include_str!("../../testdata/corpus/blkid/gpt"), "").unwrap();
    assert_eq!(gpt, Signature::Found(Content::Other("gpt".into())));
}

#[test]
fn only_silence_means_nothing_found() {
    assert_eq!(read(2, "", "").unwrap(), Signature::Nothing);

    let complaint = read(2, "", "blkid: error: /dev/loop0: Input/output error").unwrap_err();
    assert_eq!(complaint.kind(), Kind::Unavailable);
    assert_eq!(read(8, "", "").unwrap_err().kind(), Kind::Precondition);
    assert!(read(4, "", "").is_err());
    assert!(read(0, "", "").is_err(), "success without a word is no answer");
    assert!(read(0, "garbage", "").is_err());
    let killed = ToolOutput { code: None, ..said(0, "TYPE=ext4", "") };
    assert!(signature(Path::new("/dev/loop0"), &killed).is_err());
}

proptest! {
    #[test]
    fn no_answer_of_blkid_makes_it_panic_or_blank(code in 0..10, text in "\\PC*") {
        let answer = read(code, &text, "");
        if code != 2 {
            prop_assert!(!matches!(answer, Ok(Signature::Nothing)));
        }
    }

    #[test]
    fn what_is_read_lies_on_the_device_and_has_both_ends(size in 1_u64..1 << 45) {
        let regions = regions(size);
        prop_assert_eq!(regions[0].0, 0);
        let last = regions[regions.len() - 1];
        prop_assert!(last.1 >= size && last.1 < size + 4096);
        for (from, to) in regions {
            prop_assert!(from < to && from < size && from % 4096 == 0 && to % 4096 == 0);
        }
    }

    #[test]
    fn no_superblock_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        let _ = grow::Superblock::parse(&bytes);
    }
}

#[test]
fn a_superblock_tells_the_size() {
    let mut bytes = vec![0; 1024];
    bytes[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
    bytes[0x4..0x8].copy_from_slice(&7_u32.to_le_bytes());
    bytes[0x18..0x1c].copy_from_slice(&2_u32.to_le_bytes());
    bytes[0x150..0x154].copy_from_slice(&1_u32.to_le_bytes());

    assert_eq!(
        grow::Superblock::parse(&bytes),
        Some(grow::Superblock { blocks: 7, block_size: 4096 })
    );
    bytes[0x60] = 0x80;
    assert_eq!(grow::Superblock::parse(&bytes).unwrap().blocks, (1 << 32) + 7);
}

#[test]
fn superblocks_that_mke2fs_wrote_are_read() {
    let wide = include_bytes!("../../testdata/corpus/ext4_superblock/ext4-4k");
    let narrow = include_bytes!("../../testdata/corpus/ext4_superblock/ext4-1k-32bit");
    let superblock = |blocks, block_size| Some(grow::Superblock { blocks, block_size });

    assert_eq!(grow::Superblock::parse(wide), superblock(8192, 4096));
    assert_eq!(grow::Superblock::parse(narrow), superblock(16384, 1024));
}

#[test]
fn exit_codes_of_e2fsck_are_told_apart() {
    let device = Path::new("/dev/loop0");
    let verdict = |code| fsck::verdict(device, FsKind::Ext4, &said(code, "", ""));

    assert_eq!(verdict(0).unwrap(), Change::Already(()));
    for code in [1, 2, 3] {
        assert_eq!(verdict(code).unwrap(), Change::Made(()));
    }
    for code in [4, 5, 8, 12] {
        assert_eq!(verdict(code).unwrap_err().kind(), Kind::Precondition);
    }
    for code in [16, 32, 128] {
        assert_eq!(verdict(code).unwrap_err().kind(), Kind::Unavailable);
    }
}

#[test]
fn a_tool_that_failed_has_answered() {
    let device = PathBuf::from("/dev/loop7");
    let damaged = fsck::verdict(&device, FsKind::Ext4, &said(4, "", "bad")).unwrap_err();
    let source = said(1, "", "bad").failed();
    let grown =
        BlockError::Grow { fs: FsKind::Xfs, device: device.clone(), source: source.clone() };
    let made = BlockError::Make { fs: FsKind::Xfs, device, source };

    for error in [damaged, grown, made] {
        assert_eq!(error.outcome(), Outcome::Nothing, "{error}");
    }
}

fn words(tool: &Tool) -> Vec<String> {
    tool.args
        .iter()
        .map(|arg| match arg {
            Arg::Plain(text) => text.to_string_lossy().into_owned(),
            Arg::Hidden(_) => "***".into(),
        })
        .collect()
}

#[test]
fn every_mkfs_sets_the_uuid_and_discards_nothing() {
    let uuid = Uuid::new_v4();
    for (fs, keep) in [
        (FsKind::Ext4, "nodiscard,lazy_itable_init=1,lazy_journal_init=1"),
        (FsKind::Xfs, "-K"),
        (FsKind::Btrfs, "-K"),
    ] {
        let words = words(&mkfs::command(Path::new("/dev/loop0"), fs, uuid));
        assert!(words.iter().any(|word| word.contains(&uuid.to_string())), "{fs}");
        assert!(words.iter().any(|word| word == keep), "{fs}");
        assert_eq!(words.last().map(String::as_str), Some("/dev/loop0"));
    }
}

hawser_testkit::fuzz_corpus!(corpus, "blkid", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let answer = read(0, &text, "");
    assert!(!matches!(answer, Ok(Signature::Nothing)), "no answer to success means blank");
});

hawser_testkit::fuzz_corpus!(superblock, "ext4_superblock", |bytes| {
    if let Some(found) = grow::Superblock::parse(bytes) {
        assert_eq!(bytes[0x38..0x3a], [0x53, 0xef], "no file system was taken for one");
        assert!((1024..=65536).contains(&found.block_size), "{found:?}");
    }
});
