//! The `Iscsid` part: whoever simulates the daemon answers.

use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{Iscsid, KernelResult};

use super::Kernel;
use super::errno::ECONNREFUSED;

#[async_trait]
impl Iscsid for Kernel {
    async fn logout(&self, session: u32, limit: Duration) -> KernelResult<i32> {
        self.call("Iscsid::logout", &session.to_string(), limit, |state| {
            state.tree().ask_logout(session).unwrap_or(Err(ECONNREFUSED))
        })
        .await
    }
}
