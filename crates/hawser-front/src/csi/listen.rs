//! The sockets of a driver.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::Path;
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::unfold;
use hawser_core::Result;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tracing::warn;

use super::error::CsiError;
use crate::shared::{SocketFile, is_trusted};

/// Callers that wait to be accepted.
const BACKLOG: u32 = 128;
/// Its owner and its group; the group is that of the folder where that says so.
const MODE: u32 = 0o660;

/// A socket that is bound and listened on.
pub(super) struct Socket {
    listener: UnixListener,
    _file: SocketFile,
    group: u32,
}

impl Socket {
    /// Binds a socket. One on which nobody listens is replaced; nothing else in the folder, which is
    /// somebody else's, is touched. `Kind::Busy` when somebody listens there, `Kind::Precondition`
    /// when something that is no socket is there.
    pub(super) fn bind(path: &Path) -> Result<Self> {
        let broken = |source| CsiError::Socket { path: path.to_owned(), source };
        make_room(path)?;
        let socket = UnixSocket::new_stream().map_err(broken)?;
        socket.bind(path).map_err(broken)?;
        let file = SocketFile::new(path).map_err(broken)?;
        // Nobody gets in before it is listened on, so nobody sees it with another mode.
        fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(broken)?;
        let group = fs::symlink_metadata(path).map_err(broken)?.gid();
        let listener = socket.listen(BACKLOG).map_err(broken)?;
        Ok(Self { listener, _file: file, group })
    }

    /// Callers, one after the other; the socket's file goes with the stream.
    pub(super) fn callers(self) -> impl Stream<Item = io::Result<UnixStream>> + Send {
        unfold(self, |socket| async move {
            loop {
                match socket.accept().await {
                    Ok(Some(stream)) => return Some((Ok(stream), socket)),
                    Ok(None) => {}
                    Err(error) => {
                        // Out of descriptors, or a caller that left at once.
                        warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        })
    }

    /// The next caller; `None` when it is nobody who may call.
    async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        let who = stream.peer_cred()?;
        let own = rustix::process::geteuid().as_raw();
        if is_trusted(&who, own, Some(self.group)).await {
            return Ok(Some(stream));
        }
        warn!(uid = who.uid(), "a caller was turned away");
        Ok(None)
    }
}

/// Removes a socket on which nobody listens.
pub(super) fn make_room(path: &Path) -> Result<(), CsiError> {
    let broken = |source| CsiError::Socket { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(broken(error)),
        Ok(there) if !there.file_type().is_socket() => {
            Err(CsiError::NotASocket { path: path.to_owned() })
        }
        Ok(_) => match Probe::connect(path) {
            Ok(_) => Err(CsiError::Taken { path: path.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(broken)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(broken(error)),
        },
    }
}
