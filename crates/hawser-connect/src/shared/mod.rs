//! Steps that several protocols share.

pub(crate) mod canonical;
pub(crate) mod data;
pub(crate) mod digest;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod flush;
pub(crate) mod locks;
pub(crate) mod modules;
pub(crate) mod multipath;
pub(crate) mod nvme_host;
pub(crate) mod release;
pub(crate) mod remote_fs;
pub(crate) mod scsi;
pub(crate) mod users;
pub(crate) mod vendor;
pub(crate) mod wait;
