//! What an error number of the kernel means to a caller.

use hawser_core::Kind;
use rustix::io::Errno;

/// The kind of a failed system call, where the place that made it knows nothing better.
pub(crate) fn kind_of(errno: Errno) -> Kind {
    match errno {
        Errno::NOENT => Kind::NotFound,
        Errno::EXIST => Kind::Exists,
        Errno::BUSY | Errno::TXTBSY => Kind::Busy,
        Errno::PERM | Errno::ACCESS => Kind::Denied,
        Errno::ROFS | Errno::NOTEMPTY | Errno::ISDIR | Errno::UCLEAN => Kind::Precondition,
        Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE => Kind::NoSpace,
        Errno::INVAL | Errno::LOOP | Errno::NOTDIR | Errno::NAMETOOLONG => Kind::Invalid,
        Errno::FBIG => Kind::OutOfRange,
        Errno::NOSYS | Errno::OPNOTSUPP | Errno::NODEV | Errno::PROTONOSUPPORT => Kind::Unsupported,
        Errno::NOKEY | Errno::KEYREJECTED | Errno::KEYEXPIRED | Errno::KEYREVOKED => Kind::Denied,
        Errno::TIMEDOUT => Kind::Timeout,
        Errno::IO | Errno::AGAIN | Errno::NXIO | Errno::STALE | Errno::NOTCONN | Errno::NOMEM => {
            Kind::Unavailable
        }
        // A server that is not there, or not any more.
        Errno::CONNREFUSED
        | Errno::CONNRESET
        | Errno::CONNABORTED
        | Errno::HOSTDOWN
        | Errno::HOSTUNREACH
        | Errno::NETDOWN
        | Errno::NETUNREACH
        | Errno::REMOTEIO
        | Errno::PIPE
        | Errno::SHUTDOWN => Kind::Unavailable,
        _ => Kind::Internal,
    }
}

/// The same for an error that came through the standard library.
pub(crate) fn kind_of_io(error: &std::io::Error) -> Kind {
    match error.raw_os_error() {
        Some(raw) => kind_of(Errno::from_raw_os_error(raw)),
        None => Kind::Internal,
    }
}
