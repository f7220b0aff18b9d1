//! Reservations: who may write to a device, seen past the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use hawser_core::Reason;
use hawser_core::attach::{Attach, SingleWriter};
use hawser_core::connection::ConnectionInfo;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::library::Host;

/// What a write gets that a reservation of another host forbids.
pub const CONFLICT: i32 = Errno::BADE.raw_os_error();

/// With this host as the only one that writes.
pub fn single_writer(key: u64, preempt: bool) -> Attach {
    Attach { reservation: Some(SingleWriter { key, preempt }), ..Attach::default() }
}

/// Opens past the page cache.
#[track_caller]
pub fn direct(device: &Path) -> File {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let opened = File::options().read(true).write(true).custom_flags(flags).open(device);
    opened.unwrap_or_else(|error| panic!("{}: {error}", device.display()))
}

/// A block that direct I/O takes.
pub struct Aligned(Vec<u8>, usize);

impl Aligned {
    /// Full of this byte.
    pub fn new(fill: u8) -> Self {
        let bytes = vec![fill; 3 * 4096];
        let offset = bytes.as_ptr().align_offset(4096);
        Self(bytes, offset)
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0[self.1..self.1 + 4096]
    }
}

/// Writes a block full of this byte to the beginning of a device.
pub fn write_direct(device: &Path, fill: u8) -> io::Result<()> {
    direct(device).write_all_at(Aligned::new(fill).as_slice(), 0)
}

/// The block at the beginning of a device.
#[track_caller]
pub fn read_direct(device: &Path) -> Vec<u8> {
    let mut block = Aligned::new(0);
    let start = block.1;
    let read = direct(device).read_exact_at(&mut block.0[start..start + 4096], 0);
    read.unwrap_or_else(|error| panic!("reading {}: {error}", device.display()));
    block.as_slice().to_vec()
}

/// Two ways to one volume, behind which its target sees two initiators: who reserved it is the only
/// one that writes, until the other one throws him out. Nothing is attached or reserved afterwards.
#[track_caller]
pub fn only_one_writes(first: &ConnectionInfo, second: &ConnectionInfo) {
    let (a, b) = (Host::new(), Host::new());
    let ours = a.connect(first, &single_writer(0xa, false)).expect("nobody reserves it");
    write_direct(&ours, b'a').expect("who reserved it writes");

    let refused = b.connect(second, &single_writer(0xb, false)).expect_err("it is reserved");
    assert_eq!(refused.reason(), Some(Reason::Reserved), "{refused:?}");
    let theirs = b.connect(second, &single_writer(0xb, true)).expect("it is taken over");
    write_direct(&theirs, b'b').expect("who took it over writes");
    let late = write_direct(&ours, b'x').expect_err("thrown out");

    assert_ne!(ours, theirs, "each has a way of its own");
    assert_eq!(late.raw_os_error(), Some(CONFLICT), "{late}");
    assert_eq!(read_direct(&theirs), Aligned::new(b'b').as_slice(), "the second writer's data");
    b.disconnect(second).expect("detached");
    write_direct(&ours, b'c').expect("nobody reserves it now");
    a.disconnect(first).expect("detached");
}
