//! What is on a fake device: a signature in the first bytes of the real file behind it.
//!
//! The content lives in the file and not in memory, so it follows the file through renames, copies
//! by whatever means, detach, reboot and restart, just as a real file system does.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use hawser_core::error::Result;
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::Content;
use hawser_core::{Error, Kind};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Stands at the beginning of every file that holds a fake signature.
const MAGIC: &[u8; 16] = b"hawser-fake-fs1\n";

/// The length of a signature with its magic; what a probe must be able to read.
const BLOCK: usize = 4096;

/// How sound a fake file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Soundness {
    /// A check finds nothing.
    Clean,
    /// A check repairs it.
    Dirty,
    /// A check refuses; it cannot be mounted.
    Broken,
}

/// What a file carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Signature {
    /// A file system of ours.
    Filesystem { fs: FsKind, uuid: Uuid, size: u64, sound: Soundness },
    /// Something else, by its type.
    Other(String),
}

/// The signature of a file; `None` when it carries none.
pub(super) fn read(file: &File) -> Result<Option<Signature>> {
    let mut block = [0_u8; BLOCK];
    file.read_exact_at(&mut block, 0).map_err(|error| failed("reading a device", &error))?;
    let Some(rest) = block.strip_prefix(MAGIC.as_slice()) else { return Ok(None) };
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    serde_json::from_slice(&rest[..end])
        .map(Some)
        .map_err(|error| Error::new(Kind::Internal, format!("a fake signature is torn: {error}")))
}

/// Writes a signature over the beginning of a file.
pub(super) fn write(file: &File, signature: &Signature) -> Result<()> {
    let mut block = MAGIC.to_vec();
    serde_json::to_writer(&mut block, signature)
        .map_err(|error| Error::new(Kind::Internal, error.to_string()))?;
    assert!(block.len() < BLOCK, "a fake signature fits in one block");
    block.resize(BLOCK, 0);
    file.write_all_at(&block, 0).map_err(|error| failed("writing a device", &error))
}

/// What is on a device, as a probe of the real one would say.
pub(super) fn probe(file: &File) -> Result<Content> {
    Ok(match read(file)? {
        Some(Signature::Filesystem { fs, uuid, .. }) => {
            Content::Filesystem { fs, uuid: Some(uuid) }
        }
        Some(Signature::Other(kind)) => Content::Other(kind),
        None if is_zero(file).map_err(|error| failed("reading a device", &error))? => {
            Content::Blank
        }
        None => Content::Data,
    })
}

/// Reads only what is no hole: images are sparse and can be large.
fn is_zero(file: &File) -> io::Result<bool> {
    let mut buffer = vec![0_u8; 64 << 10];
    for (start, end) in extents(file)? {
        let mut at = start;
        while at < end {
            let want = buffer.len().min(usize::try_from(end - at).unwrap_or(buffer.len()));
            let got = file.read_at(&mut buffer[..want], at)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if buffer[..got].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += got as u64;
        }
    }
    Ok(true)
}

/// Where a file has data, in order.
pub(super) fn extents(file: &File) -> io::Result<Vec<(u64, u64)>> {
    let mut extents = Vec::new();
    let mut at = 0;
    loop {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(extents),
            Err(error) => return Err(error.into()),
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        extents.push((start, at));
    }
}

fn failed(attempt: &str, error: &io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("{attempt} failed: {error}"))
}
