//! Amounts as Kubernetes writes them: `10Gi`, `1.5G`, `1e9`, `100m`.

/// More is taken for this much, as the API server does.
const MOST: u64 = i64::MAX as u64;

/// The suffixes that are powers of two, smallest first.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The suffixes that are powers of ten.
const DECIMAL: [(&str, i64); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// How many bytes an amount is, a part of one counting as one. `None` when it is no amount, or one
/// below zero.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits: Vec<u64> =
        whole.bytes().chain(part.bytes()).map(|b| u64::from(b.wrapping_sub(b'0'))).collect();
    if digits.is_empty() || part.contains('.') {
        return None;
    }
    let (power_of_ten, factor) = scale(suffix)?;
    let point = i64::try_from(whole.len()).ok()?.saturating_add(power_of_ten);
    Some(value(&digits, point, factor))
}

/// What a suffix means: a power of ten and a factor.
fn scale(suffix: &str) -> Option<(i64, u64)> {
    if let Some(place) = BINARY.iter().position(|known| *known == suffix) {
        return Some((0, 1 << (10 * (place + 1))));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((*power, 1));
    }
    let power = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((power, 1))
}

/// `0.digits × 10^point × factor`, rounded up. Digit by digit, because no number of fixed size
/// holds everything that can be written.
fn value(digits: &[u64], point: i64, factor: u64) -> u64 {
    if digits.iter().all(|digit| *digit == 0) {
        return 0;
    }
    let mut whole: u128 = 0;
    let mut place = 0;
    while i64::try_from(place).is_ok_and(|place| place < point) {
        whole = whole * 10 + u128::from(digits.get(place).copied().unwrap_or(0));
        if whole > u128::from(MOST) {
            return MOST;
        }
        place += 1;
    }
    // The digits behind the point times the factor, from the last: what is carried over the point
    // is whole, and anything that stays behind it makes one more.
    let mut carried: u128 = 0;
    let mut rest = false;
    for digit in digits.iter().skip(place).rev() {
        let product = u128::from(*digit) * u128::from(factor) + carried;
        rest |= !product.is_multiple_of(10);
        carried = product / 10;
    }
    for _ in point..0 {
        if carried == 0 {
            break;
        }
        rest |= !carried.is_multiple_of(10);
        carried /= 10;
    }
    let sum = whole * u128::from(factor) + carried + u128::from(rest);
    u64::try_from(sum).map_or(MOST, |sum| sum.min(MOST))
}

/// An amount of bytes as Kubernetes writes amounts of memory: with the largest suffix that leaves
/// a whole number.
pub(super) fn text(bytes: u64) -> String {
    // Less than 1Ki is written with decimal suffixes; 1000 is the only one that gets any.
    if bytes == 1000 {
        return "1k".to_owned();
    }
    let fits = |(place, _): &(usize, &&str)| bytes.is_multiple_of(1 << (10 * (place + 1)));
    match BINARY.iter().enumerate().rfind(fits) {
        Some((place, suffix)) if bytes > 0 => {
            format!("{}{suffix}", bytes >> (10 * (place + 1)))
        }
        Some(_) | None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_people_write_is_read_exactly() {
        for (written, amount) in [
            ("0", 0),
            ("1", 1),
            ("+7", 7),
            ("10Gi", 10 * GIB),
            ("010Gi", 10 * GIB),
            ("1.5Gi", GIB + GIB / 2),
            (".5Gi", GIB / 2),
            ("1.Gi", GIB),
            ("1.5G", 1_500_000_000),
            ("1k", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e9", 1_000_000_000),
            ("1E3", 1000),
            ("1e+3", 1000),
            ("1500e-3", 2),
            ("12.34e1", 124),
            ("100m", 1),
            ("1000m", 1),
            ("1001m", 2),
            ("1n", 1),
            ("128974848000m", 128_974_848),
            ("7Ei", 7 << 60),
        ] {
            assert_eq!(bytes(written), Some(amount), "{written}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for written in [
            "",
            ".",
            "Gi",
            "-1",
            "-1Gi",
            "1K",
            "1gi",
            "1GiB",
            "1 Gi",
            " 1",
            "1e",
            "1e1.5",
            "1e9Gi",
            "1.2.3",
            "1,5G",
            "0x10",
            "1Gi1",
            "ten",
            "1µ",
            "٣",
            "1e99999999999999999999",
        ] {
            assert_eq!(bytes(written), None, "{written}");
        }
    }

    #[test]
    fn what_is_too_much_is_the_most_there_is() {
        for written in ["8Ei", "16E", "1e19", "1e9223372036854775807", "99999999999999999999999"] {
            assert_eq!(bytes(written), Some(MOST), "{written}");
        }
        assert_eq!(bytes("0e9223372036854775807"), Some(0));
        assert_eq!(bytes("1e-9223372036854775807"), Some(1));
        let long = format!("0.{}1Ei", "0".repeat(500));
        assert_eq!(bytes(&long), Some(1));
    }

    #[test]
    fn a_suffix_is_as_large_as_leaves_a_whole_number() {
        for (amount, written) in [
            (0, "0"),
            (1, "1"),
            (1000, "1k"),
            (1023, "1023"),
            (1024, "1Ki"),
            (2000, "2000"),
            (GIB, "1Gi"),
            (GIB + GIB / 2, "1536Mi"),
            (1024 * GIB, "1Ti"),
            (GIB + 1, "1073741825"),
            (7 << 60, "7Ei"),
        ] {
            assert_eq!(text(amount), written);
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(written in "\\PC*", number in "[0-9.]{0,60}[a-zA-Z]{0,2}[+-]?[0-9]{0,19}") {
            bytes(&written);
            bytes(&number);
        }

        #[test]
        fn what_is_written_is_read_again(amount in 0..=MOST) {
            prop_assert_eq!(bytes(&text(amount)), Some(amount));
            prop_assert_eq!(bytes(&amount.to_string()), Some(amount));
        }

        #[test]
        fn parts_are_rounded_up(thousandths in 0..u64::MAX / 1024, place in 0..6_usize) {
            prop_assert_eq!(bytes(&format!("{thousandths}m")), Some(thousandths.div_ceil(1000)));
            let (whole, part) = (thousandths / 1000, thousandths % 1000);
            let exact = (u128::from(thousandths) << (10 * (place + 1))).div_ceil(1000);
            let exact = u64::try_from(exact).map_or(MOST, |exact| exact.min(MOST));
            let written = format!("{whole}.{part:03}{}", BINARY[place]);
            prop_assert_eq!(bytes(&written), Some(exact));
        }

        #[test]
        fn the_point_moves_with_the_exponent(number in 0..1_000_000_u64, power in -9..12_i32) {
            let exact = if power < 0 {
                number.div_ceil(10_u64.pow(power.unsigned_abs()))
            } else {
                number * 10_u64.pow(power.unsigned_abs())
            };
            prop_assert_eq!(bytes(&format!("{number}e{power}")), Some(exact));
        }
    }
}
