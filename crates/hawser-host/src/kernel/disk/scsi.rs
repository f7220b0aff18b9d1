//! SCSI commands (SPC-4): INQUIRY and PERSISTENT RESERVE IN.

use hawser_core::port::kernel::{
    KernelError, KernelResult, Register, Reservation, ReservationKind,
};
use rustix::io::Errno;

use super::open::Device;
use super::sense::{ScsiFailure, verdict};
use super::{COMMAND_LIMIT, refusal};
use crate::sys::scsi;

/// The longest answer to the first INQUIRY: the most that devices of SPC-2 and before, which look at
/// one byte of the length only, can be asked for on a multiple of four.
const FIRST_PAGE: u16 = 252;
/// The standard answer that every device has.
const FIRST_STANDARD: u16 = 36;
/// Room for 31 keys.
const FIRST_KEYS: u16 = 256;
/// How often a device may say that something has happened to it before it answers. Each thing that
/// happened is told once.
const MOST_ATTENTIONS: usize = 8;
/// How often registrations may change between our two questions.
const MOST_CHANGES: usize = 5;

/// Sends one command and answers what came; `Err` is the device's own word.
type Answered = Result<Vec<u8>, ScsiFailure>;

/// Asks a device who it is. Blocks.
pub(super) fn inquiry(device: &Device, page: Option<u8>) -> KernelResult<Vec<u8>> {
    let attempt = match page {
        Some(page) => format!("INQUIRY page {page:#04x} of {}", device.name()),
        None => format!("INQUIRY of {}", device.name()),
    };
    ask_inquiry(page, |command, length| send(device, command, length))
        .map_err(|error| error.about(attempt))
}

/// Asks a device who is registered and who holds the reservation. Blocks.
pub(super) fn reservation(device: &Device) -> Result<Reservation, ScsiError> {
    ask_reservation(|command, length| send(device, command, length))
}

/// Why a question got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScsiError {
    /// The kernel did not pass it on: this is no SCSI device.
    NotPassed(Errno),
    /// The device, or the way to it, failed.
    Failed(ScsiFailure),
    /// The answer makes no sense.
    Nonsense(String),
}

impl ScsiError {
    pub(super) fn about(self, attempt: String) -> KernelError {
        match self {
            Self::NotPassed(errno) => refusal(attempt, errno),
            Self::Failed(failure) => {
                refusal(format!("{attempt} ({})", failure.words), failure.errno)
            }
            Self::Nonsense(why) => KernelError::Nonsense { attempt, why },
        }
    }
}

/// Passes a command on.
fn send(device: &Device, command: &[u8], length: u16) -> Result<Answered, Errno> {
    let mut data = vec![0; usize::from(length)];
    let answer = scsi::read(device, command, &mut data, COMMAND_LIMIT)?;
    Ok(verdict(&answer).map(|()| {
        data.truncate(answer.length);
        data
    }))
}

/// Sends a command again as long as the device has other things to tell.
fn ask(
    command: &[u8],
    length: u16,
    send: &mut impl FnMut(&[u8], u16) -> Result<Answered, Errno>,
) -> Result<Vec<u8>, ScsiError> {
    let mut attentions = 0;
    loop {
        match send(command, length).map_err(ScsiError::NotPassed)? {
            Ok(data) => return Ok(data),
            Err(failure) if failure.attention && attentions < MOST_ATTENTIONS => attentions += 1,
            Err(failure) => return Err(ScsiError::Failed(failure)),
        }
    }
}

pub(super) fn ask_inquiry(
    page: Option<u8>,
    mut send: impl FnMut(&[u8], u16) -> Result<Answered, Errno>,
) -> Result<Vec<u8>, ScsiError> {
    let mut length = if page.is_some() { FIRST_PAGE } else { FIRST_STANDARD };
    loop {
        let [high, low] = length.to_be_bytes();
        let command = [0x12, u8::from(page.is_some()), page.unwrap_or(0), high, low, 0];
        let mut data = ask(&command, length, &mut send)?;
        let whole = match (page, &*data) {
            (Some(page), [_, other, ..]) if page != *other => {
                return Err(ScsiError::Nonsense(format!("it is page {other:#04x}")));
            }
            (Some(_), [_, _, high, low, ..]) => 4 + usize::from(u16::from_be_bytes([*high, *low])),
            (None, [_, _, _, _, more, ..]) => 5 + usize::from(*more),
            (Some(_) | None, _) => {
                return Err(ScsiError::Nonsense(format!("it has {} bytes", data.len())));
            }
        };
        if data.len() >= whole {
            data.truncate(whole);
            return Ok(data);
        }
        length = longer(length, whole, data.len())?;
    }
}

/// The length for a second question; an error when the first one had asked for all of it.
fn longer(asked: u16, whole: usize, came: usize) -> Result<u16, ScsiError> {
    match u16::try_from(whole) {
        Ok(whole) if whole > asked => Ok(whole),
        Ok(_) | Err(_) => Err(ScsiError::Nonsense(format!("{came} of {whole} bytes came"))),
    }
}

pub(super) fn ask_reservation(
    mut send: impl FnMut(&[u8], u16) -> Result<Answered, Errno>,
) -> Result<Reservation, ScsiError> {
    for _ in 0..MOST_CHANGES {
        let (generation, keys) = read_keys(&mut send)?;
        let held = Held::parse(&ask(&reserve_in(1, 24), 24, &mut send)?)
            .ok_or_else(|| ScsiError::Nonsense("the reservation is cut short".into()))?;
        if held.generation != generation {
            continue;
        }
        let registered = keys.into_iter().map(|key| Register { key, holder: held.is_by(key) });
        return Ok(Reservation {
            generation,
            registered: registered.collect(),
            held: held.by.map(|(kind, _)| kind_of(kind)),
        });
    }
    Err(ScsiError::Nonsense("registrations change all the time".into()))
}

fn reserve_in(action: u8, length: u16) -> [u8; 10] {
    let [high, low] = length.to_be_bytes();
    [0x5e, action, 0, 0, 0, 0, 0, high, low, 0]
}

/// The generation and all keys.
fn read_keys(
    send: &mut impl FnMut(&[u8], u16) -> Result<Answered, Errno>,
) -> Result<(u32, Vec<u64>), ScsiError> {
    let mut length = FIRST_KEYS;
    loop {
        let data = ask(&reserve_in(0, length), length, send)?;
        let (generation, rest) = head(&data)
            .ok_or_else(|| ScsiError::Nonsense(format!("the keys have {} bytes", data.len())))?;
        let whole = 8 + rest;
        if let Some(keys) = data.get(8..whole) {
            let (keys, odd) = keys.as_chunks::<8>();
            if !odd.is_empty() {
                return Err(ScsiError::Nonsense(format!("{rest} bytes of keys")));
            }
            return Ok((generation, keys.iter().map(|key| u64::from_be_bytes(*key)).collect()));
        }
        length = longer(length, whole, data.len())?;
    }
}

/// Generation, and how many bytes follow.
fn head(data: &[u8]) -> Option<(u32, usize)> {
    let generation = u32::from_be_bytes(*data.first_chunk()?);
    let rest = u32::from_be_bytes(*data.get(4..)?.first_chunk()?);
    Some((generation, usize::try_from(rest).ok()?))
}

/// The answer to READ RESERVATION.
struct Held {
    generation: u32,
    /// Type and key.
    by: Option<(u8, u64)>,
}

impl Held {
    fn parse(data: &[u8]) -> Option<Self> {
        let (generation, rest) = head(data)?;
        let by = match rest {
            0 => None,
            _ => {
                let key = u64::from_be_bytes(*data.get(8..)?.first_chunk()?);
                Some((data.get(21)? & 0x0f, key))
            }
        };
        Some(Self { generation, by })
    }

    /// Of the two types for all registrants, every one is a holder and the key says nothing.
    fn is_by(&self, key: u64) -> bool {
        self.by.is_some_and(|(kind, holder)| matches!(kind, 7 | 8) || holder == key)
    }
}

fn kind_of(kind: u8) -> ReservationKind {
    match kind {
        1 => ReservationKind::WriteExclusive,
        5 => ReservationKind::WriteExclusiveRegistrants,
        other => ReservationKind::Other(other),
    }
}
