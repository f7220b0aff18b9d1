//! The names of objects: each key has one, no two keys share one, and Kubernetes accepts all.
//!
//! A key whose segments are DNS labels is its own name with `.` for `/`: `volume/01k2…` is
//! `volume.01k2…`. Any other key (escapes, dots, capitals, too long) gets a name of what is readable
//! in it, `--` and the SHA-256 of the whole. Plain names never hold `--`, so the two kinds stay
//! apart. Escaping byte by byte was the other way; it makes names that nobody can read either and
//! does not fit where 512 bytes of key meet 253 of name. The object holds the key itself, and whoever
//! reads an object compares.

use std::fmt::Write as _;

use hawser_core::port::store::Key;
use sha2::{Digest, Sha256};

use super::resource::Resource;

/// The longest name of an object: a DNS-1123 subdomain.
const LONGEST_NAME: usize = 253;

/// How much of a key is shown in a name that is not the key.
const LONGEST_STUB: usize = 100;

/// The object that is written only to see the watch come past it. No key has this name: it holds
/// `--`, and no hash.
pub(super) const TICK: &str = "hawser--tick";

/// The name of the object that holds a key.
pub(super) fn object_name(key: &Key) -> String {
    let prefix = Resource::of(key).name_prefix();
    let text = key.as_str();
    if prefix.len() + text.len() <= LONGEST_NAME && is_plain(text) {
        return format!("{prefix}{}", text.replace('/', "."));
    }
    let mut name = format!("{prefix}{}--", stub(text));
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a text cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// True when the key with `.` for `/` is a legal name that says all of it.
fn is_plain(key: &str) -> bool {
    let is_label = |segment: &str| {
        segment.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !segment.starts_with('-')
            && !segment.ends_with('-')
    };
    !key.contains("--") && key.split('/').all(is_label)
}

/// The beginning of a key as far as a name can show it: labels without `--`, or `key`.
fn stub(key: &str) -> String {
    let mut stub = String::new();
    for byte in key.bytes().take(LONGEST_STUB) {
        let shown = match byte {
            b'a'..=b'z' | b'0'..=b'9' => byte as char,
            b'/' => '.',
            _ => '-',
        };
        // A label neither begins nor ends with `-`, and none is empty.
        let after_sign = stub.is_empty() || stub.ends_with(['.', '-']);
        match shown {
            '-' if after_sign => {}
            '.' => {
                stub.truncate(stub.trim_end_matches('-').len());
                if !stub.is_empty() && !stub.ends_with('.') {
                    stub.push('.');
                }
            }
            _ => stub.push(shown),
        }
    }
    stub.truncate(stub.trim_end_matches(['.', '-']).len());
    if stub.is_empty() { "key".into() } else { stub }
}

/// As the API server checks a name.
#[cfg(test)]
pub(super) fn is_legal(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        label.bytes().all(|b| inner(b) || b == b'-')
            && label.bytes().next().is_some_and(inner)
            && label.bytes().last().is_some_and(inner)
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> Key {
        text.parse().expect("a legal key")
    }

    #[test]
    fn a_plain_key_is_its_own_name() {
        assert_eq!(object_name(&key("volume/01k2abc")), "volume.01k2abc");
        assert_eq!(object_name(&key("name/volume/csi/pvc-6f2")), "name.volume.csi.pvc-6f2");
        assert_eq!(object_name(&key("secret/cinder")), "hawser.secret.cinder");
    }

    #[test]
    fn any_other_key_shows_what_it_can_and_its_hash() {
        for (text, shown) in [
            ("name/native/My_Volume", "name.native.y-olume--"),
            ("name/%2F..", "name.2--"),
            ("a/-/b", "a.b--"),
            ("%", "key--"),
            ("a--b", "a-b--"),
            ("secret/A", "hawser.secret--"),
        ] {
            let name = object_name(&key(text));
            let hash = name.strip_prefix(shown).unwrap_or_else(|| panic!("{text}: {name}"));
            assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
            assert!(is_legal(&name), "{name}");
        }
    }

    #[test]
    fn the_longest_keys_have_legal_names_of_their_own() {
        let plain = "x".repeat(LONGEST_NAME);
        assert_eq!(object_name(&key(&plain)), plain);

        let longer = format!("{plain}x");
        let (one, two) = (format!("{}a", "x".repeat(511)), format!("{}b", "x".repeat(511)));
        let names = [longer, one, two].map(|text| object_name(&key(&text)));

        assert!(names.iter().all(|name| is_legal(name)), "{names:?}");
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
    }

    #[test]
    fn a_key_that_looks_like_the_name_of_another_has_one_of_its_own() {
        let hashed = object_name(&key("A"));
        assert_ne!(object_name(&key(&hashed)), hashed);
        assert_ne!(object_name(&key(TICK)), TICK);
        assert_ne!(object_name(&key("a.b")), object_name(&key("a/b")));
    }

    /// Texts that come close to each other: few characters, many signs.
    fn near() -> impl Strategy<Value = String> {
        "[a-c%A./_-]{1,8}".prop_filter("no key", |text| text.parse::<Key>().is_ok())
    }

    fn any_key() -> impl Strategy<Value = String> {
        "[a-z0-9._%A-Z-]{1,60}(/[a-z0-9._%A-Z-]{1,60}){0,7}"
            .prop_filter("no key", |text| text.parse::<Key>().is_ok())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn two_keys_never_share_a_name(one in near(), two in near()) {
            let names = [&one, &two].map(|text| object_name(&key(text)));
            prop_assert_eq!(one == two, names[0] == names[1]);
        }

        #[test]
        fn every_key_has_a_legal_name(near in near(), any in any_key()) {
            for text in [near, any] {
                for text in [text.clone(), format!("secret/{text}")] {
                    let Ok(key) = text.parse::<Key>() else { continue };
                    let name = object_name(&key);
                    prop_assert!(is_legal(&name), "{text}: {name}");
                    prop_assert!(name != TICK);
                }
            }
        }
    }
}
