//! The shape that ioctls share which hand a command to a device.

use std::ffi::c_void;

use rustix::io::Result;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};

/// An ioctl with one structure that the kernel reads and may write, and whose return value is what
/// the device or its driver says: 0, or a positive status.
pub(super) struct WithStatus<'a, const OPCODE: Opcode, T> {
    value: &'a mut T,
}

impl<'a, const OPCODE: Opcode, T> WithStatus<'a, OPCODE, T> {
    /// # Safety
    ///
    /// `T` must be the structure that the kernel expects with `OPCODE`, and whatever it points to
    /// must be valid for what the kernel does with it until the call has returned.
    pub(super) unsafe fn new(value: &'a mut T) -> Self {
        Self { value }
    }
}

// SAFETY: `new` has its caller vouch for opcode and structure; the kernel may write the structure,
// which is borrowed mutably and said to be mutated.
unsafe impl<const OPCODE: Opcode, T> Ioctl for WithStatus<'_, OPCODE, T> {
    type Output = u32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.value).cast()
    }

    unsafe fn output_from_ptr(status: IoctlOutput, _: *mut c_void) -> Result<u32> {
        // Negative values have become errors before this.
        Ok(status.cast_unsigned())
    }
}
