//! The store port: a small ordered key-value map that the weakest engine can honour.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::error::{Classify, Kind, Result};

/// Keeps records, one key at a time.
///
/// # Contract
///
/// Every implementation passes `store_contract!`:
/// - a change that was answered is durable: it survives a power cut;
/// - [`Store::create`], [`Store::put`] and [`Store::delete`] are atomic on their one key, and exactly
///   one of several racing callers wins; there are no transactions over several keys;
/// - every change of any key has a larger revision than every change before it;
/// - a list is ordered by key bytes and each page is consistent in itself; keys that exist during
///   the whole listing are in it exactly once;
/// - a watch delivers every change with a revision larger than `after`, in order, or
///   [`Watched::Compacted`] when it no longer can;
/// - a future that is dropped either changed the key or did not, never half.
///
/// Errors: `Unavailable` and `Timeout` with `Outcome::Unknown` where a write may have happened.
#[async_trait]
pub trait Store: Send + Sync {
    /// The value of a key.
    async fn get(&self, key: &Key) -> Result<Option<Versioned>>;

    /// Writes a key that must not exist.
    async fn create(&self, key: &Key, value: Bytes) -> Result<Cas>;

    /// Writes a key that must have this revision.
    async fn put(&self, key: &Key, value: Bytes, expected: Revision) -> Result<Cas>;

    /// Removes a key that must have this revision. An absent key is a conflict.
    async fn delete(&self, key: &Key, expected: Revision) -> Result<Cas>;

    /// Up to `limit` keys that start with `prefix` and come after `after`, in order.
    async fn list(&self, prefix: &Prefix, after: Option<&Key>, limit: usize) -> Result<Listing>;

    /// Changes of keys that start with `prefix`, from the one after the given revision on.
    async fn watch(
        &self,
        prefix: &Prefix,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Watched>>>;
}

/// Orders all changes of a store.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Revision(pub u64);

/// A value and the revision of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The bytes.
    pub value: Bytes,
    /// When they were written.
    pub revision: Revision,
}

/// What became of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cas {
    /// Done, as this revision.
    Done(Revision),
    /// The key was not as expected; nothing was changed.
    Conflict,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Keys and values, in order.
    pub items: Vec<(Key, Versioned)>,
    /// True when more keys follow the last one.
    pub more: bool,
    /// The store's revision at which the page was read; a watch from here misses nothing.
    pub revision: Revision,
}

/// What a watch delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A key was written.
    Put(Key, Versioned),
    /// A key was removed.
    Deleted(Key, Revision),
    /// Changes were missed; list again and watch from there. The watch ends.
    Compacted,
}

/// A key: segments of `[a-z0-9._-]` and percent escapes, joined by `/`; at most 512 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// The beginning of keys: a key and a closing `/`, or nothing for all keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prefix(String);

/// Keys longer than this are refused, so that every engine can hold them.
pub const LONGEST_KEY: usize = 512;

/// Why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a store key")]
pub struct KeyError(String);

impl Classify for KeyError {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

impl Key {
    /// Joins segments; characters outside the grammar are percent-escaped byte by byte, so any
    /// outside name can be a segment and two names never share a key. An empty segment becomes `%`.
    pub fn join(segments: &[&str]) -> Self {
        let mut key = String::with_capacity(64);
        for (index, segment) in segments.iter().enumerate() {
            if index > 0 {
                key.push('/');
            }
            if segment.is_empty() {
                key.push('%');
            }
            for byte in segment.bytes() {
                if is_plain(byte) {
                    key.push(byte as char);
                } else {
                    key.push_str(&format!("%{byte:02X}"));
                }
            }
        }
        Self(key)
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last segment, escapes and all.
    pub fn last_segment(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte)
}

impl Prefix {
    /// All keys below these segments.
    pub fn below(segments: &[&str]) -> Self {
        let mut prefix = Key::join(segments).0;
        if !prefix.is_empty() {
            prefix.push('/');
        }
        Self(prefix)
    }

    /// Every key there is.
    pub fn all() -> Self {
        Self(String::new())
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True when the key starts with it.
    pub fn covers(&self, key: &Key) -> bool {
        key.0.starts_with(&self.0)
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let legal = !text.is_empty()
            && text.len() <= LONGEST_KEY
            && text.split('/').all(|s| !s.is_empty())
            && text
                .bytes()
                .all(|b| is_plain(b) || b == b'/' || b == b'%' || b.is_ascii_uppercase());
        if legal { Ok(Self(text.into())) } else { Err(KeyError(text.chars().take(80).collect())) }
    }
}

impl TryFrom<String> for Key {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn outside_names_are_escaped_and_stay_apart() {
        let keys = ["a/b", "a%2Fb", "a", "A", "ü", "", "%"].map(|name| Key::join(&["name", name]));

        for (index, key) in keys.iter().enumerate() {
            assert_eq!(key.as_str().parse().as_ref(), Ok(key));
            assert!(!keys[..index].contains(key), "{key} twice");
            assert!(Prefix::below(&["name"]).covers(key));
        }
    }

    #[test]
    fn other_texts_are_no_keys() {
        for text in ["", "/", "a//b", "a/", "a b", "a\0", &"x".repeat(513)] {
            assert!(text.parse::<Key>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_two_names_stay_apart(one in "\\PC{0,40}", two in "\\PC{0,40}") {
            let keys = [&one, &two].map(|name| Key::join(&["name", name]));
            prop_assert_eq!(one == two, keys[0] == keys[1]);
            let back = keys[0].as_str().parse::<Key>();
            prop_assert_eq!(back.as_ref(), Ok(&keys[0]));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = text.parse::<Key>();
        }
    }
}
