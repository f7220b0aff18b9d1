//! The demo's data: files that can be told apart, and one checksum over all of them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

const FILES: u64 = 8;
const FILE_SIZE: usize = 4 << 20;

/// Work for [`super::stage::Stage::step`]: writes the files and answers their checksum.
pub(super) fn write_files(
    dir: &Path,
    seed: u64,
) -> impl FnOnce() -> io::Result<String> + Send + 'static + use<> {
    let dir = dir.to_owned();
    move || {
        for number in 0..FILES {
            let mut file = File::create(dir.join(format!("file-{number}")))?;
            file.write_all(&noise(seed * 1000 + number))?;
            file.sync_all()?;
        }
        checksum(&dir)
    }
}

/// Bytes that no file system or disk can guess: a xorshift generator.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(FILE_SIZE);
    while bytes.len() < FILE_SIZE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// One checksum over the names and the contents of all files in a folder.
pub(super) fn checksum(dir: &Path) -> io::Result<String> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        hash.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        let mut bytes = Vec::new();
        File::open(path)?.read_to_end(&mut bytes)?;
        hash.update(&bytes);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_changes_the_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let first = write_files(dir.path(), 1)().unwrap();
        assert_eq!(checksum(dir.path()).unwrap(), first);

        fs::write(dir.path().join("file-3"), b"x").unwrap();

        assert_ne!(checksum(dir.path()).unwrap(), first);
    }
}
