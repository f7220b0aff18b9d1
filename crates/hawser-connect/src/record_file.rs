//! The files of the registry: written aside, synced, renamed, and the folder synced.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hawser_core::Change;
use hawser_core::attach::AttachRecord;
use hawser_core::id::PublicationId;
use hawser_core::port::registry::Registered;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::error::{RegistryError, Unreadable};

/// The format that this version writes. A larger one is refused: it may mean something else.
const FORMAT: u64 = 1;

/// Records are a few KiB; a file beyond this is none, and is not read into memory.
const LARGEST: u64 = 1 << 20;

/// Files that are being written start with this and never look like records.
const ASIDE: &str = ".new-";

/// What stands in a file, as it is written.
#[derive(Serialize)]
struct Written<'a> {
    format: u64,
    record: &'a AttachRecord,
}

/// Read first, so that a newer format is told apart from garbage.
#[derive(Deserialize)]
struct Envelope {
    format: u64,
    record: serde_json::Value,
}

/// Makes the folder private, and clears away what dead writers left.
pub(crate) fn prepare(dir: &Path) -> Result<(), RegistryError> {
    let failed = |source| RegistryError::Folder { path: dir.into(), source };
    if let Some(run_dir) = dir.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(run_dir).map_err(failed)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let meta = fs::symlink_metadata(dir).map_err(failed)?;
    if !meta.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    if meta.mode() & 0o7777 != 0o700 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    alone(dir).map(drop).map_err(failed)
}

/// Keeps all other writers of the folder out, and clears away what dead ones left: whoever has the
/// lock knows that no file that is being written has a writer.
fn alone(dir: &Path) -> io::Result<File> {
    let folder = File::open(dir)?;
    flock(&folder, FlockOperation::LockExclusive)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(ASIDE) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(folder)
}

fn path_of(dir: &Path, publication: &PublicationId) -> PathBuf {
    dir.join(format!("{publication}.json"))
}

/// One record; `None` when there is no file.
pub(crate) fn read(
    dir: &Path,
    publication: &PublicationId,
) -> Result<Option<AttachRecord>, RegistryError> {
    let path = path_of(dir, publication);
    match read_file(&path, publication) {
        Ok(record) => Ok(Some(record)),
        Err(Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RegistryError::Unreadable { path, source }),
    }
}

fn read_file(path: &Path, publication: &PublicationId) -> Result<AttachRecord, Unreadable> {
    // Looked at before it is opened: opening a device or a pipe has effects or waits.
    let meta = fs::symlink_metadata(path).map_err(Unreadable::Io)?;
    if !meta.is_file() {
        return Err(Unreadable::NoFile);
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32)
        .open(path)
        .map_err(Unreadable::Io)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Unreadable::TooLarge);
    }
    parse(&bytes, publication)
}

/// The record in these bytes, if it is the one of this publication.
pub(crate) fn parse(bytes: &[u8], publication: &PublicationId) -> Result<AttachRecord, Unreadable> {
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(Unreadable::Json)?;
    if envelope.format > FORMAT {
        return Err(Unreadable::Newer { found: envelope.format, known: FORMAT });
    }
    let record: AttachRecord = serde_json::from_value(envelope.record).map_err(Unreadable::Json)?;
    if record.publication != *publication {
        return Err(Unreadable::Misplaced);
    }
    Ok(record)
}

/// Writes a record so that a reader, and a power cut, meet the old or the new one.
pub(crate) fn write(dir: &Path, record: &AttachRecord) -> Result<(), RegistryError> {
    let path = path_of(dir, &record.publication);
    // A file that this version does not understand may be all that names a device: it stays.
    read(dir, &record.publication)?;
    let aside = dir.join(format!("{ASIDE}{}", record.publication));
    let written = alone(dir).and_then(|folder| {
        write_aside(&aside, record)?;
        fs::rename(&aside, &path)?;
        Ok(folder)
    });
    let folder = match written {
        Ok(folder) => folder,
        Err(source) => {
            let _ = fs::remove_file(&aside);
            return Err(RegistryError::Write { path, source });
        }
    };
    folder.sync_all().map_err(|source| RegistryError::Sync { path, source })
}

fn write_aside(aside: &Path, record: &AttachRecord) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(&Written { format: FORMAT, record })?;
    bytes.push(b'\n');
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(aside)?;
    file.write_all(&bytes)?;
    file.sync_all()
}

/// Removes a record; a file that is none stays, for a person to look at.
pub(crate) fn remove(dir: &Path, publication: &PublicationId) -> Result<Change<()>, RegistryError> {
    let path = path_of(dir, publication);
    read(dir, publication)?;
    let removed = alone(dir).and_then(|folder| match fs::remove_file(&path) {
        Ok(()) => Ok(Some(folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    });
    match removed {
        Ok(None) => Ok(Change::Already(())),
        Ok(Some(folder)) => match folder.sync_all() {
            Ok(()) => Ok(Change::Made(())),
            Err(source) => Err(RegistryError::Sync { path, source }),
        },
        Err(source) => Err(RegistryError::Remove { path, source }),
    }
}

/// All records, and every other file with the reason why it is none.
pub(crate) fn list(dir: &Path) -> Result<Registered, RegistryError> {
    let failed = |source| RegistryError::List { path: dir.into(), source };
    let mut found = Registered::default();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(ASIDE) {
            continue;
        }
        let publication = name
            .to_str()
            .and_then(|name| name.strip_suffix(".json"))
            .and_then(|id| id.parse::<PublicationId>().ok());
        let read = match publication {
            Some(publication) => read_file(&entry.path(), &publication),
            None => Err(Unreadable::Name),
        };
        match read {
            Ok(record) => found.records.push(record),
            // Removed since the folder was read.
            Err(Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(why) => found.unreadable.push((entry.path(), why.to_string())),
        }
    }
    found.records.sort_by(|a, b| a.publication.cmp(&b.publication));
    found.unreadable.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// A record as a file of format 1 holds it.
    fn sample(publication: &PublicationId) -> Value {
        json!({ "format": 1, "record": {
            "publication": publication, "volume": "vol-01k5zzzzzzzzzzzzzzzzzzzzzz",
            "info": { "driver_volume_type": "LOCAL", "data": { "path": "/p", "qos": { "a": 1 } } },
            "attach": { "deadline": { "secs": 60, "nanos": 0 }, "read_only": true,
                        "mount_flags": ["noatime"], "multipath": "off" },
            "state": "attached",
            "attached": { "type": "block", "device": "/dev/loop3", "size": 1_073_741_824,
                          "identity": { "scheme": "image", "value": "v" } },
            "mounts": [{ "target": "/mnt", "read_only": false, "flags": [], "ready": true,
                         "made_target": true }],
            "frozen": null, "instance": "inst-01k5zzzzzzzzzzzzzzzzzzzzzz",
            "boot_id": "b", "created": "2024-05-01T12:00:00Z" } })
    }

    #[test]
    fn the_format_on_disk_does_not_change_by_accident() {
        let publication: PublicationId = "pub-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap();
        let sample = sample(&publication);

        let record = parse(sample.to_string().as_bytes(), &publication).unwrap();

        let written = serde_json::to_value(Written { format: FORMAT, record: &record }).unwrap();
        assert_eq!(written, sample);
    }

    #[test]
    fn newer_formats_and_misplaced_records_are_told_apart_from_garbage() {
        let publication = PublicationId::generate();
        let read = |value: &Value| parse(value.to_string().as_bytes(), &publication).unwrap_err();
        let mut newer = sample(&publication);
        newer["format"] = json!(2);
        newer["record"] = json!("whatever that will be");

        assert!(matches!(read(&newer), Unreadable::Newer { found: 2, known: 1 }));
        let misplaced = sample(&PublicationId::generate());
        assert!(matches!(read(&misplaced), Unreadable::Misplaced));
        assert!(matches!(read(&json!({ "format": 1 })), Unreadable::Json(_)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(parse(&bytes, &PublicationId::generate()).is_err());
        }

        #[test]
        fn a_torn_record_is_never_read(cut in 0.0..1.0_f64, flip in any::<u8>()) {
            let publication = PublicationId::generate();
            let whole = sample(&publication).to_string().into_bytes();
            let at = ((whole.len() as f64) * cut) as usize;
            prop_assert!(parse(&whole[..at], &publication).is_err());
            let mut bent = whole.clone();
            bent[at] = flip;
            // May still be a record, such as when a digit changed; must not be another one's.
            if let Ok(record) = parse(&bent, &publication) {
                prop_assert_eq!(record.publication, publication);
            }
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "attach_record", |bytes| {
        let publication = "pub-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap();
        if let Ok(record) = parse(bytes, &publication) {
            assert_eq!(record.publication, publication);
        }
    });
}
