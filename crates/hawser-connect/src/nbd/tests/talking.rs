//! The handshake with servers of every kind.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use super::*;
use handshake::{Export, Talk};
use wire::{Ask, Reply};

/// Says this, and listens to nothing.
struct Line {
    says: io::Cursor<Vec<u8>>,
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.says.read(bytes)
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn dial(server: &Server) -> UnixStream {
    UnixStream::connect(server.socket()).unwrap()
}

fn take(manners: Manners) -> Result<Export, NbdError> {
    let server = Server::new(manners);
    let taken = Talk::new(dial(&server), "there", "vol1").take();
    taken.map(|(_, export)| export)
}

#[test]
fn every_kind_of_newstyle_server_is_understood() {
    let plain = Manners::default();
    let no_go = Manners { knows_go: false, ..plain.clone() };
    let zeroes = Manners { handshake: wire::FIXED_NEWSTYLE, ..no_go.clone() };
    let not_fixed = Manners { handshake: 0, ..no_go.clone() };

    for manners in [plain, no_go, zeroes, not_fixed] {
        let export = take(manners.clone()).unwrap_or_else(|e| panic!("{manners:?}: {e}"));
        assert_eq!((export.size, export.flags), (manners.size, manners.flags));
        let server = Server::new(manners.clone());
        let learnt = Talk::new(dial(&server), "there", "vol1").learn();
        assert_eq!(learnt.unwrap(), export, "{manners:?}");
    }
}

#[test]
fn block_sizes_are_heard() {
    let manners = Manners { blocks: Some([4096, 4096, 65536]), ..Manners::default() };

    let export = take(manners).unwrap();

    assert_eq!((export.least_block, export.longest_request), (4096, 65536));
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let plain = Manners::default();
    let (huge, longest) = (1 << 63, |longest| Some([1, 4096, longest]));
    for manners in [
        Manners { size: huge, ..plain.clone() },
        Manners { size: huge, knows_go: false, ..plain.clone() },
        Manners { blocks: longest(0), ..plain.clone() },
        Manners { blocks: longest(4095), ..plain.clone() },
    ] {
        let error = take(manners.clone()).unwrap_err();
        assert!(matches!(error, NbdError::Nonsense { .. }), "{manners:?}: {error:?}");
        let learnt = Talk::new(dial(&Server::new(manners)), "there", "vol1").learn();
        assert!(matches!(learnt, Err(NbdError::Nonsense { .. })), "{learnt:?}");
    }
    assert!(take(Manners { size: 512, blocks: longest(512), ..plain }).is_ok(), "a short export");
}

#[test]
fn conversations_as_servers_hold_them_are_understood() {
    let take = |says: &[u8]| {
        let line = Line { says: io::Cursor::new(says.to_vec()) };
        Talk::new(line, "there", "vol1").take().map(|(_, export)| (export.size, export.flags))
    };
    let sample = |name: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/corpus");
        std::fs::read(folder.join("nbd_handshake").join(name)).unwrap()
    };

    assert_eq!(take(&sample("go-qemu")).unwrap(), (8 << 20, 0x18f));
    assert_eq!(take(&sample("go-nbd-server")).unwrap(), (1 << 30, 0x16d));
    assert_eq!(take(&sample("go-unknown-then-by-name")).unwrap(), (8 << 20, 5));
    assert_eq!(take(&sample("by-name-with-zeroes")).unwrap(), (8 << 20, 3));
    assert!(matches!(take(&sample("go-tls-required")), Err(NbdError::TlsRequired { .. })));
    assert!(matches!(take(&sample("old-style")), Err(NbdError::OldStyle { .. })));
    for name in ["go-without-size", "more-than-can-be", "another-protocol"] {
        assert!(matches!(take(&sample(name)), Err(NbdError::Nonsense { .. })), "{name}");
    }
    let whole = sample("go-qemu");
    for length in 0..whole.len() {
        assert!(take(&whole[..length]).is_err(), "{length} bytes were enough");
    }
}

#[test]
fn refusals_keep_their_meaning() {
    for (number, reason, kind) in [
        (2, Reason::AuthFailed, Kind::Denied),
        (3, Reason::TargetUnreachable, Kind::Unavailable),
        (5, Reason::UnsupportedProtocol, Kind::Unsupported),
        (6, Reason::TargetNotFound, Kind::NotFound),
        (7, Reason::TargetUnreachable, Kind::Unavailable),
        (4711, Reason::TargetUnreachable, Kind::Unavailable),
    ] {
        let manners = Manners { refusal: Some(number), ..Manners::default() };
        let error = Error::from(take(manners).unwrap_err());
        assert_eq!((error.reason(), error.kind()), (Some(reason), kind), "{number}: {error:?}");
        assert!(!error.sentence().contains('\x07'), "a stranger's bell");
    }
}

#[test]
fn an_export_that_is_not_there_is_not_found_by_old_and_new_servers() {
    for knows_go in [true, false] {
        let manners = Manners { exports: vec!["other".into()], knows_go, ..Manners::default() };
        let error = Error::from(take(manners).unwrap_err());
        assert_eq!(error.reason(), Some(Reason::TargetNotFound), "{error:?}");
        assert!(error.sentence().contains("vol1"), "{error:?}");
    }
}

#[test]
fn what_is_no_newstyle_server_is_refused() {
    let greetings: [&[u8]; 5] = [
        b"",
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        b"NBDMAGICnot what it should be",
        b"NBDMAGICIHAVEOPT",
        b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53 and more of the old style",
    ];
    for greeting in greetings {
        let manners = Manners { greeting: Some(greeting.to_vec()), ..Manners::default() };
        let error = take(manners).unwrap_err();
        let old = matches!(error, NbdError::OldStyle { .. });
        assert_eq!(old, greeting.ends_with(b"old style"), "{error:?}");
    }
}

#[test]
fn an_option_has_the_bytes_of_the_protocol() {
    let mut expected = b"IHAVEOPT".to_vec();
    expected.extend([0, 0, 0, 7, 0, 0, 0, 12, 0, 0, 0, 4]);
    expected.extend(b"vol1");
    expected.extend([0, 1, 0, 3]);

    assert_eq!(Ask::Go.option("vol1"), expected);
    assert_eq!(wire::end_of_transmission().len(), 28);
}

proptest! {
    #[test]
    fn any_bytes_are_a_reply_or_refused(kind: u32, head: [u8; 20], data: Vec<u8>) {
        let _ = wire::reply_head(&head, Ask::Go);
        if let Ok(Reply::Refused { message, .. }) = wire::reply(kind, &data) {
            prop_assert!(message.chars().count() <= 200);
        }
        let _ = wire::reply(3, &data);
    }

    #[test]
    fn any_conversation_ends(bytes: Vec<u8>) {
        let greeting = [b"NBDMAGICIHAVEOPT\0\x03".as_slice(), &bytes].concat();
        let line = Line { says: io::Cursor::new(greeting) };
        let _ = Talk::new(line, "there", "vol1").take().map(|(_, export)| export);
    }
}

hawser_testkit::fuzz_corpus!(conversation, "nbd_handshake", |bytes| {
    let line = || Line { says: io::Cursor::new(bytes.to_vec()) };
    let taken = Talk::new(line(), "there", "vol1").take().map(|(_, export)| export);
    let learnt = Talk::new(line(), "there", "vol1").learn();
    for export in [taken, learnt].into_iter().flatten() {
        assert!(bytes.starts_with(b"NBDMAGICIHAVEOPT"), "no server was taken for one");
        assert!(i64::try_from(export.size).is_ok(), "{export:?}");
    }
});
