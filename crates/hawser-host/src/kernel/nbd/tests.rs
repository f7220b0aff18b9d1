use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use rustix::io::Errno;

use super::message::{Answer, answers, generic, request};
use super::socket::{collect, family_id};
use super::*;

/// One message as the kernel sends it.
fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message::HEADER + payload.len()).unwrap();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend([0; 2]);
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(payload);
    message.resize(message.len().next_multiple_of(4), 0);
    message
}

fn acknowledged(sequence: u32, error: i32) -> Vec<u8> {
    message(2, sequence, &[&error.to_ne_bytes()[..], &[0; 16]].concat())
}

/// A payload of generic netlink with these attributes.
fn payload(command: u8, attributes: &Attributes) -> Vec<u8> {
    request(0, 0, command, attributes)[message::HEADER..].to_vec()
}

fn attach(sockets: Vec<OwnedFd>) -> NbdAttach {
    NbdAttach {
        sockets,
        size: 1 << 30,
        block_size: 4096,
        server_flags: 0x103,
        timeout: Duration::from_millis(1500),
        dead_connection_timeout: Duration::from_secs(60),
        backend: "vol-1".into(),
    }
}

fn number(value: &[u8]) -> u64 {
    match value.len() {
        4 => u64::from(u32::from_ne_bytes(value.try_into().unwrap())),
        _ => u64::from_ne_bytes(value.try_into().unwrap()),
    }
}

#[test]
fn a_connect_names_everything_but_an_index() {
    let (one, two) = UnixStream::pair().unwrap();
    let (one, two): (OwnedFd, OwnedFd) = (one.into(), two.into());
    let numbers = [one.as_raw_fd(), two.as_raw_fd()].map(|fd| u64::from(fd.cast_unsigned()));

    let whole = request(27, 5, command::CONNECT, &connect_attributes(&attach(vec![one, two])));

    assert_eq!(u32::from_ne_bytes(whole[..4].try_into().unwrap()) as usize, whole.len());
    assert_eq!(u16::from_ne_bytes(whole[4..6].try_into().unwrap()), 27);
    assert_eq!(u16::from_ne_bytes(whole[6..8].try_into().unwrap()), 5, "a request, with an answer");
    assert_eq!(whole[16..20], [command::CONNECT, 1, 0, 0]);
    let attributes = &whole[20..];
    assert_eq!(attribute(attributes, attr::INDEX), None);
    let value = |kind| number(attribute(attributes, kind).unwrap());
    assert_eq!(value(attr::SIZE_BYTES), 1 << 30);
    assert_eq!(value(attr::BLOCK_SIZE_BYTES), 4096);
    assert_eq!(value(attr::TIMEOUT), 2, "a part of a second is one, zero would be for ever");
    assert_eq!(value(attr::DEAD_CONN_TIMEOUT), 60);
    assert_eq!(value(attr::SERVER_FLAGS), 0x103);
    assert_eq!(attribute(attributes, attr::BACKEND_IDENTIFIER), Some(&b"vol-1\0"[..]));
    let list = attribute(attributes, attr::SOCKETS).unwrap();
    assert_eq!(list.len(), 24, "two items of an attribute in an attribute");
    for (item, expected) in list.chunks_exact(12).zip(numbers) {
        let item = attribute(item, attr::SOCK_ITEM).unwrap();
        assert_eq!(number(attribute(item, attr::SOCK_FD).unwrap()), expected);
    }
}

#[test]
fn the_index_is_found_in_the_answer_to_a_connect_only() {
    let mut attributes = Attributes::default();
    attributes.text(attr::BACKEND_IDENTIFIER, "x").u32(attr::INDEX, 12);

    assert_eq!(index(&payload(command::CONNECT, &attributes)), Some(12));
    assert_eq!(index(&payload(command::DISCONNECT, &attributes)), None);
    assert_eq!(index(&payload(command::CONNECT, &Attributes::default())), None);
    assert_eq!(index(&[]), None);
}

#[test]
fn answers_of_one_datagram_are_told_apart() {
    let datagram = [message(30, 4, b"abcde"), message(30, 3, b"old"), acknowledged(4, 0)].concat();

    let read: Vec<_> = answers(&datagram, 4).collect();

    let expected =
        [Answer::Payload(b"abcde"), Answer::Other, Answer::End(Ok(()))].map(Some).to_vec();
    assert_eq!(read, expected);
    let refused = acknowledged(4, -16);
    assert_eq!(answers(&refused, 4).collect::<Vec<_>>(), [Some(Answer::End(Err(Errno::BUSY)))]);
}

#[test]
fn a_message_that_is_longer_than_its_datagram_is_refused() {
    let mut long = message(30, 4, b"abcd");
    long[0] = 200;
    let mut short = message(30, 4, b"abcd");
    short[0] = 3;

    for bytes in [long, short, vec![1, 2, 3]] {
        assert_eq!(answers(&bytes, 4).collect::<Vec<_>>(), [None]);
    }
    assert_eq!(answers(&[], 4).count(), 0);
}

#[test]
fn answers_of_the_kernel_are_collected_to_their_end() {
    let connected = include_bytes!("../../../testdata/corpus/genetlink/nbd-connected-12");
    let absent = include_bytes!("../../../testdata/corpus/genetlink/no-family");
    let mut payloads = Vec::new();

    assert_eq!(collect(connected, 1, &mut payloads), Ok(true));
    assert_eq!(payloads.iter().find_map(|payload| index(payload)), Some(12));
    assert_eq!(collect(connected, 2, &mut Vec::new()), Ok(false), "another's answer");
    let refused = Err(NetlinkError::Refused(Errno::NOENT));
    assert_eq!(collect(absent, 1, &mut Vec::new()), refused);
}

#[test]
fn an_error_number_that_no_kernel_has_ends_in_no_panic() {
    for number in [1, -4096, -70_000, i32::MIN] {
        let answered = collect(&acknowledged(4, number), 4, &mut Vec::new());
        assert!(matches!(answered, Err(NetlinkError::Nonsense(_))), "{number}: {answered:?}");
    }
    let refused = collect(&acknowledged(4, -4095), 4, &mut Vec::new());
    assert_eq!(refused, Err(NetlinkError::Refused(Errno::from_raw_os_error(4095))));
}

#[test]
fn families_are_found_by_name_through_a_real_socket() {
    let mut netlink = Netlink::open(Duration::from_secs(10)).unwrap();

    assert_eq!(netlink.family("nlctrl"), Ok(16));
    let absent = netlink.family("hawser-none");
    assert_eq!(absent, Err(NetlinkError::NoFamily(Errno::NOENT)));
    assert_eq!(netlink.family("nlctrl"), Ok(16), "an error leaves the socket usable");
}

#[tokio::test]
async fn a_host_without_the_driver_says_what_is_missing() {
    if Netlink::open(Duration::from_secs(10)).unwrap().family(FAMILY).is_ok() {
        hawser_testkit::skip("needs a kernel without the NBD driver");
        return;
    }
    let nbd = LinuxNbd::new(Workers::new(2), Duration::from_secs(10));

    let errors = [
        nbd.attach(attach(Vec::new())).await.map(drop).unwrap_err(),
        nbd.reconfigure(3, 1 << 20, Vec::new()).await.unwrap_err(),
        nbd.detach(3).await.unwrap_err(),
    ];

    for error in errors {
        assert_eq!(error.errno(), Some(Errno::NOENT.raw_os_error()), "{error:?}");
        assert!(error.to_string().contains("modprobe nbd"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_of_the_kernel_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..128),
        length in 0_u32..128,
        wanted in 0_u16..16,
    ) {
        let read = |bytes: &[u8]| {
            for answer in answers(bytes, 0) {
                if let Some(Answer::Payload(payload)) = answer {
                    let _ = index(payload);
                }
            }
        };
        read(&bytes);
        let _ = attribute(&bytes, wanted);
        let _ = generic(&bytes);
        let mut bytes = bytes;
        if bytes.len() >= 12 {
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes[8..12].copy_from_slice(&[0; 4]);
            read(&bytes);
        }
    }
}

hawser_testkit::fuzz_corpus!(corpus, "genetlink", |bytes| {
    let mut payloads = Vec::new();
    let _ = collect(bytes, 1, &mut payloads);
    for payload in &payloads {
        let _ = family_id(payload);
        let named = index(payload).is_none() || payload[0] == command::CONNECT;
        assert!(named, "a device in the answer to command {}", payload[0]);
    }
});
