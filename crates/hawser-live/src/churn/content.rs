//! What clients write into volumes: files that say themselves what must be in them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::rng::Rng;

/// The files of a volume: name and seed of the content.
pub(super) type Files = BTreeMap<String, u64>;

/// Writes a file of this seed, whole or not at all, and answers when it is on the medium.
pub(super) fn write(folder: &Path, name: &str, seed: u64) -> io::Result<()> {
    let aside = folder.join(format!(".{name}"));
    let mut file = File::create(&aside)?;
    file.write_all(&content(seed))?;
    file.sync_all()?;
    fs::rename(&aside, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Reads every file and checks that it is what its own seed says.
pub(super) fn read(folder: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The rest is the file system's own, or was being written when a copy was made.
        if !name.starts_with('f') {
            continue;
        }
        let bytes = fs::read(entry.path())?;
        let seed = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
        match seed {
            Some(seed) if bytes == content(seed) => files.insert(name, seed),
            Some(_) | None => {
                let message = format!("{}: {} bytes, damaged", entry.path().display(), bytes.len());
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        };
    }
    Ok(files)
}

/// The seed itself, then 4 to 64 KiB that no file system can guess.
fn content(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let length = usize::try_from(rng.range(4 << 10, 64 << 10)).expect("small");
    let mut bytes = seed.to_le_bytes().to_vec();
    while bytes.len() < length {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_back_and_damage_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "f1", 7).unwrap();
        write(dir.path(), "f2", 8).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Files::from([("f1".into(), 7), ("f2".into(), 8)]));

        let path = dir.path().join("f1");
        let mut bytes = fs::read(&path).unwrap();
        bytes[3000] ^= 1;
        fs::write(&path, bytes).unwrap();

        assert!(read(dir.path()).is_err());
    }
}
