use hawser_core::port::kernel::{KernelError, Register, ReservationKind};
use proptest::prelude::*;
use rustix::io::Errno;

use crate::kernel::disk::nvme::{Form, ask_reservation, parse_report, verdict};
use crate::kernel::disk::reserve;

/// A report of these registrations: key, and whether it holds the reservation.
fn report(form: Form, generation: u32, kind: u8, entries: &[(u64, bool)]) -> Vec<u8> {
    let (head, each, key_at) = match form {
        Form::Extended => (64, 64, 8),
        Form::Short => (24, 24, 16),
    };
    let mut data = vec![0; head + each * entries.len()];
    data[..4].copy_from_slice(&generation.to_le_bytes());
    data[4] = kind;
    data[5..7].copy_from_slice(&u16::try_from(entries.len()).unwrap().to_le_bytes());
    for (number, (key, holder)) in entries.iter().enumerate() {
        let at = head + each * number;
        data[at + 2] = u8::from(*holder);
        data[at + key_at..at + key_at + 8].copy_from_slice(&key.to_le_bytes());
    }
    data
}

fn fill(data: &mut [u8], report: &[u8]) {
    let length = data.len().min(report.len());
    data[..length].copy_from_slice(&report[..length]);
}

#[test]
fn both_forms_of_a_report_are_read() {
    for form in [Form::Extended, Form::Short] {
        let data = report(form, 9, 3, &[(0xa1, false), (0xb2, true)]);

        let reservation = parse_report(form, &data).unwrap();

        assert_eq!(reservation.generation, 9);
        assert_eq!(reservation.held, Some(ReservationKind::WriteExclusiveRegistrants));
        let expected = [(0xa1, false), (0xb2, true)];
        assert_eq!(reservation.registered, expected.map(|(key, holder)| Register { key, holder }));
    }
    assert_eq!(
        parse_report(Form::Extended, &report(Form::Extended, 1, 0, &[])).unwrap().held,
        None
    );
}

#[test]
fn a_controller_with_short_host_identifiers_is_asked_again() {
    let mut forms = Vec::new();
    let reservation = ask_reservation("report", |form, data| {
        forms.push(form);
        if form == Form::Extended {
            return Ok(0x4018);
        }
        fill(data, &report(form, 2, 1, &[(5, true)]));
        Ok(0)
    });

    assert_eq!(reservation.unwrap().held, Some(ReservationKind::WriteExclusive));
    assert_eq!(forms, [Form::Extended, Form::Short]);
}

#[test]
fn a_long_report_is_asked_for_twice() {
    let entries: Vec<_> = (1..=500).map(|key| (key, false)).collect();
    let whole = report(Form::Extended, 1, 0, &entries);
    let mut lengths = Vec::new();

    let reservation = ask_reservation("report", |_, data| {
        lengths.push(data.len());
        fill(data, &whole);
        Ok(0)
    });

    assert_eq!(reservation.unwrap().registered.len(), 500);
    assert_eq!(lengths, [4096, whole.len()]);
}

#[test]
fn a_report_without_end_is_no_answer() {
    let endless = ask_reservation("report", |_, data| {
        data[5..7].copy_from_slice(&[0xff, 0xff]);
        Ok(0)
    });

    assert!(matches!(endless, Err(KernelError::Nonsense { .. })), "{endless:?}");
}

#[test]
fn every_status_has_its_number() {
    let errno = |status| verdict("x", Ok(status)).unwrap_err().errno();

    assert_eq!(errno(0x4001), Some(Errno::OPNOTSUPP.raw_os_error()));
    assert_eq!(errno(0x0002), Some(Errno::INVAL.raw_os_error()));
    assert_eq!(errno(0x4083), Some(Errno::BADE.raw_os_error()));
    assert_eq!(errno(0x0302), Some(Errno::NOLINK.raw_os_error()));
    assert_eq!(errno(0x0286), Some(Errno::IO.raw_os_error()));
    assert!(verdict("x", Ok(0)).is_ok());
    let refused = verdict("x", Err(Errno::NOTTY)).unwrap_err();
    assert_eq!(refused.errno(), Some(Errno::NOTTY.raw_os_error()));
}

#[test]
fn what_the_kernel_says_of_a_reservation_has_its_number() {
    let cases = [
        (0x18, Errno::BADE),
        // As drivers of older kernels hand it on.
        (0x0800_0018, Errno::BADE),
        (0x4083, Errno::BADE),
        (0xe_0000, Errno::TIMEDOUT),
        (0xf_0000, Errno::TIMEDOUT),
        (0x1_0000, Errno::IO),
        (0x02, Errno::IO),
        (0x77, Errno::IO),
    ];
    for (status, errno) in cases {
        let error = reserve::verdict("reserving /dev/sda", Ok(status)).unwrap_err();
        assert_eq!(error.errno(), Some(errno.raw_os_error()), "{status:#x}");
        assert!(error.to_string().starts_with("reserving /dev/sda ("), "{error}");
    }
    assert!(reserve::verdict("x", Ok(0)).is_ok());
}

#[test]
fn a_change_is_sent_once_more_after_a_check_condition_and_only_then() {
    let send = |answers: &[u32]| {
        let mut sent = 0;
        let answer = reserve::settle("x", || {
            sent += 1;
            Ok(answers[sent - 1])
        });
        (answer.is_ok(), sent)
    };

    assert_eq!(send(&[0]), (true, 1));
    assert_eq!(send(&[0x02, 0]), (true, 2));
    assert_eq!(send(&[0x0800_0002, 0]), (true, 2));
    assert_eq!(send(&[0x02, 0x02]), (false, 2));
    assert_eq!(send(&[0x18]), (false, 1));
}

proptest! {
    #[test]
    fn no_report_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        status in any::<u32>(),
    ) {
        let _ = parse_report(Form::Extended, &bytes);
        let _ = parse_report(Form::Short, &bytes);
        let _ = ask_reservation("x", |_, data| {
            fill(data, &bytes);
            Ok(0)
        });
        let _ = verdict("x", Ok(status));
        let _ = reserve::verdict("x", Ok(status));
    }
}

hawser_testkit::fuzz_corpus!(corpus, "nvme_reservation_report", |bytes| {
    for form in [Form::Extended, Form::Short] {
        if let Some(reservation) = parse_report(form, bytes) {
            let count = usize::from(bytes[5]) | usize::from(bytes[6]) << 8;
            assert_eq!(reservation.registered.len(), count, "a host was made up or left out");
            assert_eq!(reservation.held.is_none(), bytes[4] == 0, "{form:?}");
        }
    }
});
