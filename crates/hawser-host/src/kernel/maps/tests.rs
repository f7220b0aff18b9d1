use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Instant;

use proptest::prelude::*;

use super::multipathd::{AskError, connect, exchange, frame, text};
use super::request::{is_cut_short, targets};
use super::*;

/// An answer of the kernel to `DM_TABLE_STATUS`: start, length, type and parameters of each target.
fn answer(lines: &[(u64, u64, &str, &str)]) -> Vec<u8> {
    let mut data = Vec::new();
    for (start, length, kind, parameters) in lines {
        let at = data.len();
        let whole = (layout::SPEC + parameters.len() + 1).next_multiple_of(8);
        data.resize(at + whole, 0);
        let next = u32::try_from(at + whole).unwrap();
        data[at..at + 8].copy_from_slice(&start.to_ne_bytes());
        data[at + 8..at + 16].copy_from_slice(&length.to_ne_bytes());
        data[at + layout::SPEC_NEXT..][..4].copy_from_slice(&next.to_ne_bytes());
        data[at + layout::SPEC_TYPE..][..kind.len()].copy_from_slice(kind.as_bytes());
        data[at + layout::SPEC..][..parameters.len()].copy_from_slice(parameters.as_bytes());
    }
    let mut answer = Request::new("mpatha", 0).unwrap().buffer(layout::HEADER);
    answer.extend(data);
    let size = u32::try_from(answer.len()).unwrap();
    answer[layout::DATA_SIZE..][..4].copy_from_slice(&size.to_ne_bytes());
    let count = u32::try_from(lines.len()).unwrap();
    answer[layout::TARGET_COUNT..][..4].copy_from_slice(&count.to_ne_bytes());
    // What was not filled stays behind the answer.
    answer.resize(answer.len() + 512, 0);
    answer
}

#[test]
fn targets_are_read_in_order() {
    let status = "2 0 1 0 1 1 A 0 1 2 8:0 A 0 0 1";
    let answer = answer(&[(0, 2048, "linear", "8:0 0"), (2048, 4096, "multipath", status)]);

    let targets = targets(&answer).unwrap();

    assert_eq!(targets.len(), 2);
    assert_eq!((targets[0].start, targets[0].length), (0, 2048));
    assert_eq!((&*targets[0].kind, &*targets[0].parameters), ("linear", "8:0 0"));
    assert_eq!((targets[1].start, targets[1].length), (2048, 4096));
    assert_eq!((&*targets[1].kind, &*targets[1].parameters), ("multipath", status));
}

#[test]
fn answers_as_the_kernel_lays_them_out_are_read() {
    let status = include_bytes!("../../../testdata/corpus/dm_table_status/multipath-status");
    let table = include_bytes!("../../../testdata/corpus/dm_table_status/two-linear-table");

    let [map] = &targets(status).unwrap()[..] else { panic!("one target") };
    let [first, second] = &targets(table).unwrap()[..] else { panic!("two targets") };

    assert_eq!((map.length, &*map.kind), (16384, "multipath"));
    assert!(map.parameters.starts_with("2 0 1 0 ") && map.parameters.ends_with(" F 2 0 1"));
    assert_eq!((first.start, &*first.parameters), (0, "8:0 2048"));
    assert_eq!((second.start, &*second.parameters), (2_097_152, "8:16 2048"));
}

#[test]
fn a_map_without_a_table_has_no_targets() {
    let told = include_bytes!("../../../testdata/corpus/dm_table_status/without-a-table");
    assert_eq!(targets(told).unwrap(), []);
    assert_eq!(targets(&answer(&[])).unwrap(), []);
}

#[test]
fn an_answer_that_leads_out_of_itself_is_refused() {
    let good = answer(&[(0, 8, "linear", "8:0 0"), (8, 8, "linear", "8:16 0")]);
    let second = |value: u32| {
        let mut bad = good.clone();
        let at = layout::HEADER + layout::SPEC_NEXT;
        bad[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        bad
    };

    for next in [0, 8, 39, u32::MAX] {
        assert!(targets(&second(next)).is_err(), "{next}");
    }
    assert!(targets(&good[..layout::HEADER + 20]).is_err());
    assert!(targets(&good[..20]).is_err());
}

#[test]
fn a_status_without_its_end_is_not_read_as_a_shorter_one() {
    let parameters = "2 0 1 0 1 1 A 0 1 2 8:0 A 0 0 1";
    let whole = answer(&[(0, 4096, "multipath", parameters)]);
    let end = layout::HEADER + layout::SPEC + parameters.len();

    for length in layout::HEADER..=end {
        let mut short = whole.clone();
        short[layout::DATA_SIZE..][..4].copy_from_slice(&(length as u32).to_ne_bytes());
        assert!(targets(&short).is_err(), "{length} bytes are said to be there");
        assert!(targets(&whole[..length]).is_err(), "{length} bytes are there");
    }
    // As the kernel counts: up to the NUL, whatever fills the rest.
    let mut exact = whole;
    exact[layout::DATA_SIZE..][..4].copy_from_slice(&(end as u32 + 1).to_ne_bytes());
    assert_eq!(targets(&exact).unwrap()[0].parameters, parameters);
}

#[test]
fn the_mark_of_a_full_buffer_is_seen() {
    let mut full = answer(&[]);
    assert!(!is_cut_short(&full));

    full[layout::FLAGS..][..4].copy_from_slice(&layout::FLAG_FULL.to_ne_bytes());

    assert!(is_cut_short(&full));
}

#[test]
fn a_request_names_its_map_and_its_message() {
    let request = Request::new("mpatha", layout::FLAG_NO_FLUSH).unwrap();

    let message = request.message("fail_if_no_path").unwrap();

    assert_eq!(message[..4], 4_u32.to_ne_bytes());
    assert_eq!(message[layout::NAME..][..7], *b"mpatha\0");
    assert_eq!(message[layout::FLAGS..][..4], (1_u32 << 11).to_ne_bytes());
    assert_eq!(message[layout::HEADER..], *b"\0\0\0\0\0\0\0\0fail_if_no_path\0");
    assert_eq!(request.buffer(1000).len(), 1000);
}

#[test]
fn names_that_no_map_has_are_never_sent() {
    for name in ["", "a\0b", "a/b", &"x".repeat(128)] {
        assert_eq!(Request::new(name, 0).unwrap_err(), Errno::INVAL, "{name:?}");
    }
    assert!(Request::new(&"x".repeat(127), 0).is_ok());
    assert!(Request::new("x", 0).unwrap().message("a\0b").is_err());
}

#[tokio::test]
async fn a_map_that_is_not_there_is_told_by_a_number() {
    let maps = LinuxMaps::new(Workers::new(2), Duration::from_secs(10));

    let answers = [
        maps.status("hawser-no-such-map").await.map(drop),
        maps.table("hawser-no-such-map").await.map(drop),
        maps.message("hawser-no-such-map", "fail_if_no_path").await,
        maps.remove("hawser-no-such-map").await,
    ];

    for answer in answers {
        let error = answer.unwrap_err();
        // Without the driver or the right to use it, the same call has another number.
        let numbers = [Errno::NXIO, Errno::NOENT, Errno::NODEV, Errno::ACCESS, Errno::PERM];
        let errno = error.errno().map(Errno::from_raw_os_error).unwrap();
        assert!(numbers.contains(&errno), "{error:?}");
        assert!(error.to_string().contains("hawser-no-such-map"), "{error}");
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// A daemon that reads one command and answers these bytes, then hangs up.
fn daemon(answer: Vec<u8>) -> (UnixStream, std::thread::JoinHandle<String>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut length = [0; size_of::<usize>()];
        theirs.read_exact(&mut length).unwrap();
        let mut command = vec![0; usize::from_ne_bytes(length)];
        theirs.read_exact(&mut command).unwrap();
        // It may have been hung up on; that is what some tests are about.
        let _ = theirs.write_all(&answer);
        text(&command)
    });
    (ours, thread)
}

fn framed(text: &str) -> Vec<u8> {
    frame(text).unwrap()
}

#[test]
fn a_command_is_sent_and_its_answer_read() {
    let (socket, daemon) = daemon(framed("ok\n"));

    let answer = exchange(&socket, "show status", soon()).unwrap();

    assert_eq!(answer, "ok\n");
    assert_eq!(daemon.join().unwrap(), "show status");
}

#[test]
fn an_answer_that_makes_no_sense_is_told_as_such() {
    let length = |length: usize| length.to_ne_bytes().to_vec();
    let cases = [
        Vec::new(),
        vec![1, 2, 3],
        length(0),
        length(usize::MAX),
        length((16 << 20) + 1),
        [length(100), b"too short".to_vec()].concat(),
    ];
    for bytes in cases {
        let (socket, daemon) = daemon(bytes.clone());
        let answer = exchange(&socket, "show status", soon());
        assert!(matches!(answer, Err(AskError::Nonsense(_))), "{bytes:?}: {answer:?}");
        daemon.join().unwrap();
    }
}

#[test]
fn a_daemon_that_says_nothing_is_waited_for_until_the_deadline() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let start = Instant::now();

    let answer = exchange(&ours, "show status", start + Duration::from_millis(50));

    let Err(AskError::Io(error)) = answer else { panic!("{answer:?}") };
    assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()), "{error:?}");
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_first_socket_at_which_somebody_listens_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| SocketAddr::from_pathname(folder.path().join(name));
    // Nobody listens here any more.
    drop(UnixListener::bind(folder.path().join("stale")).unwrap());

    let nobody = connect([at("absent"), at("stale")].into_iter());
    let _listener = UnixListener::bind(folder.path().join("live")).unwrap();
    let somebody = connect([at("absent"), at("stale"), at("live")].into_iter());

    let Err(AskError::Io(error)) = nobody else { panic!("{nobody:?}") };
    assert_eq!(error.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    assert!(somebody.is_ok());
}

proptest! {
    #[test]
    fn no_answer_of_the_kernel_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..700),
        start in 0_u32..700,
        size in 0_u32..1000,
        count in 0_u32..8,
    ) {
        let _ = targets(&bytes);
        let mut bytes = bytes;
        if bytes.len() >= layout::HEADER {
            bytes[layout::DATA_START..][..4].copy_from_slice(&start.to_ne_bytes());
            bytes[layout::DATA_SIZE..][..4].copy_from_slice(&size.to_ne_bytes());
            bytes[layout::TARGET_COUNT..][..4].copy_from_slice(&count.to_ne_bytes());
            let _ = targets(&bytes);
            let _ = is_cut_short(&bytes);
        }
    }

    #[test]
    fn no_answer_of_the_daemon_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        length in 0_usize..64,
    ) {
        let _ = text(&bytes);
        let (socket, daemon) = daemon([length.to_ne_bytes().to_vec(), bytes].concat());
        let _ = exchange(&socket, "x", soon());
        drop(socket);
        daemon.join().unwrap();
    }
}

hawser_testkit::fuzz_corpus!(kernel, "dm_table_status", |bytes| {
    let _ = is_cut_short(bytes);
    if let Ok(targets) = targets(bytes) {
        let count = bytes[layout::TARGET_COUNT..].first_chunk().copied().map(u32::from_ne_bytes);
        assert_eq!(u32::try_from(targets.len()).ok(), count, "targets were made up or left out");
    }
});

hawser_testkit::fuzz_corpus!(daemon_frame, "multipathd_frame", |bytes| {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(bytes).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    if exchange(&ours, "show status", soon()).is_ok() {
        let (length, rest) = bytes.split_first_chunk().unwrap();
        assert!(rest.len() >= usize::from_ne_bytes(*length), "half an answer was taken for one");
    }
});
