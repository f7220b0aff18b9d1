//! A short text that stands for a long one.

use sha2::{Digest, Sha256};

/// Crockford's alphabet in lower case, as ids use it.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 26 characters of a digest, legal as the varying part of an id: 128 bits, so that two texts with
/// one digest are not met by chance.
pub(crate) fn short(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let bit = |at: usize| (digest[at / 8] >> (7 - at % 8)) & 1;
    let character = |index: usize| {
        let five = (0..5).fold(0, |sum, at| (sum << 1) | usize::from(bit(index * 5 + at)));
        char::from(ALPHABET[five])
    };
    // The first character of an id is at most 7: a ULID has 128 bits in 26 characters.
    let first = char::from(ALPHABET[usize::from(digest[17]) % 8]);
    std::iter::once(first).chain((1..26).map(character)).collect()
}
