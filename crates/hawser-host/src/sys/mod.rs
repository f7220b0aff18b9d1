//! The system calls that no safe wrapper has: loop, freeze and block ioctls, `mount_setattr`; SCSI
//! and NVMe commands, reservations and device maps in the files beside this one.
//!
//! Every `unsafe` of Hawser is in this folder. Numbers and layouts come from the kernel's own headers
//! through `linux-raw-sys`; those that it does not have are written down with the header's name.

#![expect(unsafe_code, reason = "these kernel interfaces have no safe wrapper in rustix")]

pub(crate) mod control;
pub(crate) mod dm;
pub(crate) mod nvme;
mod passthrough;
pub(crate) mod reserve;
pub(crate) mod scsi;
pub(crate) mod watch;

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

use linux_raw_sys::general::{AT_EMPTY_PATH, mount_attr};
use linux_raw_sys::ioctl::{BLKFLSBUF, BLKGETSIZE64, BLKROSET, FIFREEZE, FITHAW};
use linux_raw_sys::loop_device::{
    LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE, LOOP_GET_STATUS64, LOOP_SET_CAPACITY,
    loop_config, loop_info64,
};
use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Getter, IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter};
use rustix::mount::MountAttrFlags;

/// What a loop device is to become.
pub(crate) struct LoopSetup<'a> {
    /// The backing file.
    pub(crate) file: std::os::fd::BorrowedFd<'a>,
    /// Logical sector size.
    pub(crate) sector_size: u32,
    /// `LO_FLAGS_*`.
    pub(crate) flags: u32,
    /// The label, at most 63 bytes.
    pub(crate) label: &'a [u8],
}

/// What a loop device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoopStatus {
    /// The device of the file system that holds the backing file, as `st_dev`.
    pub(crate) file_device: u64,
    /// The inode of the backing file.
    pub(crate) file_inode: u64,
    /// `LO_FLAGS_*`.
    pub(crate) flags: u32,
    /// The label up to its NUL.
    pub(crate) label: Vec<u8>,
}

/// An ioctl without argument whose answer is its return value.
struct ReturnValue<const OPCODE: Opcode>;

// SAFETY: the only opcode used with it, LOOP_CTL_GET_FREE, takes no argument, writes no memory and
// answers a device number as its return value.
unsafe impl<const OPCODE: Opcode> Ioctl for ReturnValue<OPCODE> {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<u32> {
        u32::try_from(out).map_err(|_| Errno::OVERFLOW)
    }
}

/// The number of a loop device that has no file now; another process may take it first.
pub(crate) fn loop_get_free(control: impl AsFd) -> Result<u32> {
    // SAFETY: see `ReturnValue`.
    unsafe { ioctl::ioctl(control, ReturnValue::<{ LOOP_CTL_GET_FREE as Opcode }>) }
}

/// Gives a free loop device a file, its size, flags and label in one step.
pub(crate) fn loop_configure(device: impl AsFd, setup: &LoopSetup<'_>) -> Result<()> {
    // SAFETY: `loop_config` is a plain C structure of integers; all zero is its documented default.
    let mut config: loop_config = unsafe { std::mem::zeroed() };
    config.fd = u32::try_from(setup.file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    config.block_size = setup.sector_size;
    config.info.lo_flags = setup.flags;
    let room = config.info.lo_file_name.len() - 1;
    let label = setup.label.get(..room.min(setup.label.len())).unwrap_or_default();
    for (to, from) in config.info.lo_file_name.iter_mut().zip(label) {
        *to = *from;
    }
    // SAFETY: LOOP_CONFIGURE reads one `loop_config`.
    unsafe {
        let call = Setter::<{ LOOP_CONFIGURE as Opcode }, loop_config>::new(config);
        ioctl::ioctl(device, call)
    }
}

/// What a loop device has; `ENXIO` when it has no file.
pub(crate) fn loop_status(device: impl AsFd) -> Result<LoopStatus> {
    // SAFETY: LOOP_GET_STATUS64 fills one `loop_info64`.
    let info = unsafe {
        let call = Getter::<{ LOOP_GET_STATUS64 as Opcode }, loop_info64>::new();
        ioctl::ioctl(device, call)?
    };
    let label = info.lo_file_name.iter().copied().take_while(|c| *c != 0).collect();
    Ok(LoopStatus {
        file_device: info.lo_device as u64,
        file_inode: info.lo_inode as u64,
        flags: info.lo_flags,
        label,
    })
}

/// Takes the file away; while others have the device open, this is only put down for later.
pub(crate) fn loop_clear(device: impl AsFd) -> Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { ioctl::ioctl(device, NoArg::<{ LOOP_CLR_FD as Opcode }>::new()) }
}

/// Makes a loop device as large as its file.
pub(crate) fn loop_set_capacity(device: impl AsFd) -> Result<()> {
    // SAFETY: LOOP_SET_CAPACITY takes no argument.
    unsafe { ioctl::ioctl(device, NoArg::<{ LOOP_SET_CAPACITY as Opcode }>::new()) }
}

/// The size of a block device in bytes.
pub(crate) fn block_size_bytes(device: impl AsFd) -> Result<u64> {
    // SAFETY: BLKGETSIZE64 writes one u64, whatever its opcode's size field says.
    unsafe { ioctl::ioctl(device, Getter::<{ BLKGETSIZE64 as Opcode }, u64>::new()) }
}

/// Writes a block device's cached data out and forgets it.
pub(crate) fn flush_buffers(device: impl AsFd) -> Result<()> {
    // SAFETY: BLKFLSBUF takes no argument.
    unsafe { ioctl::ioctl(device, NoArg::<{ BLKFLSBUF as Opcode }>::new()) }
}

/// Sets or clears the read-only mark of a block device.
pub(crate) fn set_read_only(device: impl AsFd, read_only: bool) -> Result<()> {
    // SAFETY: BLKROSET reads one int through its argument, although its opcode names no size.
    unsafe {
        let call = Setter::<{ BLKROSET as Opcode }, c_int>::new(c_int::from(read_only));
        ioctl::ioctl(device, call)
    }
}

/// Stops writes to the file system of an open file.
pub(crate) fn freeze(folder: impl AsFd) -> Result<()> {
    // SAFETY: FIFREEZE ignores its argument.
    unsafe { ioctl::ioctl(folder, IntegerSetter::<{ FIFREEZE as Opcode }>::new_usize(0)) }
}

/// Lets writes go on.
pub(crate) fn thaw(folder: impl AsFd) -> Result<()> {
    // SAFETY: FITHAW ignores its argument.
    unsafe { ioctl::ioctl(folder, IntegerSetter::<{ FITHAW as Opcode }>::new_usize(0)) }
}

/// Begins to write a stretch of a file out and does not wait for it.
pub(crate) fn begin_writing_out(file: impl AsFd, at: u64, length: u64) {
    let (Ok(at), Ok(length)) = (i64::try_from(at), i64::try_from(length)) else { return };
    // SAFETY: sync_file_range takes an open descriptor and numbers, and touches no memory of ours.
    // Its answer is of no use: whether the data is written out is told by fsync.
    let _ = unsafe {
        libc::sync_file_range(file.as_fd().as_raw_fd(), at, length, libc::SYNC_FILE_RANGE_WRITE)
    };
}

/// Sets attributes of the one mount that a descriptor from `open_tree` or `fsmount` stands for.
pub(crate) fn set_mount_attributes(
    mount: impl AsFd,
    set: MountAttrFlags,
    clear: MountAttrFlags,
) -> Result<()> {
    let attributes = mount_attr {
        attr_set: u64::from(set.bits()),
        attr_clr: u64::from(clear.bits()),
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the descriptor is open, the path is an empty C string, and the structure is passed
    // with its size and only read.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            AT_EMPTY_PATH,
            std::ptr::from_ref(&attributes),
            size_of::<mount_attr>(),
        )
    };
    if answer == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}
