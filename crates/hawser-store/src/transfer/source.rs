//! Reads an export: once to check all of it, then again to use it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::sync::Arc;

use bytes::Bytes;
use hawser_core::port::store::Key;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::error::{LineError, TransferError};
use super::line::{self, LONGEST_LINE, Line};

/// An export without a fault in it.
pub(super) struct Checked {
    /// The keys it has.
    pub(super) keys: BTreeSet<Key>,
    /// Its lines, to be read again.
    pub(super) spool: Spool,
}

/// A thread that reads; it says whether it came to the end.
pub(super) type Reading = JoinHandle<Result<(), TransferError>>;

/// A nameless copy of an export: the original may be a pipe, which cannot be read twice, or may
/// change between the two readings.
#[derive(Clone)]
pub(super) struct Spool(Arc<File>);

impl Spool {
    /// Reads the records again, on a thread of their own.
    pub(super) fn replay(self) -> (mpsc::Receiver<(Key, Bytes)>, Reading) {
        let (sender, records) = mpsc::channel(64);
        let read = spawn_blocking(move || {
            let mut file: &File = &self.0;
            file.rewind().map_err(TransferError::Spool)?;
            let mut lines = Lines::new(BufReader::new(file), TransferError::Spool);
            // The header was checked.
            lines.next()?;
            while let Some((line, text)) = lines.next()? {
                let record =
                    line::parse(text).map_err(|source| TransferError::Line { line, source })?;
                let Line::Record(key, value) = record else { break };
                if sender.blocking_send((key, value)).is_err() {
                    // Whoever took them has failed and says why.
                    break;
                }
            }
            Ok(())
        });
        (records, read)
    }
}

/// Checks every line and keeps a copy of them. Blocks.
pub(super) fn check(reader: impl Read) -> Result<Checked, TransferError> {
    let file = tempfile::tempfile().map_err(TransferError::Spool)?;
    let mut copy = BufWriter::new(&file);
    let mut lines = Lines::new(BufReader::new(reader), TransferError::Read);
    let mut keys = BTreeSet::new();
    let mut ended = false;
    while let Some((line, text)) = lines.next()? {
        copy.write_all(text).map_err(TransferError::Spool)?;
        ended = check_line(text, line, ended, &mut keys)
            .map_err(|source| TransferError::Line { line, source })?;
    }
    if !ended {
        let source = if lines.number == 0 { LineError::NoHeader } else { LineError::Truncated };
        return Err(TransferError::Line { line: lines.number + 1, source });
    }
    copy.flush().map_err(TransferError::Spool)?;
    drop(copy);
    Ok(Checked { keys, spool: Spool(Arc::new(file)) })
}

/// Checks one line against those before it; true when it was the last.
fn check_line(
    text: &[u8],
    number: u64,
    ended: bool,
    keys: &mut BTreeSet<Key>,
) -> Result<bool, LineError> {
    if number == 1 {
        return line::parse_header(text).map(|()| false);
    }
    if ended {
        return Err(LineError::Trailing);
    }
    match line::parse(text)? {
        Line::Record(key, _) if keys.contains(&key) => Err(LineError::Twice(key)),
        Line::Record(key, _) => {
            keys.insert(key);
            Ok(false)
        }
        Line::End(said) => {
            let found = keys.len() as u64;
            if said == found { Ok(true) } else { Err(LineError::Count { said, found }) }
        }
    }
}

/// Lines of bounded length.
struct Lines<R> {
    reader: R,
    /// What a failure of the reader means.
    failed: fn(io::Error) -> TransferError,
    buffer: Vec<u8>,
    /// The number of the last line, from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn new(reader: R, failed: fn(io::Error) -> TransferError) -> Self {
        Self { reader, failed, buffer: Vec::new(), number: 0 }
    }

    /// The next line with its number and its line end; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<(u64, &[u8])>, TransferError> {
        self.buffer.clear();
        let mut bounded = self.reader.by_ref().take(LONGEST_LINE as u64 + 1);
        let length = bounded.read_until(b'\n', &mut self.buffer).map_err(self.failed)?;
        if length == 0 {
            return Ok(None);
        }
        self.number += 1;
        if length > LONGEST_LINE {
            return Err(TransferError::Line { line: self.number, source: LineError::TooLong });
        }
        Ok(Some((self.number, &self.buffer)))
    }
}
