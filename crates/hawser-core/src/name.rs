//! Names from outside: native names, class and node names, labels, and aliases in other worlds.
//!
//! No name ever becomes a path or a key unescaped; the strict native grammar is for people.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Classify, Kind};
use crate::id::looks_like_id;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing at all.
    #[error("{what} is empty")]
    Empty {
        /// Which kind of name.
        what: &'static str,
    },
    /// More characters than the grammar allows.
    #[error("{what} of {length} bytes is longer than {most}")]
    TooLong {
        /// Which kind of name.
        what: &'static str,
        /// How long it is.
        length: usize,
        /// How long it may be.
        most: usize,
    },
    /// A character or form outside the grammar.
    #[error("{what} {text:?} is not allowed: {rule}")]
    Malformed {
        /// Which kind of name.
        what: &'static str,
        /// The text, cut where it is long.
        text: String,
        /// The grammar in words.
        rule: &'static str,
    },
    /// Has the form of an internal id, so a reference would be ambiguous.
    #[error("{what} {text:?} has the form of an internal id; choose another")]
    LooksLikeId {
        /// Which kind of name.
        what: &'static str,
        /// The text.
        text: String,
    },
}

impl Classify for NameError {
    fn kind(&self) -> Kind {
        match self {
            Self::Empty { .. }
            | Self::TooLong { .. }
            | Self::Malformed { .. }
            | Self::LooksLikeId { .. } => Kind::Invalid,
        }
    }
}

/// One grammar: how long, which bytes, and in words.
struct Grammar {
    what: &'static str,
    most: usize,
    rule: &'static str,
    allows: fn(&str) -> bool,
}

impl Grammar {
    fn check(&self, text: &str) -> Result<(), NameError> {
        let what = self.what;
        if text.is_empty() {
            return Err(NameError::Empty { what });
        }
        if text.len() > self.most {
            return Err(NameError::TooLong { what, length: text.len(), most: self.most });
        }
        if !(self.allows)(text) {
            let text = text.chars().take(64).collect();
            return Err(NameError::Malformed { what, text, rule: self.rule });
        }
        if looks_like_id(text) {
            return Err(NameError::LooksLikeId { what, text: text.to_owned() });
        }
        Ok(())
    }
}

fn is_native(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !text.contains("..")
}

fn is_host(text: &str) -> bool {
    is_native(text) && text.bytes().all(|b| !b.is_ascii_uppercase() && b != b'_')
}

fn is_plain_unicode(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

const NATIVE: Grammar = Grammar {
    what: "name",
    most: 128,
    rule: "use letters, digits, dots, dashes and underscores, starting with a letter or digit, without two dots in a row",
    allows: is_native,
};
const CLASS: Grammar = Grammar {
    what: "class name",
    most: 63,
    rule: "use lower-case letters, digits, dots and dashes, starting with a letter or digit",
    allows: is_host,
};
const NODE: Grammar = Grammar {
    what: "node id",
    most: 192,
    rule: "use lower-case letters, digits, dots and dashes, starting with a letter or digit",
    allows: is_host,
};
const OUTSIDE: Grammar = Grammar {
    what: "name",
    most: 128,
    rule: "control characters are refused",
    allows: is_plain_unicode,
};
const HEKETI: Grammar = Grammar {
    what: "heketi id",
    most: 32,
    rule: "use lower-case hex digits",
    allows: is_lower_hex,
};

macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident, $grammar:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                $grammar.check(text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

text_name!(
    /// The name of a class, as in `--class gold`.
    ClassName, CLASS
);
text_name!(
    /// The id of a node: its host name unless it was given another.
    NodeId, NODE
);

/// A world that has names of its own, with its own rules for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Hawser's own REST and command line.
    Native,
    /// CSI: any Unicode up to 128 bytes.
    Csi,
    /// heketi: 32 hex digits.
    Heketi,
    /// Docker's volume plugin.
    Docker,
    /// Kubernetes FlexVolume.
    Flex,
    /// A Kubernetes PersistentVolume.
    Pv,
}

impl Scope {
    /// The stable word, as in keys and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Csi => "csi",
            Self::Heketi => "heketi",
            Self::Docker => "docker",
            Self::Flex => "flex",
            Self::Pv => "pv",
        }
    }

    fn grammar(self) -> &'static Grammar {
        match self {
            Self::Native => &NATIVE,
            Self::Csi => &OUTSIDE,
            Self::Heketi => &HEKETI,
            Self::Docker | Self::Flex | Self::Pv => &NATIVE,
        }
    }
}

/// What one world calls an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawAlias")]
pub struct Alias {
    scope: Scope,
    name: String,
}

#[derive(Deserialize)]
struct RawAlias {
    scope: Scope,
    name: String,
}

impl TryFrom<RawAlias> for Alias {
    type Error = NameError;

    fn try_from(raw: RawAlias) -> Result<Self, NameError> {
        Self::new(raw.scope, raw.name)
    }
}

impl Alias {
    /// A name that is legal by the rules of its scope.
    pub fn new(scope: Scope, name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        scope.grammar().check(&name)?;
        Ok(Self { scope, name })
    }

    /// A name in Hawser's own world.
    pub fn native(name: impl Into<String>) -> Result<Self, NameError> {
        Self::new(Scope::Native, name)
    }

    /// Whose name it is.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The name itself.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Native => f.pad(&self.name),
            Scope::Csi | Scope::Heketi | Scope::Docker | Scope::Flex | Scope::Pv => {
                write!(f, "{}:{}", self.scope.as_str(), self.name)
            }
        }
    }
}

/// Free key-value pairs on an object, for people and selectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

const LABEL_KEY: Grammar = Grammar {
    what: "label key",
    most: 128,
    rule: "use letters, digits, dots, dashes, underscores and one slash",
    allows: |text| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b))
            && text.bytes().filter(|b| *b == b'/').count() <= 1
    },
};
const LABEL_VALUE: Grammar = Grammar {
    what: "label value",
    most: 256,
    rule: "control characters are refused",
    allows: is_plain_unicode,
};
/// Keeps a record of one volume small, whatever a caller sends.
const MOST_LABELS: usize = 64;

impl Labels {
    /// The pairs, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of one key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when every pair of `selector` is here.
    pub fn matches(&self, selector: &Self) -> bool {
        selector.0.iter().all(|(key, value)| self.0.get(key) == Some(value))
    }

    /// These labels with `patch` laid over them; `None` removes a key.
    pub fn patched(&self, patch: &BTreeMap<String, Option<String>>) -> Result<Self, NameError> {
        let mut pairs = self.0.clone();
        for (key, value) in patch {
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
        Self::try_from(pairs)
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = NameError;

    fn try_from(pairs: BTreeMap<String, String>) -> Result<Self, NameError> {
        if pairs.len() > MOST_LABELS {
            return Err(NameError::TooLong {
                what: "set of labels",
                length: pairs.len(),
                most: MOST_LABELS,
            });
        }
        for (key, value) in &pairs {
            LABEL_KEY.check(key)?;
            if !value.is_empty() {
                LABEL_VALUE.check(value)?;
            }
        }
        Ok(Self(pairs))
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::VolumeId;

    #[test]
    fn native_names_are_for_people() {
        for good in ["data", "Data-1", "a.b_c", "7"] {
            assert!(Alias::native(good).is_ok(), "{good}");
        }
        let long = "x".repeat(300);
        let id = VolumeId::generate().to_string();
        for bad in ["", "a/b", "..", "a..b", ".hidden", "-o", "nul\0", "ü", "a b", &long, &id] {
            assert!(Alias::native(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn each_scope_has_its_own_rules() {
        assert!(Alias::new(Scope::Csi, "pvc/ü 1").is_ok());
        assert!(Alias::new(Scope::Csi, "a\nb").is_err());
        assert!(Alias::new(Scope::Csi, "é".repeat(65)).is_err());
        assert!(Alias::new(Scope::Heketi, "0f0f").is_ok());
        assert!(Alias::new(Scope::Heketi, "xyz").is_err());
    }

    #[test]
    fn a_record_with_a_bad_alias_is_refused() {
        let bad = r#"{"scope":"native","name":"../etc"}"#;
        assert!(serde_json::from_str::<Alias>(bad).is_err());
    }

    #[test]
    fn labels_are_patched_and_bounded() {
        let labels = Labels::try_from(BTreeMap::from([("a".into(), "1".into())])).unwrap();
        let patch = BTreeMap::from([("a".into(), None), ("b/c".into(), Some("2".into()))]);

        let patched = labels.patched(&patch).unwrap();

        assert_eq!(patched.get("a"), None);
        assert_eq!(patched.get("b/c"), Some("2"));
        let many: BTreeMap<_, _> = (0..65).map(|n| (n.to_string(), String::new())).collect();
        assert!(Labels::try_from(many).is_err());
    }

    proptest! {
        #[test]
        fn an_accepted_native_name_is_harmless(text in "\\PC{0,140}") {
            if let Ok(alias) = Alias::native(text) {
                prop_assert!(!alias.name().contains(['/', '\0']) && !alias.name().contains(".."));
            }
        }

        #[test]
        fn no_text_makes_any_grammar_panic(text in "\\PC{0,200}", value in "\\PC{0,300}") {
            for scope in [Scope::Native, Scope::Csi, Scope::Heketi, Scope::Docker, Scope::Flex, Scope::Pv] {
                let _ = Alias::new(scope, text.as_str());
            }
            let _ = text.parse::<ClassName>();
            let _ = text.parse::<NodeId>();
            let _ = Labels::try_from(BTreeMap::from([(text.clone(), value)]));
            let _ = crate::volume::VolumeRef::parse(&text);
            let _ = crate::snapshot::SnapshotRef::parse(&text);
        }
    }
}
