//! What several front ends that listen on Unix sockets share.

mod peer;
mod socket_file;

pub(crate) use peer::is_trusted;
pub(crate) use socket_file::SocketFile;
