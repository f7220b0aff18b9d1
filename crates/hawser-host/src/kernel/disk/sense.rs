//! How a SCSI command ended: status, host adapter, driver, and the device's own reason.

use rustix::io::Errno;

use crate::sys::scsi::ScsiAnswer;

/// What a device or its driver said, as the kernel's block layer would put it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScsiFailure {
    pub(super) errno: Errno,
    pub(super) words: String,
    /// Something has happened to the device; the command was not looked at.
    pub(super) attention: bool,
}

/// What a device says about a failure: sense key, additional code and its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sense {
    pub(super) key: u8,
    pub(super) code: u8,
    pub(super) qualifier: u8,
}

impl Sense {
    /// Reads both formats, fixed and with descriptors; `None` for anything else.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? & 0x7f {
            // A fixed one may end before its codes.
            0x70 | 0x71 => Some(Self {
                key: bytes.get(2)? & 0x0f,
                code: bytes.get(12).copied().unwrap_or(0),
                qualifier: bytes.get(13).copied().unwrap_or(0),
            }),
            0x72 | 0x73 => Some(Self {
                key: bytes.get(1)? & 0x0f,
                code: bytes.get(2).copied().unwrap_or(0),
                qualifier: bytes.get(3).copied().unwrap_or(0),
            }),
            _ => None,
        }
    }

    fn errno(self) -> Option<Errno> {
        match (self.key, self.code) {
            // Nothing to say, or it recovered by itself.
            (0 | 1, _) => None,
            (2, _) => Some(Errno::AGAIN),
            (5, 0x20) => Some(Errno::OPNOTSUPP),
            (5, 0x25) => Some(Errno::NODEV),
            (5, _) => Some(Errno::INVAL),
            (7, _) => Some(Errno::ACCESS),
            (_, _) => Some(Errno::IO),
        }
    }
}

/// Whether a command did its work.
pub(super) fn verdict(answer: &ScsiAnswer) -> Result<(), ScsiFailure> {
    let failed = |errno, words: String| Err(ScsiFailure { errno, words, attention: false });
    if let Some((errno, words)) = host_failure(answer.host) {
        return failed(errno, words.into());
    }
    match answer.status & 0xfe {
        0x00 | 0x04 | 0x10 | 0x14 => {}
        0x02 => {
            let Some(sense) = Sense::parse(&answer.sense) else {
                return failed(Errno::IO, "check condition without a reason".into());
            };
            let Some(errno) = sense.errno() else { return Ok(()) };
            let Sense { key, code, qualifier } = sense;
            return Err(ScsiFailure {
                errno,
                words: format!("sense {key:x}/{code:02x}/{qualifier:02x}"),
                attention: key == 6,
            });
        }
        0x08 | 0x28 => return failed(Errno::AGAIN, "the device is busy".into()),
        0x18 => return failed(Errno::BADE, "reservation conflict".into()),
        other => return failed(Errno::IO, format!("status {other:#04x}")),
    }
    match answer.driver & 0x0f {
        // None, and "there is sense data".
        0 | 8 => Ok(()),
        6 => failed(Errno::TIMEDOUT, "the driver gave up waiting".into()),
        other => failed(Errno::IO, format!("driver status {other:#x}")),
    }
}

/// `DID_*` of the kernel's `scsi/scsi_status.h`.
fn host_failure(host: u16) -> Option<(Errno, &'static str)> {
    match host {
        0x00 => None,
        0x01 => Some((Errno::NOLINK, "no connection to the device")),
        0x02 => Some((Errno::AGAIN, "the bus is busy")),
        0x03 | 0x05 => Some((Errno::TIMEDOUT, "no answer in time")),
        0x04 => Some((Errno::NODEV, "no such target")),
        0x0e | 0x0f | 0x14 => Some((Errno::NOLINK, "the path to the device is down")),
        0x12 => Some((Errno::BADE, "reservation conflict")),
        _ => Some((Errno::IO, "the host adapter reports a failure")),
    }
}
