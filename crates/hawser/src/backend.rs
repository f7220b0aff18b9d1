//! Hands out the ports to client commands, when they ask for them.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use async_trait::async_trait;

use hawser_api::{Endpoint, RestClient};
use hawser_core::error::Result;
use hawser_core::name::NodeId;
use hawser_core::port::{Control, Node};
use hawser_core::secret::Secret;
use hawser_front::cli;

use crate::assemble::{self, Storage};
use crate::commands::Command;
use crate::serve;
use crate::settings::{Settings, SettingsFlags};
use crate::state_dir;

/// The server that the options name, and this host.
pub(crate) struct Backend {
    global: cli::Global,
    /// The doctor is also wanted when the server is what is ill.
    works_offline: bool,
}

impl Backend {
    pub(crate) fn new(global: &cli::Global, command: &Command) -> Self {
        let works_offline = matches!(command, Command::Client(cli::Command::Doctor(_)));
        Self { global: global.clone(), works_offline }
    }

    /// The id this host has as a node, unless it was given another.
    pub(crate) fn this_node(&self) -> Option<NodeId> {
        let name = rustix::system::uname();
        Some(assemble::node_id(&name.nodename().to_string_lossy()))
    }

    fn endpoint(&self) -> Result<Endpoint> {
        if let Some(server) = &self.global.server {
            return Ok(server.clone());
        }
        let state_dir = state_dir::find(self.global.state_dir.as_deref())?;
        Ok(Endpoint::Unix(state_dir.join("hawser.sock")))
    }

    /// The engine in this process, over the store that no server has open.
    async fn engine_here(&self) -> Result<Arc<dyn Control>> {
        let state_dir = state_dir::find(self.global.state_dir.as_deref())?;
        let host = assemble::host(&state_dir).await?;
        let privileged = assemble::is_privileged().await?;
        let settings =
            Settings::read(&SettingsFlags::default(), &self.global, &state_dir, privileged)?;
        let server = assemble::server(&settings, &host, &Storage::Here).await?;
        let id = settings.node_id.as_ref();
        let (id, half) = assemble::node(&state_dir, id, &host, Vec::new()).await?;
        server.hub.add_local(id, half);
        Ok(server.engine)
    }
}

#[async_trait]
impl cli::Backend for Backend {
    async fn control(&self) -> Result<Arc<dyn Control>> {
        let endpoint = self.endpoint()?;
        if self.works_offline
            && self.global.server.is_none()
            && let Endpoint::Unix(path) = &endpoint
            && UnixStream::connect(path).is_err()
            && path.with_file_name("store.redb").exists()
        {
            return self.engine_here().await;
        }
        let mut client = RestClient::new(endpoint);
        if let Some(path) = &self.global.token_file {
            client = client.with_token(Secret::new(serve::read(path)?.trim()));
        }
        if let Some(path) = &self.global.ca_file {
            client = client.with_roots(serve::read(path)?.as_bytes())?;
        }
        Ok(Arc::new(client))
    }

    fn has_server(&self) -> bool {
        let Ok(state_dir) = state_dir::find(self.global.state_dir.as_deref()) else { return true };
        let traces = [assemble::INSTANCE_FILE, "hawser.sock", "store.redb"];
        self.global.server.is_some() || traces.iter().any(|name| state_dir.join(name).exists())
    }

    async fn node(&self) -> Result<Arc<dyn Node>> {
        // Where no server ever was, looking must not make this host one's.
        if !self.has_server() {
            return self.library().await;
        }
        let state_dir = state_dir::find(self.global.state_dir.as_deref())?;
        let host = assemble::host(&state_dir).await?;
        let (_, half) = assemble::node(&state_dir, None, &host, Vec::new()).await?;
        Ok(half)
    }

    async fn library(&self) -> Result<Arc<dyn Node>> {
        let state_dir = state_dir::find(self.global.state_dir.as_deref())?;
        Ok(Arc::new(assemble::library(&state_dir).await?))
    }
}
