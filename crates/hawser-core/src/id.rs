//! Internal ids: opaque, lower case, one grammar.
//!
//! An id is a short word for what it names and 26 characters, `vol-01k5…`: sortable by age, safe as
//! a file name, as a key and as a Kubernetes name. Outside names never become ids;
//! [`crate::name::Alias`] connects the two. Where a world never gives a name twice, as CSI does, the
//! id is a hash of the name, and then it is not sortable by age.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use ulid::{Generator, Ulid};

use crate::error::{Classify, Kind};

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}: expected {prefix}- and 26 characters of 0-9 and a-z")]
pub struct IdError {
    what: &'static str,
    prefix: &'static str,
    text: String,
}

impl Classify for IdError {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// How many characters follow the prefix: a ULID in Crockford's alphabet.
const LENGTH: usize = 26;

fn is_tail(tail: &str) -> bool {
    tail.len() == LENGTH
        && tail
            .bytes()
            .all(|b| b.is_ascii_digit() || (b.is_ascii_lowercase() && !b"ilou".contains(&b)))
}

/// The varying part of a new id. Later ones of this process are greater, also within a millisecond,
/// so that lists by id are lists by age.
fn fresh() -> String {
    static GENERATOR: Mutex<Generator> = Mutex::new(Generator::new());
    let mut generator = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    // More ids within a millisecond than there are numbers left: 2^80 of them, in theory.
    let ulid = generator.generate().unwrap_or_else(|_| Ulid::generate());
    ulid.to_string().to_ascii_lowercase()
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The word every id of this kind starts with.
            pub const PREFIX: &'static str = $prefix;

            /// A new id that no other has: the time and 80 random bits.
            pub fn generate() -> Self {
                Self(format!("{}-{}", $prefix, fresh()))
            }

            /// The id with these 128 bits: for ids that follow from a name alone.
            pub fn from_bits(bits: u128) -> Self {
                let tail = Ulid::from(bits).to_string().to_ascii_lowercase();
                Self(format!("{}-{}", $prefix, tail))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let tail = text.strip_prefix(concat!($prefix, "-"));
                if tail.is_some_and(is_tail) {
                    return Ok(Self(text.to_owned()));
                }
                let text = text.chars().take(64).collect();
                Err(IdError { what: $what, prefix: $prefix, text })
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// Names one volume for ever.
    VolumeId, "vol", "a volume id"
);
id!(
    /// Names one snapshot for ever.
    SnapshotId, "snap", "a snapshot id"
);
id!(
    /// Names one group of snapshots for ever.
    GroupId, "grp", "a group id"
);
id!(
    /// Names one operation for ever.
    OperationId, "op", "an operation id"
);
id!(
    /// Names the right of one node to use one volume.
    PublicationId, "pub", "a publication id"
);
id!(
    /// Names one Hawser instance: one state folder.
    InstanceId, "inst", "an instance id"
);

/// True when a text has the form of any internal id; such texts are refused as names, so that a
/// reference is never ambiguous.
pub fn looks_like_id(text: &str) -> bool {
    let prefixes = [
        VolumeId::PREFIX,
        SnapshotId::PREFIX,
        GroupId::PREFIX,
        OperationId::PREFIX,
        PublicationId::PREFIX,
    ];
    let is_id_with = |prefix: &&str| {
        text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_tail)
    };
    prefixes.iter().any(is_id_with)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_new_id_reads_back_and_is_recognised() {
        let id = VolumeId::generate();

        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        assert!(looks_like_id(id.as_str()));
    }

    #[test]
    fn any_bits_make_an_id() {
        for bits in [0, 1, u128::MAX] {
            let id = VolumeId::from_bits(bits);
            assert_eq!(id.as_str().parse(), Ok(id.clone()));
        }
    }

    #[test]
    fn later_ids_are_greater() {
        let ids: Vec<_> = (0..1000).map(|_| VolumeId::generate()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn other_texts_are_no_ids() {
        for text in [
            "",
            "vol-",
            "vol-../../etc",
            "snap-01k5",
            "VOL-01K5ZZZZZZZZZZZZZZZZZZZZZZ",
            "vol-01k5zzzzzzzzzzzzzzzzzzzzzu",
        ] {
            assert!(text.parse::<VolumeId>().is_err(), "{text:?}");
        }
        let snapshot = SnapshotId::generate();
        assert!(snapshot.as_str().parse::<VolumeId>().is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = text.parse::<VolumeId>();
            let _ = looks_like_id(&text);
        }
    }
}
