//! The mount table, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use hawser_core::port::host::MountEntry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::MountError;
use super::options::LABELS;

const MOUNTINFO: &str = "/proc/self/mountinfo";
/// How often the table is read again when it changes meanwhile; on a host that mounts without
/// pause, the last reading has to do.
const READINGS: usize = 8;

/// Reads the mount table of this process's namespace, in mount order.
pub(crate) fn read() -> Result<Vec<MountEntry>, MountError> {
    let mut file = File::open(MOUNTINFO).map_err(MountError::ReadTable)?;
    let mut text = Vec::new();
    for _ in 0..READINGS {
        text.clear();
        file.rewind().map_err(MountError::ReadTable)?;
        file.read_to_end(&mut text).map_err(MountError::ReadTable)?;
        // The table is read page by page, so a change in between could hide a mount. The kernel
        // marks the file when that happened since the last look.
        let mut polled = [PollFd::new(&file, PollFlags::PRI)];
        let changed = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if !matches!(changed, Ok(events) if events > 0) {
            break;
        }
    }
    parse(&text)
}

/// Reads the text of a mount table. A line that is not understood is an error: a table with a
/// mount missing is worse than none.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<MountEntry>, MountError> {
    text.split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            parse_line(line).ok_or_else(|| MountError::MalformedTable {
                line: index + 1,
                text: String::from_utf8_lossy(line).chars().take(200).collect(),
            })
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    // Exactly one space each: a source may be empty.
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let root = path(fields.next()?);
    let target = path(fields.next()?);
    let options = list(fields.next()?);
    let propagation: Vec<_> =
        fields.by_ref().take_while(|field| *field != b"-").map(text).collect();
    let fs_type = text(fields.next()?);
    let source = text(fields.next()?);
    let super_options = list(fields.next()?);
    Some(MountEntry {
        id,
        parent,
        device,
        root,
        target,
        options,
        propagation,
        fs_type,
        source,
        super_options,
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// The options of a field. A label of SELinux that has commas stands in quotes.
fn list(field: &[u8]) -> Vec<String> {
    let mut options: Vec<Vec<u8>> = Vec::new();
    for part in field.split(|byte| *byte == b',') {
        match options.last_mut().filter(|option| is_open_label(option)) {
            Some(option) => {
                option.push(b',');
                option.extend_from_slice(part);
            }
            None => options.push(part.to_vec()),
        }
    }
    options.iter().map(|option| text(option)).collect()
}

/// True when the quotes of a label are not closed yet. Quotes of others mean nothing: whoever named a
/// share could hide options behind them.
fn is_open_label(option: &[u8]) -> bool {
    let Some(at) = option.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&option[..at], &option[at + 1..]);
    let label = LABELS.iter().any(|name| name.as_bytes() == key);
    label && value.starts_with(b"\"") && (value.len() == 1 || !value.ends_with(b"\""))
}

/// Undoes the kernel's `\ooo`; anything else after a backslash stays as it is.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}
