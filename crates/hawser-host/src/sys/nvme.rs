//! NVMe commands to a namespace: `linux/nvme_ioctl.h`.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Opcode, opcode};

use super::passthrough::WithStatus;

/// `NVME_IOCTL_ID`.
const ID: Opcode = opcode::none(b'N', 0x40);
/// `NVME_IOCTL_ADMIN_CMD`.
const ADMIN: Opcode = opcode::read_write::<NvmePassthruCmd>(b'N', 0x41);
/// `NVME_IOCTL_IO_CMD`.
const IO: Opcode = opcode::read_write::<NvmePassthruCmd>(b'N', 0x43);

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Default)]
struct NvmePassthruCmd {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

/// Which queue a command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// That of the controller.
    Admin,
    /// That of the namespace.
    Io,
}

/// A command with data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NvmeCommand {
    /// Which queue.
    pub(crate) queue: Queue,
    /// Its operation.
    pub(crate) opcode: u8,
    /// The namespace.
    pub(crate) namespace: u32,
    /// Command dwords 10 and 11.
    pub(crate) words: [u32; 2],
}

/// The number of the namespace that an open device is; `ENOTTY` and the like when it is none.
pub(crate) fn namespace_id(device: impl AsFd) -> Result<u32> {
    // SAFETY: NVME_IOCTL_ID takes no argument, writes no memory and answers the number as its return
    // value.
    unsafe { ioctl::ioctl(device, super::ReturnValue::<ID>) }
}

/// Sends a command and waits for its end; answers its status, of which 0 is good. `data` goes to
/// the device or comes from it, as the operation has it.
pub(crate) fn send(
    device: impl AsFd,
    command: NvmeCommand,
    data: &mut [u8],
    limit: Duration,
) -> Result<u32> {
    let mut passed = NvmePassthruCmd {
        opcode: command.opcode,
        nsid: command.namespace,
        addr: data.as_mut_ptr().expose_provenance() as u64,
        data_len: u32::try_from(data.len()).map_err(|_| Errno::INVAL)?,
        cdw10: command.words[0],
        cdw11: command.words[1],
        timeout_ms: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
        ..NvmePassthruCmd::default()
    };
    // SAFETY: both read and write one `nvme_passthru_cmd`, whose address and length are those of
    // `data`, which is borrowed mutably and outlives the call. It returns when the command has ended.
    unsafe {
        match command.queue {
            Queue::Admin => ioctl::ioctl(device, WithStatus::<ADMIN, _>::new(&mut passed)),
            Queue::Io => ioctl::ioctl(device, WithStatus::<IO, _>::new(&mut passed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_layout_is_the_one_of_the_header() {
        assert_eq!(size_of::<NvmePassthruCmd>(), 72);
        assert_eq!(offset_of!(NvmePassthruCmd, addr), 24);
        assert_eq!(offset_of!(NvmePassthruCmd, cdw10), 40);
        assert_eq!(offset_of!(NvmePassthruCmd, result), 68);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_numbers_are_those_of_the_header() {
        assert_eq!((ID, ADMIN, IO), (0x4e40, 0xc048_4e41, 0xc048_4e43));
    }

    #[test]
    fn what_is_no_namespace_refuses() {
        let file = std::fs::File::open("/dev/null").unwrap();

        assert_eq!(namespace_id(&file).unwrap_err(), Errno::NOTTY);
    }
}
