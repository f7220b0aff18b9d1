//! Values on the command line. What is refused here ends with exit code 2.

use std::collections::BTreeMap;
use std::time::Duration;

use hawser_api::Endpoint;
use hawser_api::rest::{reference, wait};
use hawser_core::group::GroupRef;
use hawser_core::name::{Alias, Labels};
use hawser_core::place::Place;
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::{Sharing, VolumeRef};
use hawser_core::{ByteSize, Error, Kind, Result};

/// A size that something can have.
pub(super) fn size(text: &str) -> Result<ByteSize> {
    let size: ByteSize = text.parse()?;
    if size == ByteSize::ZERO {
        return Err(Error::new(Kind::OutOfRange, "a size must be larger than 0, such as 10GiB"));
    }
    Ok(size)
}

/// A name for something new.
pub(super) fn name(text: &str) -> Result<Alias> {
    Ok(Alias::native(text)?)
}

/// A volume by name or id.
pub(super) fn volume(text: &str) -> Result<VolumeRef> {
    reference::volume(text)
}

/// A snapshot by name or id.
pub(super) fn snapshot(text: &str) -> Result<SnapshotRef> {
    reference::snapshot(text)
}

/// A group by name or id.
pub(super) fn group(text: &str) -> Result<GroupRef> {
    reference::group(text)
}

/// A server's address.
pub(super) fn server(text: &str) -> Result<Endpoint> {
    Ok(text.parse()?)
}

/// A waiting time.
pub(super) fn duration(text: &str) -> Result<Duration> {
    Ok(wait::parse(text)?)
}

/// The key of a reservation: a number, decimal or with `0x`, not 0.
pub(super) fn key(text: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    match number {
        Ok(number) if number != 0 => Ok(number),
        Ok(_) | Err(_) => Err(Error::new(Kind::Invalid, "a key is a number of 1 to 2^64-1")),
    }
}

/// `key=value`, for parameters.
pub(super) fn pair(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err(Error::new(Kind::Invalid, "write it as key=value")),
    }
}

/// The place that pairs describe; `None` when there are none.
pub(super) fn place(pairs: Vec<(String, String)>) -> Option<Place> {
    (!pairs.is_empty()).then(|| Place::new(pairs.into_iter().collect()))
}

/// `key=value`, legal as a label.
pub(super) fn label(text: &str) -> Result<(String, String)> {
    let (key, value) = pair(text)?;
    Labels::try_from(BTreeMap::from([(key.clone(), value.clone())]))?;
    Ok((key, value))
}

/// `key=value` to set a label, `key-` to remove it.
pub(super) fn label_change(text: &str) -> Result<(String, Option<String>)> {
    match text.strip_suffix('-') {
        Some(key) if !key.contains('=') => label(&format!("{key}=")).map(|(key, _)| (key, None)),
        Some(_) => label(text).map(|(key, value)| (key, Some(value))),
        None if text.contains('=') => label(text).map(|(key, value)| (key, Some(value))),
        None => Err(Error::new(Kind::Invalid, "write key=value to set it or key- to remove it")),
    }
}

/// Who may write.
pub(super) fn sharing(text: &str) -> Result<Sharing> {
    let all = [Sharing::SingleWriter, Sharing::ManyReaders, Sharing::ManyWriters];
    let wanted = text.replace('-', "_");
    all.into_iter()
        .find(|sharing| sharing.as_str() == wanted)
        .ok_or_else(|| Error::new(Kind::Invalid, "use single-writer, many-readers or many-writers"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_word_makes_a_parser_panic(text in "\\PC{0,80}") {
            let _ = size(&text);
            let _ = name(&text);
            let _ = volume(&text);
            let _ = snapshot(&text);
            let _ = group(&text);
            let _ = server(&text);
            let _ = duration(&text);
            let _ = pair(&text);
            let _ = label(&text);
            let _ = label_change(&text);
            let _ = sharing(&text);
        }
    }
}
