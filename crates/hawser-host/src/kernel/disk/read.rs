//! Reading past the page cache.

use hawser_core::port::kernel::{KernelError, KernelResult};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, pread};

use super::open::Device;
use super::refusal;

/// Satisfies the direct I/O of every device there is.
const ALIGNMENT: usize = 4096;
/// What is read here is labels and headers; more than this is a mistake of the caller.
const MOST: usize = 64 << 20;

/// Reads `length` bytes at `at`; less is an error. Blocks.
pub(super) fn exactly(device: &Device, at: u64, length: usize) -> KernelResult<Vec<u8>> {
    let attempt = || format!("reading {length} bytes at {at} of {}", device.name());
    let refused = |errno| refusal(attempt(), errno);
    if length > MOST {
        return Err(refused(Errno::INVAL));
    }
    let flags = fcntl_getfl(device).map_err(refused)?;
    if !flags.contains(OFlags::DIRECT) {
        fcntl_setfl(device, flags | OFlags::DIRECT).map_err(refused)?;
    }
    let mut storage = vec![0_u8; length + ALIGNMENT];
    let start = storage.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut storage[start..start + length];
    let mut done = 0;
    while done < length {
        match pread(device, &mut buffer[done..], at.saturating_add(done as u64)) {
            Ok(0) => {
                let why = format!("the device ends after {done} of them");
                return Err(KernelError::Nonsense { attempt: attempt(), why });
            }
            Ok(more) => done += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(refused(errno)),
        }
    }
    storage.copy_within(start..start + length, 0);
    storage.truncate(length);
    Ok(storage)
}
