//! The bytes of the NBD handshake, after the protocol document of the NBD project
//! (`doc/proto.md`, "Newstyle negotiation").

/// What every server begins with.
pub(super) const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Follows in the newstyle handshake, and begins every option of the client.
pub(super) const HAVE_OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Follows in the oldstyle handshake.
pub(super) const OLD_STYLE: u64 = 0x0000_4202_8186_1253;
/// Begins every reply to an option.
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Begins every request of the transmission phase.
const REQUEST: u32 = 0x2560_9513;

/// Flags of the handshake, the same bits on both sides.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
/// The 124 zeroes after the answer to [`Ask::ExportName`] are left out.
pub(super) const NO_ZEROES: u16 = 2;

/// Flags of an export.
pub(super) const HAS_FLAGS: u16 = 1;
/// It refuses writes.
pub(super) const READ_ONLY: u16 = 1 << 1;
/// What one connection writes and flushes, the others read.
pub(super) const CAN_MULTI_CONN: u16 = 1 << 8;

/// A longer reply is nonsense: the longest, with a text of the server, has a few KiB.
pub(super) const LONGEST_REPLY: u32 = 64 * 1024;

/// What can be asked of a server before the transmission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Take this export, without any reply but its size. Every server knows it.
    ExportName,
    /// End the handshake.
    Abort,
    /// Tell about this export.
    Info,
    /// Tell about this export, and take it.
    Go,
}

impl Ask {
    fn number(self) -> u32 {
        match self {
            Self::ExportName => 1,
            Self::Abort => 2,
            Self::Info => 6,
            Self::Go => 7,
        }
    }

    /// One option as it goes out.
    pub(super) fn option(self, export: &str) -> Vec<u8> {
        let data = match self {
            Self::ExportName => export.as_bytes().to_vec(),
            Self::Abort => Vec::new(),
            Self::Info | Self::Go => {
                let mut data = (export.len() as u32).to_be_bytes().to_vec();
                data.extend(export.as_bytes());
                // One request for information: the block sizes.
                data.extend(1_u16.to_be_bytes());
                data.extend(INFO_BLOCK_SIZE.to_be_bytes());
                data
            }
        };
        let mut option = HAVE_OPTION.to_be_bytes().to_vec();
        option.extend(self.number().to_be_bytes());
        option.extend((data.len() as u32).to_be_bytes());
        option.extend(data);
        option
    }
}

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// The beginning of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyHead {
    pub(super) kind: u32,
    pub(super) length: u32,
}

/// Reads the beginning of a reply to this option; the reason when it is none.
pub(super) fn reply_head(bytes: &[u8; 20], ask: Ask) -> Result<ReplyHead, String> {
    let (magic, rest) = take_u64(bytes).ok_or("a reply ends early")?;
    let (option, rest) = take_u32(rest).ok_or("a reply ends early")?;
    let (kind, rest) = take_u32(rest).ok_or("a reply ends early")?;
    let (length, _) = take_u32(rest).ok_or("a reply ends early")?;
    if magic != OPTION_REPLY {
        return Err(format!("a reply begins with {magic:#018x}"));
    }
    if option != ask.number() {
        return Err(format!("a reply is to option {option}, and {} was asked", ask.number()));
    }
    if length > LONGEST_REPLY {
        return Err(format!("a reply has {length} bytes"));
    }
    Ok(ReplyHead { kind, length })
}

/// What one reply says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// That was all.
    Acknowledged,
    /// Size and flags of the export.
    Export { size: u64, flags: u16 },
    /// The least block size, the preferred one, and the longest request.
    Blocks { least: u32, longest: u32 },
    /// Something that is not needed.
    Other,
    /// No.
    Refused { why: Refusal, message: String },
}

/// Why a server refuses an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It does not know the option.
    Unsupported,
    /// Its rules forbid it.
    Policy,
    /// It needs TLS first.
    TlsRequired,
    /// It has no such export.
    Unknown,
    /// It is about to end.
    Shutdown,
    /// Anything else, in words.
    Other(&'static str),
}

/// Reads a reply; the reason when it makes no sense.
pub(super) fn reply(kind: u32, data: &[u8]) -> Result<Reply, String> {
    match kind {
        1 => Ok(Reply::Acknowledged),
        3 => information(data).ok_or_else(|| "information about the export ends early".to_owned()),
        _ if kind & (1 << 31) != 0 => {
            Ok(Reply::Refused { why: refusal(kind & !(1 << 31)), message: message(data) })
        }
        _ => Err(format!("a reply has the kind {kind}")),
    }
}

fn information(data: &[u8]) -> Option<Reply> {
    let (kind, rest) = take_u16(data)?;
    match kind {
        INFO_EXPORT => {
            let (size, rest) = take_u64(rest)?;
            let (flags, _) = take_u16(rest)?;
            Some(Reply::Export { size, flags })
        }
        INFO_BLOCK_SIZE => {
            let (least, rest) = take_u32(rest)?;
            let (_preferred, rest) = take_u32(rest)?;
            let (longest, _) = take_u32(rest)?;
            Some(Reply::Blocks { least, longest })
        }
        _ => Some(Reply::Other),
    }
}

fn refusal(number: u32) -> Refusal {
    match number {
        1 => Refusal::Unsupported,
        2 => Refusal::Policy,
        3 => Refusal::Other("finds the request malformed"),
        4 => Refusal::Other("cannot do it on its platform"),
        5 => Refusal::TlsRequired,
        6 => Refusal::Unknown,
        7 => Refusal::Shutdown,
        8 => Refusal::Other("insists on block sizes that the kernel cannot keep"),
        9 => Refusal::Other("finds the request too long"),
        10 => Refusal::Other("insists on extended headers, which the kernel does not know"),
        _ => Refusal::Other("gives no reason that is known here"),
    }
}

/// What the server says for people: cut, and without control characters, as it is a stranger's.
fn message(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    text.chars().filter(|c| !c.is_control()).take(200).collect::<String>().trim().to_owned()
}

/// The request that ends the transmission phase, so that the server does not take a closed
/// connection for an accident.
pub(super) fn end_of_transmission() -> Vec<u8> {
    let mut request = REQUEST.to_be_bytes().to_vec();
    request.extend(2_u32.to_be_bytes());
    request.extend([0; 20]);
    request
}

/// The first 8 bytes and the rest.
pub(super) fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*first), rest))
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*first), rest))
}

/// The first 2 bytes and the rest.
pub(super) fn take_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*first), rest))
}
