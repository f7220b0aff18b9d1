//! The stages of an attach, seen from outside.

use std::thread;
use std::time::Duration;

use crate::lab::guest::san::{disks, names};

/// How far an attach has come, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has not begun.
    Begin,
    /// Its intent is written.
    Intent,
    /// The record for iscsid is written.
    Record,
    /// There is a session, which may not be up yet.
    Session,
    /// The volume is there as a SCSI device.
    Device,
    /// It is there as a disk.
    Disk,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Begin, Self::Intent, Self::Record, Self::Session, Self::Device, Self::Disk];

    fn is_reached(self) -> bool {
        match self {
            Self::Begin => true,
            Self::Intent => !names("/run/hawser/attachments").is_empty(),
            Self::Record => !names("/etc/iscsi/nodes").is_empty(),
            Self::Session => !names("/sys/class/iscsi_session").is_empty(),
            Self::Device => !names("/sys/class/scsi_device").is_empty(),
            Self::Disk => !disks().is_empty(),
        }
    }

    /// Waits until it is reached, or the work is over.
    pub fn wait<T>(self, work: &thread::ScopedJoinHandle<'_, T>) {
        while !self.is_reached() && !work.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
