use hawser_core::port::kernel::{KernelError, Register, Reservation, ReservationKind};
use proptest::prelude::*;
use rustix::io::Errno;

use crate::kernel::disk::scsi::{ScsiError, ask_inquiry, ask_reservation};
use crate::kernel::disk::sense::{ScsiFailure, Sense, verdict};
use crate::sys::scsi::ScsiAnswer;

fn good() -> ScsiAnswer {
    ScsiAnswer::default()
}

fn complaint(sense: &[u8]) -> ScsiAnswer {
    ScsiAnswer { status: 2, driver: 8, sense: sense.to_vec(), ..good() }
}

fn fixed(key: u8, code: u8, qualifier: u8) -> Vec<u8> {
    let mut sense = vec![0; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, key, 10, code, qualifier);
    sense
}

fn attention() -> ScsiFailure {
    verdict(&complaint(&fixed(6, 0x29, 0))).unwrap_err()
}

/// A page of vital product data with this many bytes of content.
fn page(number: u8, content: usize) -> Vec<u8> {
    let mut page = vec![0, number];
    page.extend(u16::try_from(content).unwrap().to_be_bytes());
    page.extend((0..content).map(|byte| byte as u8));
    page
}

/// What a device does with the length that it is asked for.
fn cut(data: &[u8], length: u16) -> Vec<u8> {
    data[..data.len().min(usize::from(length))].to_vec()
}

fn keys(generation: u32, keys: &[u64]) -> Vec<u8> {
    let mut data = generation.to_be_bytes().to_vec();
    data.extend((keys.len() as u32 * 8).to_be_bytes());
    data.extend(keys.iter().flat_map(|key| key.to_be_bytes()));
    data
}

fn held(generation: u32, by: Option<(u8, u64)>) -> Vec<u8> {
    let mut data = generation.to_be_bytes().to_vec();
    match by {
        None => data.extend([0; 4]),
        Some((kind, key)) => {
            data.extend(16_u32.to_be_bytes());
            data.extend(key.to_be_bytes());
            data.extend([0, 0, 0, 0, 0, kind, 0, 0]);
        }
    }
    data
}

#[test]
fn sense_is_read_in_both_formats() {
    let sense = Sense { key: 5, code: 0x24, qualifier: 1 };

    assert_eq!(Sense::parse(&fixed(5, 0x24, 1)), Some(sense));
    assert_eq!(Sense::parse(&[0x72, 5, 0x24, 1, 0, 0, 0, 0]), Some(sense));
    // A deferred one with the "valid" bit, cut before its codes.
    let short = Sense { key: 3, code: 0, qualifier: 0 };
    assert_eq!(Sense::parse(&[0xf1, 0, 3]), Some(short));
    assert_eq!(Sense::parse(&[0x70, 0]), None);
    assert_eq!(Sense::parse(&[0x7f, 0, 3]), None);
    assert_eq!(Sense::parse(&[]), None);
}

#[test]
fn every_way_to_fail_has_its_number() {
    let cases = [
        (complaint(&fixed(5, 0x24, 0)), Errno::INVAL),
        (complaint(&fixed(5, 0x20, 0)), Errno::OPNOTSUPP),
        (complaint(&fixed(5, 0x25, 0)), Errno::NODEV),
        (complaint(&fixed(2, 0x04, 0x0b)), Errno::AGAIN),
        (complaint(&fixed(4, 0x44, 0)), Errno::IO),
        (complaint(&[]), Errno::IO),
        (ScsiAnswer { status: 0x18, ..good() }, Errno::BADE),
        (ScsiAnswer { status: 0x08, ..good() }, Errno::AGAIN),
        (ScsiAnswer { status: 0x40, ..good() }, Errno::IO),
        (ScsiAnswer { host: 1, ..good() }, Errno::NOLINK),
        (ScsiAnswer { host: 3, ..good() }, Errno::TIMEDOUT),
        (ScsiAnswer { host: 7, ..good() }, Errno::IO),
        (ScsiAnswer { driver: 6, ..good() }, Errno::TIMEDOUT),
    ];
    for (answer, errno) in cases {
        let failure = verdict(&answer).unwrap_err();
        assert_eq!(failure.errno, errno, "{answer:?}");
        assert!(!failure.attention && !failure.words.is_empty(), "{failure:?}");
    }
    assert_eq!(verdict(&good()), Ok(()));
    assert_eq!(verdict(&complaint(&fixed(1, 0x17, 0))), Ok(()), "recovered by itself");
    assert!(attention().attention);
}

#[test]
fn a_long_page_is_asked_for_twice_and_comes_whole() {
    for content in [0, 1, 60, 248, 249, 4000, 65531] {
        let page = page(0x83, content);
        let mut asked = Vec::new();

        let answer = ask_inquiry(Some(0x83), |command, length| {
            assert_eq!(command[..3], [0x12, 1, 0x83]);
            assert_eq!(command[3..5], length.to_be_bytes());
            asked.push(length);
            Ok(Ok(cut(&page, length)))
        });

        assert_eq!(answer.unwrap(), page);
        assert_eq!(asked.len(), if content > 248 { 2 } else { 1 }, "{asked:?}");
    }
}

#[test]
fn what_lies_behind_a_page_is_left_out() {
    let mut data = page(0x80, 8);
    let page = data.clone();
    data.resize(252, 0xaa);

    assert_eq!(ask_inquiry(Some(0x80), |_, _| Ok(Ok(data.clone()))).unwrap(), page);
}

#[test]
fn the_standard_answer_comes_whole() {
    let mut standard = vec![0, 0, 6, 2, 91];
    standard.resize(96, b'x');

    let answer = ask_inquiry(None, |command, length| {
        assert_eq!(command[..3], [0x12, 0, 0]);
        Ok(Ok(cut(&standard, length)))
    });

    assert_eq!(answer.unwrap(), standard);
}

#[test]
fn a_page_that_is_another_or_cut_short_is_no_answer() {
    let other = ask_inquiry(Some(0x83), |_, _| Ok(Ok(page(0x80, 8))));
    let short = ask_inquiry(Some(0x83), |_, _| Ok(Ok(page(0x83, 600)[..300].to_vec())));
    let empty = ask_inquiry(Some(0x83), |_, _| Ok(Ok(Vec::new())));

    for answer in [other, short, empty] {
        assert!(matches!(answer, Err(ScsiError::Nonsense(_))), "{answer:?}");
    }
}

#[test]
fn a_device_may_tell_first_what_has_happened_to_it() {
    let mut left = 3;
    let answer = ask_inquiry(Some(0x80), |_, _| {
        if left > 0 {
            left -= 1;
            return Ok(Err(attention()));
        }
        Ok(Ok(page(0x80, 4)))
    });
    assert_eq!(answer.unwrap(), page(0x80, 4));

    let endless = ask_inquiry(Some(0x80), |_, _| Ok(Err(attention())));
    assert_eq!(endless, Err(ScsiError::Failed(attention())));
}

#[test]
fn a_refusal_keeps_its_number_and_says_the_sense() {
    let failure = verdict(&complaint(&fixed(5, 0x24, 0))).unwrap_err();

    let error = ScsiError::Failed(failure).about("INQUIRY of /dev/sda".into());

    assert_eq!(error.errno(), Some(Errno::INVAL.raw_os_error()));
    assert_eq!(error.to_string(), "INQUIRY of /dev/sda (sense 5/24/00)");
    let not_scsi = ScsiError::NotPassed(Errno::NOTTY).about("INQUIRY of /dev/loop0".into());
    assert_eq!(not_scsi.errno(), Some(Errno::NOTTY.raw_os_error()));
    let nonsense = ScsiError::Nonsense("x".into()).about("INQUIRY of /dev/sda".into());
    assert!(matches!(nonsense, KernelError::Nonsense { .. }));
}

/// Answers READ KEYS and READ RESERVATION.
fn asked(keys: &[u8], held: &[u8]) -> Result<Reservation, ScsiError> {
    ask_reservation(|command, length| {
        assert_eq!(command[0], 0x5e);
        assert_eq!(command[7..9], length.to_be_bytes());
        Ok(Ok(cut(if command[1] == 0 { keys } else { held }, length)))
    })
}

#[test]
fn registrations_and_the_holder_are_told() {
    let reservation = asked(&keys(7, &[0xa, 0xb, 0xa]), &held(7, Some((5, 0xa)))).unwrap();

    let expected = [(0xa, true), (0xb, false), (0xa, true)];
    assert_eq!(reservation.generation, 7);
    assert_eq!(reservation.held, Some(ReservationKind::WriteExclusiveRegistrants));
    assert_eq!(reservation.registered, expected.map(|(key, holder)| Register { key, holder }));
}

#[test]
fn a_device_without_registrations_is_free() {
    let free = Reservation { generation: 3, registered: Vec::new(), held: None };

    assert_eq!(asked(&keys(3, &[]), &held(3, None)).unwrap(), free);
}

#[test]
fn kinds_of_others_are_told_as_they_are() {
    let one = asked(&keys(1, &[1]), &held(1, Some((1, 1)))).unwrap();
    let access = asked(&keys(1, &[1, 2]), &held(1, Some((3, 2)))).unwrap();
    let all = asked(&keys(1, &[1, 2]), &held(1, Some((7, 0)))).unwrap();

    assert_eq!(one.held, Some(ReservationKind::WriteExclusive));
    assert_eq!(access.held, Some(ReservationKind::Other(3)));
    assert_eq!(all.held, Some(ReservationKind::Other(7)));
    assert!(all.registered.iter().all(|one| one.holder), "all registrants hold it");
}

#[test]
fn more_keys_than_fit_at_first_come_all() {
    let many: Vec<u64> = (1..=1000).collect();

    let reservation = asked(&keys(1, &many), &held(1, None)).unwrap();

    let got: Vec<u64> = reservation.registered.iter().map(|one| one.key).collect();
    assert_eq!(got, many);
}

#[test]
fn a_registration_between_the_questions_has_them_asked_again() {
    let mut generation = 4;
    let reservation = ask_reservation(|command, length| {
        let data = if command[1] == 0 {
            keys(generation, &[u64::from(generation)])
        } else {
            // One more host registers after the first READ KEYS.
            generation = 5;
            held(generation, None)
        };
        Ok(Ok(cut(&data, length)))
    });
    let reservation = reservation.unwrap();
    assert_eq!((reservation.generation, reservation.registered[0].key), (5, 5));

    let mut counter = 0;
    let endless = ask_reservation(|command, length| {
        counter += 1;
        let data = if command[1] == 0 { keys(counter, &[]) } else { held(counter, None) };
        Ok(Ok(cut(&data, length)))
    });
    assert!(matches!(endless, Err(ScsiError::Nonsense(_))));
}

#[test]
fn half_a_key_and_half_a_reservation_are_no_answer() {
    let mut odd = keys(1, &[1]);
    odd[7] = 7;
    let mut cut_keys = keys(1, &[1, 2]);
    cut_keys.truncate(20);
    let mut cut_held = held(1, Some((5, 1)));
    cut_held.truncate(20);

    for answer in [
        asked(&odd, &held(1, None)),
        asked(&cut_keys, &held(1, None)),
        asked(&keys(1, &[1]), &cut_held),
        asked(&[], &[]),
    ] {
        assert!(matches!(answer, Err(ScsiError::Nonsense(_))), "{answer:?}");
    }
}

proptest! {
    #[test]
    fn no_answer_of_a_device_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        page in any::<Option<u8>>(),
        status in any::<u8>(),
        host in 0_u16..0x20,
        driver in 0_u16..0x20,
    ) {
        let _ = Sense::parse(&bytes);
        let _ = verdict(&ScsiAnswer { status, host, driver, sense: bytes.clone(), length: 0 });
        let _ = ask_inquiry(page, |_, length| Ok(Ok(cut(&bytes, length))));
        let _ = ask_reservation(|_, length| Ok(Ok(cut(&bytes, length))));
    }

    #[test]
    fn what_is_cut_short_is_never_taken_for_a_page(
        content in 1_usize..2000,
        lost in 1_usize..2000,
    ) {
        let mut data = page(0x83, content);
        data.truncate(data.len().saturating_sub(lost));
        let answer = ask_inquiry(Some(0x83), |_, length| Ok(Ok(cut(&data, length))));
        prop_assert!(answer.is_err());
    }
}

/// The generation in an answer to PERSISTENT RESERVE IN.
fn generation(bytes: &[u8]) -> u32 {
    bytes.first_chunk().copied().map_or(0, u32::from_be_bytes)
}

hawser_testkit::fuzz_corpus!(read_keys, "scsi_read_keys", |bytes| {
    if let Ok(told) = asked(bytes, &held(generation(bytes), Some((5, 0xa)))) {
        assert!(told.held.is_some());
        let length = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        assert_eq!(told.registered.len() * 8, length as usize, "a key was made up or left out");
    }
});

hawser_testkit::fuzz_corpus!(read_reservation, "scsi_read_reservation", |bytes| {
    if let Ok(told) = asked(&keys(generation(bytes), &[0xa, 0xb]), bytes) {
        let free = bytes[4..8] == [0; 4];
        assert_eq!(told.held.is_none(), free, "a reservation was made up or overlooked");
    }
});

hawser_testkit::fuzz_corpus!(sense, "scsi_sense", |bytes| {
    let key = Sense::parse(bytes).map(|sense| sense.key);
    match verdict(&complaint(bytes)) {
        Ok(()) => assert!(matches!(key, Some(0 | 1)), "a failure was taken for none"),
        Err(failure) => assert_eq!(failure.attention, key == Some(6)),
    }
});

hawser_testkit::fuzz_corpus!(inquiry, "scsi_inquiry", |bytes| {
    for page in [None, Some(0x80), Some(0x83)] {
        if let Ok(whole) = ask_inquiry(page, |_, length| Ok(Ok(cut(bytes, length)))) {
            assert!(bytes.starts_with(&whole), "{page:?}");
            assert!(page.is_none_or(|page| whole[1] == page), "another page was taken");
        }
    }
});
