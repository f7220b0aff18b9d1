//! Ioctls of vendors' control devices, with a buffer of plain bytes.

use std::ffi::c_void;
use std::os::fd::AsFd;

use rustix::fs::FileType;
use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};

/// The largest size that a request number can tell, and a page more for drivers whose numbers tell
/// none: so much may be written, whatever the caller has room for.
const ROOM: usize = (1 << 14) + 4096;

/// The ioctl with its buffer, which has at least [`ROOM`].
struct Call<'a> {
    request: u32,
    buffer: &'a mut [u8],
}

// SAFETY: the driver reads and writes the buffer in place. Its length is at least that of any
// structure whose size a request number can tell, see `control`.
unsafe impl Ioctl for Call<'_> {
    type Output = ();

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.request as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.buffer.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

/// `HDIO_GET_IDENTITY` of `linux/hdreg.h`: 512 bytes of ATA IDENTIFY DEVICE, for whoever may read.
const GET_IDENTITY: u32 = 0x030d;

/// Hands `data` to the driver of a character device and answers what it has made of it, as long as
/// it was. Only for structures without pointers. A disk is only asked who it is.
pub(crate) fn control(device: impl AsFd, request: u32, mut data: Vec<u8>) -> Result<Vec<u8>> {
    let stat = rustix::fs::fstat(&device)?;
    // Disks and file systems know requests with pointers in them, and have calls of their own.
    let kind = FileType::from_raw_mode(stat.st_mode);
    let identity = kind == FileType::BlockDevice && request == GET_IDENTITY;
    if kind != FileType::CharacterDevice && !identity {
        return Err(Errno::NOTTY);
    }
    let length = data.len();
    data.resize(length.max(ROOM), 0);
    // SAFETY: see `Call`.
    unsafe { ioctl::ioctl(device, Call { request, buffer: &mut data })? };
    data.truncate(length);
    Ok(data)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// `RNDGETENTCNT` of `linux/random.h`: one int, how much entropy there is.
    const ENTROPY: u32 = 0x8004_5200;

    #[test]
    fn what_the_driver_answers_is_told() {
        let random = File::open("/dev/urandom").unwrap();

        let answer = control(&random, ENTROPY, vec![0xff; 4]).unwrap();

        let bits = i32::from_ne_bytes(answer.try_into().unwrap());
        assert!((0..=4096).contains(&bits), "{bits}");
    }

    #[test]
    fn a_driver_that_writes_more_than_there_is_room_for_does_no_harm() {
        let random = File::open("/dev/urandom").unwrap();

        assert_eq!(control(&random, ENTROPY, vec![7]).unwrap().len(), 1);
    }

    #[test]
    fn only_a_character_device_is_asked() {
        let file = tempfile::tempfile().unwrap();

        assert_eq!(control(&file, ENTROPY, vec![0; 4]).unwrap_err(), Errno::NOTTY);
    }
}
