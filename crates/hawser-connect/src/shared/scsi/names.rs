//! Page 0x83 of the vital product data: every name that a logical unit has.
//!
//! Names are written and ranked as `scsi_id` of systemd does it, because udev, multipathd and
//! os-brick all use its answer as "the wwid": a digit for the kind (NAA 3, EUI-64 2, T10 1, vendor
//! 0), then the name. A name of another kind, the SCSI name string, gets the kernel's 8.

use std::fmt::Write as _;

/// What kind of name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Naa,
    Eui,
    T10,
    Vendor,
    Text,
}

impl Kind {
    fn digit(self) -> char {
        match self {
            Self::Naa => '3',
            Self::Eui => '2',
            Self::T10 => '1',
            Self::Vendor => '0',
            Self::Text => '8',
        }
    }
}

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    kind: Kind,
    /// Lower-case digits, or text with its blanks joined as udev joins them.
    value: String,
    rank: u8,
}

/// The names of a logical unit, best first; never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(Vec<Name>);

/// Designators that end before they begin, and so on, are left out; the rest still counts.
const HEADER: usize = 4;

impl Names {
    /// The names on a page, as it goes over the wire or lies in `vpd_pg83`; `None` when it has none.
    pub(crate) fn parse(page: &[u8]) -> Option<Self> {
        let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
        if page[1] != 0x83 {
            return None;
        }
        let mut rest = page.get(HEADER..)?;
        rest = rest.get(..length).unwrap_or(rest);
        let mut names = Vec::new();
        while let [code_set, kind, _, length, tail @ ..] = rest {
            let Some(value) = tail.get(..usize::from(*length)) else { break };
            rest = &tail[value.len()..];
            names.extend(designator(*code_set, *kind, value));
        }
        Self::ranked(names)
    }

    /// The one name that sysfs tells of a disk without the page: `naa.6001…`, `eui.…`, `t10.…`.
    pub(crate) fn of_wwid(wwid: &str) -> Option<Self> {
        let (kind, value) = match wwid.trim().split_once('.')? {
            ("naa", value) => (Kind::Naa, digits(value)?),
            ("eui", value) => (Kind::Eui, digits(value)?),
            ("t10", value) => (Kind::T10, joined(value)),
            _ => return None,
        };
        Self::ranked(vec![Name { kind, value, rank: 0 }])
    }

    /// The name of a disk that has only a serial number (page 0x80), as `scsi_id` writes it.
    pub(crate) fn of_serial(vendor: &str, model: &str, page: &[u8]) -> Option<Self> {
        let length = usize::from(*page.get(3)?);
        let rest = page.get(HEADER..)?;
        let serial = String::from_utf8_lossy(rest.get(..length).unwrap_or(rest));
        let serial = serial.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if page[1] != 0x80 || serial.is_empty() {
            return None;
        }
        let value = joined(&format!("S{vendor:<8}{model:<16}{serial}"));
        // Without the digit: `wwid` puts none before a text that is complete.
        Some(Self(vec![Name { kind: Kind::Text, value, rank: u8::MAX }]))
    }

    /// The name that udev and multipathd know a volume by, read back.
    pub(crate) fn of_udev(wwid: &str) -> Option<Self> {
        let name = |(kind, value): (Option<Kind>, String)| {
            // What no digit explains is a text as a whole.
            let kind = kind?;
            Some(Name { kind, value, rank: if kind == Kind::Text { u8::MAX } else { 0 } })
        };
        Self::ranked(readings(wwid).into_iter().filter_map(name).collect())
    }

    fn ranked(mut names: Vec<Name>) -> Option<Self> {
        // Stable: of two equal names the first on the page counts, as for scsi_id.
        names.sort_by_key(|name| name.rank);
        (!names.is_empty()).then_some(Self(names))
    }

    /// The name that udev and multipathd know the volume by.
    pub(crate) fn wwid(&self) -> String {
        let Name { kind, value, rank } = &self.0[0];
        if *rank == u8::MAX { value.clone() } else { format!("{}{value}", kind.digit()) }
    }

    /// True when one of the names is this one, however it is spelled: with udev's digit, with
    /// `naa.`, `eui.`, `t10.` or `0x` before it, as the end of a link (`wwn-0x…`, `scsi-3…`,
    /// `dm-uuid-mpath-3…`), in capitals.
    pub(crate) fn has(&self, expected: &str) -> bool {
        let readings = readings(expected);
        self.0.iter().any(|name| {
            readings.iter().any(|(kind, value)| {
                kind.is_none_or(|kind| kind == name.kind) && *value == name.value
            })
        })
    }

    /// True when both tell of the same logical unit: a name of the best kind is common to both.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let best = |names: &Self| names.0[0].kind;
        best(self) == best(other)
            && self.0.iter().any(|name| {
                name.kind == best(self)
                    && other.0.iter().any(|its| its.kind == name.kind && its.value == name.value)
            })
    }
}

/// One designator, where it names the logical unit (and not a port or a target).
fn designator(code_set: u8, kind: u8, value: &[u8]) -> Option<Name> {
    let association = kind & 0x30;
    if association != 0 || value.is_empty() {
        return None;
    }
    let binary = code_set & 0x0f == 1;
    let text = || {
        let text = String::from_utf8_lossy(value);
        Some(joined(text.trim_matches('\0'))).filter(|text| !text.is_empty())
    };
    let number = || if binary { Some(hex(value)) } else { digits(&text()?) };
    let (kind, value, rank) = match kind & 0x0f {
        3 => {
            let value = number()?;
            // Registered extended, registered, anything else: the order of scsi_id.
            let rank = match value.as_bytes()[0] {
                b'6' => 0,
                b'5' => 1,
                _ => 2,
            };
            (Kind::Naa, value, rank)
        }
        2 => (Kind::Eui, number()?, 3),
        1 if binary => (Kind::T10, hex(value), 4),
        1 => (Kind::T10, text()?, 4),
        0 if binary => (Kind::Vendor, hex(value), 5),
        0 => (Kind::Vendor, text()?, 5),
        8 => {
            let text = text()?;
            match Names::of_wwid(&text) {
                // The same name once more, in words; the page may have it in no other form.
                Some(Names(mut names)) => return names.pop().map(|name| Name { rank: 6, ..name }),
                None => (Kind::Text, text, 7),
            }
        }
        _ => return None,
    };
    Some(Name { kind, value, rank })
}

/// Every way to read a name that somebody wrote down.
fn readings(text: &str) -> Vec<(Option<Kind>, String)> {
    let mut text = text.trim();
    for prefix in ["/dev/disk/by-id/", "dm-uuid-", "mpath-", "wwn-", "scsi-"] {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    let lower = text.to_ascii_lowercase();
    if let Some(names) = Names::of_wwid(&lower).filter(|_| !lower.starts_with("t10.")) {
        return vec![(Some(names.0[0].kind), names.0[0].value.clone())];
    }
    if let Some(t10) = text.strip_prefix("t10.") {
        return vec![(Some(Kind::T10), joined(t10))];
    }
    if let Some(number) = lower.strip_prefix("0x").and_then(digits) {
        return vec![(None, number)];
    }
    let mut all = vec![(Some(Kind::Text), joined(text))];
    if let Some(number) = digits(&lower) {
        all.push((None, number));
    }
    let mut chars = text.chars();
    let digit = chars.next();
    for kind in [Kind::Naa, Kind::Eui, Kind::T10, Kind::Vendor, Kind::Text] {
        if digit != Some(kind.digit()) {
            continue;
        }
        let rest = chars.as_str();
        // 8, 12 or 16 bytes: with the digit that is an odd number of characters, so it cannot be
        // mixed up with a bare name.
        all.extend(digits(&rest.to_ascii_lowercase()).map(|number| (Some(kind), number)));
        all.push((Some(kind), joined(rest)));
    }
    all
}

/// Lower-case hexadecimal digits of a whole number of bytes, at least 8.
fn digits(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    let legal = lower.len() >= 16
        && lower.len().is_multiple_of(2)
        && lower.bytes().all(|byte| byte.is_ascii_hexdigit());
    legal.then_some(lower)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Blanks as udev writes them: none at the ends, one `_` for each run between.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join("_")
}
