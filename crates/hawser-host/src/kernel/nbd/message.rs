//! Netlink messages as bytes: `linux/netlink.h`, `linux/genetlink.h`.

use linux_raw_sys::netlink::{
    NLA_F_NESTED, NLA_F_NET_BYTEORDER, NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_NOOP,
};
use rustix::io::Errno;

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
pub(super) const HEADER: usize = 16;
/// `struct genlmsghdr`: command, version, two bytes of nothing.
const GENERIC: usize = 4;
/// `struct nlattr`: length, type.
const ATTRIBUTE: usize = 4;
const VERSION: u8 = 1;
/// `MAX_ERRNO` of the kernel.
const LARGEST_ERRNO: i32 = 4095;
/// The upper bits of an attribute's type say how to read it.
const TYPE: u16 = !((NLA_F_NESTED | NLA_F_NET_BYTEORDER) as u16);

/// Messages and attributes begin on multiples of four.
fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// Attributes of a request, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub(super) fn u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// With a NUL at its end; it is cut at one inside.
    pub(super) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let value = value.split('\0').next().unwrap_or_default();
        self.bytes(kind, &[value.as_bytes(), b"\0"].concat())
    }

    pub(super) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(kind | NLA_F_NESTED as u16, &inner.0)
    }

    /// Nothing that is sent here is as long as the 64 KiB that an attribute can have; what is would
    /// be left out, and the kernel says what it misses.
    fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        if let Ok(length) = u16::try_from(ATTRIBUTE + value.len()) {
            self.0.extend(length.to_ne_bytes());
            self.0.extend(kind.to_ne_bytes());
            self.0.extend(value);
            self.0.resize(align(self.0.len()), 0);
        }
        self
    }
}

/// A whole request.
pub(super) fn request(family: u16, sequence: u32, command: u8, attributes: &Attributes) -> Vec<u8> {
    let length = HEADER + GENERIC + attributes.0.len();
    let flags = (NLM_F_REQUEST | NLM_F_ACK) as u16;
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    // The port; the kernel knows whose socket it is.
    message.extend([0; 4]);
    message.extend([command, VERSION, 0, 0]);
    message.extend(&attributes.0);
    message
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// The request was carried out, or refused.
    End(Result<(), Errno>),
    /// What it answered.
    Payload(&'a [u8]),
    /// None of ours.
    Other,
}

/// The messages of one datagram; `None` in place of what makes no sense, and then no more.
pub(super) fn answers(datagram: &[u8], sequence: u32) -> impl Iterator<Item = Option<Answer<'_>>> {
    let mut rest = Some(datagram);
    std::iter::from_fn(move || {
        let here = rest.filter(|here| !here.is_empty())?;
        let Some((answer, length)) = first_answer(here, sequence) else {
            rest = None;
            return Some(None);
        };
        rest = here.get(align(length)..);
        Some(Some(answer))
    })
}

fn first_answer(bytes: &[u8], sequence: u32) -> Option<(Answer<'_>, usize)> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let payload = bytes.get(HEADER..length)?;
    let kind = u32::from(u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?));
    if u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?) != sequence {
        return Some((Answer::Other, length));
    }
    let answer = match kind {
        NLMSG_ERROR => match i32::from_ne_bytes(*payload.first_chunk()?) {
            0 => Answer::End(Ok(())),
            error => Answer::End(Err(errno(error)?)),
        },
        NLMSG_DONE => Answer::End(Ok(())),
        NLMSG_NOOP => Answer::Other,
        _ => Answer::Payload(payload),
    };
    Some((answer, length))
}

/// The kernel negates its numbers; any other is no answer.
fn errno(error: i32) -> Option<Errno> {
    (-LARGEST_ERRNO..0).contains(&error).then(|| Errno::from_raw_os_error(-error))
}

/// `struct genlmsghdr`, as far as it says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generic {
    pub(super) command: u8,
}

/// The head of a message of generic netlink, and its attributes.
pub(super) fn generic(payload: &[u8]) -> Option<(Generic, &[u8])> {
    let attributes = payload.get(GENERIC..)?;
    Some((Generic { command: *payload.first()? }, attributes))
}

/// The value of the first attribute of a kind.
pub(super) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?) & TYPE;
        let value = attributes.get(ATTRIBUTE..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(align(length)..)?;
    }
}
