//! NVMe commands (NVM Express base specification 2.0, NVM command set): Identify, Reservation Report
//! and the Reservation Register that the kernel's own interface cannot express.

use hawser_core::port::kernel::{
    KernelError, KernelResult, NamespaceFacts, Register, Reservation, ReservationKind,
};
use rustix::io::Errno;

use super::open::Device;
use super::{COMMAND_LIMIT, refusal};
use crate::sys::nvme::{self, NvmeCommand, Queue};

const IDENTIFY: u8 = 0x06;
const RESERVATION_REGISTER: u8 = 0x0d;
const RESERVATION_REPORT: u8 = 0x0e;
/// Host identifiers of 128 bits do not fit in the shorter form of a report.
const HOST_ID_INCONSISTENT: u32 = 0x18;
const RESERVATION_CONFLICT: u32 = 0x83;
/// Status code and its type, without "more" and "do not retry".
const STATUS: u32 = 0x7ff;
/// The longest report that is asked for: more hosts than any subsystem has.
const MOST: usize = 1 << 20;

/// The namespace as its controller describes it. Blocks.
pub(super) fn identify(device: &Device, what: NamespaceFacts) -> KernelResult<Vec<u8>> {
    let attempt = format!("Identify Namespace of {}", device.name());
    let namespace = nvme::namespace_id(device).map_err(|errno| refusal(&*attempt, errno))?;
    let mut data = vec![0; 4096];
    let structure = match what {
        NamespaceFacts::Format => 0,
        NamespaceFacts::Ids => 3,
    };
    let words = [structure, 0];
    let command = NvmeCommand { queue: Queue::Admin, opcode: IDENTIFY, namespace, words };
    let status = nvme::send(device, command, &mut data, COMMAND_LIMIT);
    verdict(&attempt, status)?;
    Ok(data)
}

/// True when the device, or the path that a map sends commands to, is a namespace. Blocks.
pub(super) fn is_namespace(device: &Device) -> bool {
    nvme::namespace_id(device).is_ok()
}

/// Who is registered and who holds the reservation. Blocks.
pub(super) fn reservation(device: &Device) -> KernelResult<Reservation> {
    let attempt = format!("Reservation Report of {}", device.name());
    let namespace = nvme::namespace_id(device).map_err(|errno| refusal(&*attempt, errno))?;
    ask_reservation(&attempt, |form, data| {
        let words = [(data.len() / 4 - 1) as u32, u32::from(form == Form::Extended)];
        let opcode = RESERVATION_REPORT;
        let command = NvmeCommand { queue: Queue::Io, opcode, namespace, words };
        nvme::send(device, command, data, COMMAND_LIMIT)
    })
}

/// Takes this host's registration away, whatever its key; none is as good. The kernel's
/// `IOC_PR_REGISTER` makes and replaces registrations of NVMe, and has no way to say this. Blocks.
pub(super) fn unregister(device: &Device) -> KernelResult<()> {
    let attempt = format!("taking the registration from {}", device.name());
    let namespace = nvme::namespace_id(device).map_err(|errno| refusal(&*attempt, errno))?;
    // Action 1 is to unregister; bit 3 says that the current key does not matter.
    let words = [1 | 1 << 3, 0];
    let opcode = RESERVATION_REGISTER;
    let command = NvmeCommand { queue: Queue::Io, opcode, namespace, words };
    match nvme::send(device, command, &mut [0; 16], COMMAND_LIMIT) {
        // With the key left aside, only a host that is not registered is in conflict.
        Ok(status) if status & STATUS == RESERVATION_CONFLICT => Ok(()),
        status => verdict(&attempt, status),
    }
}

/// The two forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// With host identifiers of 128 bits.
    Extended,
    /// With host identifiers of 64 bits.
    Short,
}

impl Form {
    /// The length of the head, the length of one registration, and where its key stands.
    fn layout(self) -> (usize, usize, usize) {
        match self {
            Self::Extended => (64, 64, 8),
            Self::Short => (24, 24, 16),
        }
    }
}

pub(super) fn ask_reservation(
    attempt: &str,
    mut send: impl FnMut(Form, &mut [u8]) -> Result<u32, Errno>,
) -> KernelResult<Reservation> {
    let (mut form, mut length) = (Form::Extended, 4096);
    loop {
        let mut data = vec![0; length];
        match send(form, &mut data) {
            Ok(status) if form == Form::Extended && status & STATUS == HOST_ID_INCONSISTENT => {
                form = Form::Short;
                continue;
            }
            status => verdict(attempt, status)?,
        }
        let whole = report_length(form, &data);
        if whole <= length {
            let why = || "the report is cut short".to_owned();
            return parse_report(form, &data)
                .ok_or_else(|| KernelError::Nonsense { attempt: attempt.into(), why: why() });
        }
        if whole > MOST {
            let why = format!("a report of {whole} bytes");
            return Err(KernelError::Nonsense { attempt: attempt.into(), why });
        }
        length = whole;
    }
}

/// How many registrations a report is said to have.
fn count(data: &[u8]) -> usize {
    data.get(5..7).map_or(0, |bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8)
}

fn report_length(form: Form, data: &[u8]) -> usize {
    let (head, each, _) = form.layout();
    head + count(data) * each
}

pub(super) fn parse_report(form: Form, data: &[u8]) -> Option<Reservation> {
    let (head, each, key_at) = form.layout();
    let generation = u32::from_le_bytes(*data.first_chunk()?);
    let kind = *data.get(4)?;
    let registered = data
        .get(head..report_length(form, data))?
        .chunks_exact(each)
        .map(|entry| {
            let key = u64::from_le_bytes(*entry.get(key_at..)?.first_chunk()?);
            Some(Register { key, holder: entry.get(2)? & 1 == 1 })
        })
        .collect::<Option<Vec<_>>>()?;
    let held = match kind {
        0 => None,
        1 => Some(ReservationKind::WriteExclusive),
        3 => Some(ReservationKind::WriteExclusiveRegistrants),
        other => Some(ReservationKind::Other(other)),
    };
    Some(Reservation { generation, registered, held })
}

/// Whether a command did its work.
pub(super) fn verdict(attempt: &str, status: Result<u32, Errno>) -> KernelResult<()> {
    let status = status.map_err(|errno| refusal(attempt, errno))? & STATUS;
    let errno = match status {
        0 => return Ok(()),
        0x001 => Errno::OPNOTSUPP,
        0x002 | 0x018 => Errno::INVAL,
        0x00b => Errno::NODEV,
        0x082 => Errno::AGAIN,
        RESERVATION_CONFLICT => Errno::BADE,
        // Of type "path related".
        0x300..=0x3ff => Errno::NOLINK,
        _ => Errno::IO,
    };
    Err(refusal(format!("{attempt} (NVMe status {status:#05x})"), errno))
}
