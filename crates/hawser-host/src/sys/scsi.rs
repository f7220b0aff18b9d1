//! SCSI commands to a block device: `SG_IO` of `scsi/sg.h`, version 3 of its interface.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Opcode, Updater};

/// `SG_IO` of `scsi/sg.h`.
const SG_IO: Opcode = 0x2285;
/// `SG_DXFER_FROM_DEV` of `scsi/sg.h`.
const FROM_DEVICE: c_int = -3;
/// `SCSI_SENSE_BUFFERSIZE` of the kernel.
const SENSE_ROOM: usize = 96;

/// `struct sg_io_hdr` of `scsi/sg.h`.
#[repr(C)]
struct SgIoHdr {
    interface_id: c_int,
    dxfer_direction: c_int,
    cmd_len: c_uchar,
    mx_sb_len: c_uchar,
    iovec_count: c_ushort,
    dxfer_len: c_uint,
    dxferp: *mut c_void,
    cmdp: *const c_uchar,
    sbp: *mut c_uchar,
    timeout: c_uint,
    flags: c_uint,
    pack_id: c_int,
    usr_ptr: *mut c_void,
    status: c_uchar,
    masked_status: c_uchar,
    msg_status: c_uchar,
    sb_len_wr: c_uchar,
    host_status: c_ushort,
    driver_status: c_ushort,
    resid: c_int,
    duration: c_uint,
    info: c_uint,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScsiAnswer {
    /// The status byte of the device.
    pub(crate) status: u8,
    /// `DID_*` of the host adapter's driver; 0 is good.
    pub(crate) host: u16,
    /// `DRIVER_*`; 8 says that there is sense data.
    pub(crate) driver: u16,
    /// What the device says about a failure.
    pub(crate) sense: Vec<u8>,
    /// How much of the data was filled in.
    pub(crate) length: usize,
}

/// Sends a command that reads, and waits for its end.
pub(crate) fn read(
    device: impl AsFd,
    command: &[u8],
    data: &mut [u8],
    limit: Duration,
) -> Result<ScsiAnswer> {
    let mut sense = [0_u8; SENSE_ROOM];
    let length = c_uint::try_from(data.len()).map_err(|_| Errno::INVAL)?;
    let mut header = SgIoHdr {
        interface_id: c_int::from(b'S'),
        dxfer_direction: FROM_DEVICE,
        cmd_len: c_uchar::try_from(command.len()).map_err(|_| Errno::INVAL)?,
        mx_sb_len: SENSE_ROOM as c_uchar,
        iovec_count: 0,
        dxfer_len: length,
        dxferp: data.as_mut_ptr().cast(),
        cmdp: command.as_ptr(),
        sbp: sense.as_mut_ptr(),
        timeout: c_uint::try_from(limit.as_millis()).unwrap_or(c_uint::MAX),
        flags: 0,
        pack_id: 0,
        usr_ptr: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        msg_status: 0,
        sb_len_wr: 0,
        host_status: 0,
        driver_status: 0,
        resid: 0,
        duration: 0,
        info: 0,
    };
    // SAFETY: SG_IO reads and writes one `sg_io_hdr`. Its three pointers are to `data`, `command` and
    // `sense`, each with its own length beside it, and all three outlive the call, which returns only
    // when the command has ended.
    unsafe { ioctl::ioctl(device, Updater::<SG_IO, SgIoHdr>::new(&mut header))? };
    let left = usize::try_from(header.resid).unwrap_or(0);
    Ok(ScsiAnswer {
        status: header.status,
        host: header.host_status,
        driver: header.driver_status,
        sense: sense[..usize::from(header.sb_len_wr).min(SENSE_ROOM)].to_vec(),
        length: data.len().saturating_sub(left),
    })
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_layout_is_the_one_of_the_header() {
        assert_eq!(size_of::<SgIoHdr>(), 88);
        assert_eq!(offset_of!(SgIoHdr, dxferp), 16);
        assert_eq!(offset_of!(SgIoHdr, timeout), 40);
        assert_eq!(offset_of!(SgIoHdr, status), 64);
        assert_eq!(offset_of!(SgIoHdr, resid), 72);
    }

    #[test]
    fn what_is_no_scsi_device_refuses() {
        let file = std::fs::File::open("/dev/null").unwrap();

        let refused = read(&file, &[0x12; 6], &mut [0; 36], Duration::from_secs(1));

        assert_eq!(refused.unwrap_err(), Errno::NOTTY);
    }
}
