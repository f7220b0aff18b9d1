//! iscsid, the daemon that keeps iSCSI sessions, as far as its own socket is safe to use.

use std::time::Duration;

use async_trait::async_trait;

use super::KernelResult;

/// iscsid through its management socket.
///
/// Only what needs no more than the head of a message: that head has been the same since 2007, while
/// the rest of it is a structure of the daemon's own that changes between releases.
#[async_trait]
pub trait Iscsid: Send + Sync {
    /// Ends a session by its number and answers iscsid's code for it, as `iscsiadm` exits with it: 0
    /// when it is gone. `ECONNREFUSED` when iscsid does not run.
    async fn logout(&self, session: u32, limit: Duration) -> KernelResult<i32>;
}
