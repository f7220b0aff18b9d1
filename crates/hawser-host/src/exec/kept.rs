//! Where the output of a program goes that leaves a daemon behind.
//!
//! Such a daemon may keep the program's output open for as long as it lives. A pipe would have to be
//! read for ever, or the daemon dies of it (`SIGPIPE`) the next time it has something to say. So it
//! gets a file in memory of a fixed size: what fits is kept, later words are refused, and nobody
//! waits.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, ftruncate, memfd_create, seek};

/// Output that is kept in memory.
pub(super) struct Kept {
    file: OwnedFd,
    room: usize,
}

impl Kept {
    pub(super) fn new(room: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("hawser-output", flags)?;
        ftruncate(&file, room as u64)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK)?;
        Ok(Self { file, room })
    }

    /// The end that the program writes to.
    pub(super) fn end(&self) -> io::Result<Stdio> {
        Ok(Stdio::from(self.file.try_clone()?))
    }

    /// What has been written until now.
    pub(super) fn text(self) -> io::Result<Vec<u8>> {
        // Both ends are one open file: its position is where the program stopped.
        let written = seek(&self.file, SeekFrom::Current(0))?;
        let length = usize::try_from(written).unwrap_or(self.room).min(self.room);
        let mut text = vec![0; length];
        File::from(self.file).read_exact_at(&mut text, 0)?;
        Ok(text)
    }
}
