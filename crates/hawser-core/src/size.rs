//! [`ByteSize`]: a number of bytes, read from `10GiB`, `500M` or `1073741824`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Classify, Kind};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// The binary units, largest first, as they are written.
const UNITS: [(&str, u64); 5] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A longer text is no size, whatever it says.
const LONGEST: usize = 32;

impl ByteSize {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A size from a plain number of bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// So many gibibytes.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// This size rounded up to a multiple of `unit`; `None` when that does not fit.
    pub fn round_up(self, unit: u64) -> Option<Self> {
        self.0.checked_next_multiple_of(unit).map(Self)
    }

    /// The sum, or the largest size there is.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or nothing.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a number with a known unit.
    #[error(
        "{0:?} is not a size: write a whole number of bytes or a number with a unit, such as 10GiB or 500M"
    )]
    Malformed(String),
    /// More than 2^63 bytes, which no Linux file or device can have.
    #[error("{0:?} is larger than any device can be")]
    TooLarge(String),
}

impl Classify for SizeError {
    fn kind(&self) -> Kind {
        match self {
            Self::Malformed(_) => Kind::Invalid,
            Self::TooLarge(_) => Kind::OutOfRange,
        }
    }
}

impl FromStr for ByteSize {
    type Err = SizeError;

    /// Digits, perhaps one decimal point, then a unit: `K`, `KB` and so on count in thousands,
    /// `Ki`, `KiB` and so on in 1024s; letters in either case.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let shown = || text.chars().take(LONGEST).collect::<String>();
        let malformed = || SizeError::Malformed(shown());
        let trimmed = text.trim();
        if trimmed.len() > LONGEST {
            return Err(malformed());
        }
        let split =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let factor = factor(unit.trim()).ok_or_else(malformed)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || (number.contains('.') && fraction.is_empty()) {
            return Err(malformed());
        }
        if fraction.contains('.') || fraction.len() > 9 {
            return Err(malformed());
        }
        let too_large = || SizeError::TooLarge(shown());
        let whole: u128 = whole.parse().map_err(|_| too_large())?;
        let part: u128 =
            if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| malformed())? };
        let scale = 10_u128.pow(fraction.len() as u32);
        let bytes = whole
            .checked_mul(factor)
            .and_then(|bytes| bytes.checked_add(part * factor / scale))
            .ok_or_else(too_large)?;
        // off_t is signed: nothing on Linux is larger.
        if bytes > i64::MAX as u128 {
            return Err(too_large());
        }
        Ok(Self(bytes as u64))
    }
}

fn factor(unit: &str) -> Option<u128> {
    let lower = unit.to_ascii_lowercase();
    let (letter, base) = match lower.as_str() {
        "" | "b" => return Some(1),
        "ki" | "kib" => ('k', 1024_u128),
        "mi" | "mib" => ('m', 1024),
        "gi" | "gib" => ('g', 1024),
        "ti" | "tib" => ('t', 1024),
        "pi" | "pib" => ('p', 1024),
        "k" | "kb" => ('k', 1000),
        "m" | "mb" => ('m', 1000),
        "g" | "gb" => ('g', 1000),
        "t" | "tb" => ('t', 1000),
        "p" | "pb" => ('p', 1000),
        _ => return None,
    };
    let power = "kmgtp".find(letter)? as u32 + 1;
    Some(base.pow(power))
}

impl fmt::Display for ByteSize {
    /// The largest binary unit that divides it, else plain bytes: always reads back exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in UNITS {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return f.pad(&format!("{}{unit}", self.0 / factor));
            }
        }
        f.pad(&self.0.to_string())
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    /// A number of bytes, or a text such as `10GiB`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of bytes or a text such as \"10GiB\"")
            }
            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                if bytes > i64::MAX as u64 {
                    return Err(E::custom(SizeError::TooLarge(bytes.to_string())));
                }
                Ok(ByteSize(bytes))
            }
            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes)
                    .map(ByteSize)
                    .map_err(|_| E::custom(SizeError::Malformed(bytes.to_string())))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_usual_spellings_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("1073741824", 1 << 30),
            ("10GiB", 10 << 30),
            ("10 gib", 10 << 30),
            ("10Gi", 10 << 30),
            ("500M", 500_000_000),
            ("500MB", 500_000_000),
            ("1.5GiB", 3 << 29),
            ("7b", 7),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "-1", "1e30", "GiB", ".5G", "5.", "1.2.3M", "10XiB", "0x10", "١٠", "10G\0", "NaN"]
        {
            assert!(matches!(text.parse::<ByteSize>(), Err(SizeError::Malformed(_))), "{text:?}");
        }
        for text in ["9223372036854775808", "8192PiB", "99999999999999999999999999999999"] {
            assert!(matches!(text.parse::<ByteSize>(), Err(SizeError::TooLarge(_))), "{text:?}");
        }
    }

    #[test]
    fn json_takes_numbers_and_texts_and_refuses_the_rest() {
        assert_eq!(serde_json::from_str::<ByteSize>("42").unwrap(), ByteSize(42));
        assert_eq!(serde_json::from_str::<ByteSize>("\"2GiB\"").unwrap(), ByteSize::gib(2));
        for bad in ["-1", "1e30", "1.5", "null", "[]", "18446744073709551615", "\"1e3\""] {
            assert!(serde_json::from_str::<ByteSize>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes in 0..=i64::MAX as u64) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = text.parse::<ByteSize>();
        }
    }
}
