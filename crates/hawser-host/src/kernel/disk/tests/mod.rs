//! Block devices: commands and answers as bytes, flushes on threads, and loop devices where there is
//! root to make them.

mod flush;
mod loops;
mod nvme;
mod paths;
mod scsi;
