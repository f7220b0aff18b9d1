//! The `Maps` part.

use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{KernelResult, MapTarget, Maps};

use super::Kernel;

#[async_trait]
impl Maps for Kernel {
    async fn status(&self, name: &str) -> KernelResult<Vec<MapTarget>> {
        self.call("Maps::status", name, Duration::MAX, |state| {
            state.tree().map_targets(name, false)
        })
        .await
    }

    async fn table(&self, name: &str) -> KernelResult<Vec<MapTarget>> {
        self.call("Maps::table", name, Duration::MAX, |state| state.tree().map_targets(name, true))
            .await
    }

    async fn message(&self, name: &str, text: &str) -> KernelResult<()> {
        self.call("Maps::message", &format!("{name} {text}"), Duration::MAX, |state| {
            state.tree().map_message(name, text)
        })
        .await
    }

    async fn remove(&self, name: &str) -> KernelResult<()> {
        self.call("Maps::remove", name, Duration::MAX, |state| state.tree().map_remove(name)).await
    }

    async fn multipathd(&self, command: &str, limit: Duration) -> KernelResult<String> {
        self.call("Maps::multipathd", command, limit, |state| {
            state.tree().multipathd_answers(command)
        })
        .await
    }
}
