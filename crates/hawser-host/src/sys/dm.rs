//! Device maps: `linux/dm-ioctl.h`.

use std::ffi::c_void;
use std::mem::offset_of;
use std::os::fd::AsFd;

use linux_raw_sys::ioctl::{DM_DEV_REMOVE, DM_TABLE_STATUS, DM_TARGET_MSG};
use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};

/// `struct dm_ioctl` of `linux/dm-ioctl.h`; here only for its layout.
#[repr(C)]
struct DmIoctl {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event_nr: u32,
    padding: u32,
    dev: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
}

/// `struct dm_target_spec` of `linux/dm-ioctl.h`; here only for its layout.
#[repr(C)]
struct DmTargetSpec {
    sector_start: u64,
    length: u64,
    status: i32,
    next: u32,
    target_type: [u8; 16],
}

/// Where things stand in what the kernel reads and writes.
pub(crate) mod layout {
    use super::{DmIoctl, DmTargetSpec, offset_of};

    /// The length of the header; data starts behind it.
    pub(crate) const HEADER: usize = size_of::<DmIoctl>();
    pub(crate) const VERSION: usize = offset_of!(DmIoctl, version);
    pub(crate) const DATA_SIZE: usize = offset_of!(DmIoctl, data_size);
    pub(crate) const DATA_START: usize = offset_of!(DmIoctl, data_start);
    pub(crate) const TARGET_COUNT: usize = offset_of!(DmIoctl, target_count);
    pub(crate) const FLAGS: usize = offset_of!(DmIoctl, flags);
    pub(crate) const NAME: usize = offset_of!(DmIoctl, name);
    /// With its NUL.
    pub(crate) const NAME_ROOM: usize = 128;

    /// The length of the head of one target; its parameters follow.
    pub(crate) const SPEC: usize = size_of::<DmTargetSpec>();
    pub(crate) const SPEC_START: usize = offset_of!(DmTargetSpec, sector_start);
    pub(crate) const SPEC_LENGTH: usize = offset_of!(DmTargetSpec, length);
    pub(crate) const SPEC_NEXT: usize = offset_of!(DmTargetSpec, next);
    pub(crate) const SPEC_TYPE: usize = offset_of!(DmTargetSpec, target_type);

    /// `DM_STATUS_TABLE_FLAG`: the table instead of its status.
    pub(crate) const FLAG_TABLE: u32 = 1 << 4;
    /// `DM_BUFFER_FULL_FLAG`: the answer did not fit.
    pub(crate) const FLAG_FULL: u32 = 1 << 8;
    /// `DM_NOFLUSH_FLAG`: a status without writing anything out first.
    pub(crate) const FLAG_NO_FLUSH: u32 = 1 << 11;
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DmCommand {
    /// Tell status or table.
    TableStatus,
    /// Hand a message to a target.
    TargetMessage,
    /// Remove a map.
    Remove,
}

/// The ioctl with its buffer.
struct Call<'a> {
    opcode: Opcode,
    buffer: &'a mut [u8],
}

// SAFETY: every opcode used with it takes one `dm_ioctl`, read and written in place up to the
// `data_size` in it, which `send` has set to the length of the buffer.
unsafe impl Ioctl for Call<'_> {
    type Output = ();

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.buffer.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

/// Sends a request through the open control device and has the answer written over it. The length
/// of the buffer is put in; all else is the caller's.
pub(crate) fn send(control: impl AsFd, command: DmCommand, buffer: &mut [u8]) -> Result<()> {
    let length = u32::try_from(buffer.len()).map_err(|_| Errno::INVAL)?;
    if buffer.len() < layout::HEADER {
        return Err(Errno::INVAL);
    }
    buffer[layout::DATA_SIZE..layout::DATA_SIZE + 4].copy_from_slice(&length.to_ne_bytes());
    let opcode = match command {
        DmCommand::TableStatus => DM_TABLE_STATUS,
        DmCommand::TargetMessage => DM_TARGET_MSG,
        DmCommand::Remove => DM_DEV_REMOVE,
    };
    // SAFETY: see `Call`; the kernel copies in and out and asks for no alignment.
    unsafe { ioctl::ioctl(control, Call { opcode: opcode as Opcode, buffer }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_those_of_the_header() {
        assert_eq!(layout::HEADER, 312);
        assert_eq!((layout::FLAGS, layout::NAME), (28, 48));
        assert_eq!(offset_of!(DmIoctl, uuid), 176);
        assert_eq!(layout::SPEC, 40);
        assert_eq!((layout::SPEC_NEXT, layout::SPEC_TYPE), (20, 24));
    }

    #[test]
    fn a_buffer_without_room_for_the_header_is_never_sent() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut short = vec![0; layout::HEADER - 1];
        let mut enough = vec![0; layout::HEADER];

        let refused = send(&file, DmCommand::TableStatus, &mut short);

        assert_eq!(refused.unwrap_err(), Errno::INVAL);
        assert_eq!(send(&file, DmCommand::Remove, &mut enough).unwrap_err(), Errno::NOTTY);
        assert_eq!(enough[layout::DATA_SIZE..][..4], 312_u32.to_ne_bytes());
    }
}
