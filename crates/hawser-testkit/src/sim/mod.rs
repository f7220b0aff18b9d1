//! Simulations of kernels, daemons and targets that several connectors share, one file each.
//!
//! Each is made of behaviours of the [`Kernel`](crate::fake_host::Kernel) and keeps its state in the
//! [`Tree`](crate::fake_host::Tree), so that one lock guards everything and tests can reach in at
//! any time. They show what a real kernel was seen to show, its traps included.

pub mod disco;
pub mod fc;
pub mod hgst;
pub mod huawei_sds;
pub mod iscsi;
pub mod multipath;
pub mod nvme;
pub mod quobyte;
pub mod rbd;
pub mod scaleio;
pub mod scality;
pub mod scsi;
pub mod vzstorage;
