//! The two kinds of objects that hold records, and which keys are in which.

use hawser_core::port::store::{Key, Prefix};

use crate::SECRETS;

/// A resource of the API server. Each has its own list and its own watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// `records.hawser.storage`: everything but secrets.
    Records,
    /// `secrets` of the core: keys below `secret/`, so that whatever a cluster does to protect
    /// secrets (encryption at rest, rights, audit rules) protects these.
    Secrets,
}

/// What marks the secrets of a store among those of others in the same namespace.
pub(super) const SECRET_LABEL: &str = "hawser.storage/record";

impl Resource {
    pub(super) const ALL: [Self; 2] = [Self::Records, Self::Secrets];

    /// Where the key is kept.
    pub(super) fn of(key: &Key) -> Self {
        if key.as_str().starts_with(SECRETS) { Self::Secrets } else { Self::Records }
    }

    /// Where keys below the prefix may be kept. A prefix is a whole key and a `/`, or nothing, so
    /// only the prefix of all keys reaches into both.
    pub(super) fn below(prefix: &Prefix) -> &'static [Self] {
        match prefix.as_str() {
            "" => &Self::ALL,
            text if text.starts_with(SECRETS) => &[Self::Secrets],
            _ => &[Self::Records],
        }
    }

    /// Its place in an array of one thing for each resource.
    pub(super) fn index(self) -> usize {
        match self {
            Self::Records => 0,
            Self::Secrets => 1,
        }
    }

    /// The objects of a namespace, as a path of the API server.
    pub(super) fn path(self, namespace: &str) -> String {
        match self {
            Self::Records => format!("/apis/hawser.storage/v1/namespaces/{namespace}/records"),
            Self::Secrets => format!("/api/v1/namespaces/{namespace}/secrets"),
        }
    }

    /// What a list or a watch adds to its query so that it sees objects of the store alone.
    pub(super) fn selector(self) -> &'static str {
        match self {
            Self::Records => "",
            Self::Secrets => "&labelSelector=hawser.storage%2Frecord%3Dtrue",
        }
    }

    /// `apiVersion` and `kind` of an object.
    pub(super) fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Records => ("hawser.storage/v1", "Record"),
            Self::Secrets => ("v1", "Secret"),
        }
    }

    /// One object, in messages.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Records => "record",
            Self::Secrets => "secret",
        }
    }

    /// What object names begin with: secrets share their names with those of everybody else.
    pub(super) fn name_prefix(self) -> &'static str {
        match self {
            Self::Records => "",
            Self::Secrets => "hawser.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_below_secret_become_secrets() {
        let cases = [
            ("secret/a", Resource::Secrets),
            ("secret/a/b", Resource::Secrets),
            ("secret", Resource::Records),
            ("secrets/a", Resource::Records),
            ("volume/secret/a", Resource::Records),
        ];

        for (key, wanted) in cases {
            assert_eq!(Resource::of(&key.parse().unwrap()), wanted, "{key}");
        }
    }

    #[test]
    fn a_prefix_knows_where_its_keys_are() {
        assert_eq!(Resource::below(&Prefix::all()), Resource::ALL);
        assert_eq!(Resource::below(&Prefix::below(&["volume"])), [Resource::Records]);
        assert_eq!(Resource::below(&Prefix::below(&["secret"])), [Resource::Secrets]);
        assert_eq!(Resource::below(&Prefix::below(&["secret", "a"])), [Resource::Secrets]);
        assert_eq!(Resource::below(&Prefix::below(&["secrets"])), [Resource::Records]);
    }

    #[test]
    fn the_selector_is_the_label() {
        let label = SECRET_LABEL.replace('/', "%2F");
        assert_eq!(Resource::Secrets.selector(), format!("&labelSelector={label}%3Dtrue"));
    }
}
