//! Requests to the device mapper and its answers, as bytes.

use hawser_core::port::kernel::MapTarget;
use rustix::io::Errno;

use crate::sys::dm::layout;

/// The version of the interface that everything used here has been in; newer kernels accept it.
const VERSION: [u32; 3] = [4, 0, 0];
/// `struct dm_target_msg`: the sector whose target is meant, then the text.
const SECTOR: [u8; 8] = [0; 8];

/// The head of a request about one map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    head: [u8; layout::HEADER],
}

impl Request {
    /// `EINVAL` for a name that no map can have.
    pub(super) fn new(name: &str, flags: u32) -> Result<Self, Errno> {
        if name.is_empty() || name.len() >= layout::NAME_ROOM || name.contains(['\0', '/']) {
            return Err(Errno::INVAL);
        }
        let mut request = Self { head: [0; layout::HEADER] };
        for (number, part) in VERSION.into_iter().enumerate() {
            request.put(layout::VERSION + 4 * number, part);
        }
        request.put(layout::DATA_START, layout::HEADER as u32);
        request.put(layout::FLAGS, flags);
        request.head[layout::NAME..layout::NAME + name.len()].copy_from_slice(name.as_bytes());
        Ok(request)
    }

    fn put(&mut self, at: usize, value: u32) {
        self.head[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// The request, with room for an answer up to a whole length.
    pub(super) fn buffer(&self, length: usize) -> Vec<u8> {
        let mut buffer = self.head.to_vec();
        buffer.resize(length.max(layout::HEADER), 0);
        buffer
    }

    /// The request with a message for the first target.
    pub(super) fn message(&self, text: &str) -> Result<Vec<u8>, Errno> {
        if text.contains('\0') {
            return Err(Errno::INVAL);
        }
        Ok([&self.head[..], &SECTOR, text.as_bytes(), b"\0"].concat())
    }
}

/// True when the kernel had more to tell than there was room for.
pub(super) fn is_cut_short(answer: &[u8]) -> bool {
    number(answer, layout::FLAGS).is_some_and(|flags| flags & layout::FLAG_FULL != 0)
}

/// The targets in an answer of `DM_TABLE_STATUS`.
pub(super) fn targets(answer: &[u8]) -> Result<Vec<MapTarget>, &'static str> {
    let short = "it is cut short";
    let size = number(answer, layout::DATA_SIZE).ok_or(short)? as usize;
    let start = number(answer, layout::DATA_START).ok_or(short)? as usize;
    let count = number(answer, layout::TARGET_COUNT).ok_or(short)? as usize;
    if count == 0 {
        // A map without a table tells a size without data.
        return Ok(Vec::new());
    }
    let data = answer.get(start..size).ok_or(short)?;
    let mut targets = Vec::new();
    let mut at = 0_usize;
    while targets.len() < count {
        let spec = data.get(at..).filter(|spec| spec.len() >= layout::SPEC).ok_or(short)?;
        let next = number(spec, layout::SPEC_NEXT).ok_or(short)? as usize;
        // The offset of the next one counts from the first.
        if next <= at + layout::SPEC {
            return Err("a target ends before it begins");
        }
        let kind = spec.get(layout::SPEC_TYPE..layout::SPEC).ok_or(short)?;
        // The next one begins on a multiple of eight, and the last one ends with its text.
        let parameters = spec.get(layout::SPEC..(next - at).min(spec.len())).ok_or(short)?;
        targets.push(MapTarget {
            start: long(spec, layout::SPEC_START).ok_or(short)?,
            length: long(spec, layout::SPEC_LENGTH).ok_or(short)?,
            kind: text(kind).ok_or(short)?,
            parameters: text(parameters).ok_or(short)?,
        });
        at = next;
    }
    Ok(targets)
}

/// Up to the NUL, without blanks around it; `None` when there is none.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).trim().to_owned())
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|value| u32::from_ne_bytes(*value))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|value| u64::from_ne_bytes(*value))
}
