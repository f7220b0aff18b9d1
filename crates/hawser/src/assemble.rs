//! Puts the parts together: the only place that names implementations.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use hawser_api::link::Hub;
use hawser_connect::node::{NodeHalf, NodeParts};
use hawser_connect::{CONNECTORS, FileRegistry};
use hawser_core::class::{Ability, Class};
use hawser_core::error::{Classify, Error, Kind, Result, ResultExt};
use hawser_core::id::InstanceId;
use hawser_core::name::{ClassName, NodeId};
use hawser_core::port::{Host, Nodes, Provider};
use hawser_engine::control::{ABANDONED, ClassEntry, Engine, EngineParts};
use hawser_host::{HostSettings, LinuxHost};
use hawser_provider::Deps;

use crate::settings::{ClassSettings, Settings};

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    /// It cannot be made or written.
    #[error("using the state folder {}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
}

impl Classify for StateError {
    fn kind(&self) -> Kind {
        match self {
            Self::Folder { source, .. } => {
                if source.kind() == std::io::ErrorKind::PermissionDenied {
                    Kind::Denied
                } else if source.kind() == std::io::ErrorKind::StorageFull {
                    Kind::NoSpace
                } else {
                    Kind::Precondition
                }
            }
        }
    }
}

/// In the state folder: the id of the instance that lives in it.
pub(crate) const INSTANCE_FILE: &str = "instance";

/// True when this process may mount and make devices.
pub(crate) async fn is_privileged() -> Result<bool> {
    Ok(LinuxHost::new(HostSettings::default()).facts().await?.privileged)
}

/// What belongs to the host is shared by all instances on it; users who may not write there have
/// notes and locks of their own below the state folder.
async fn host_settings(state_dir: &Path) -> Result<HostSettings> {
    let mut settings = HostSettings::default();
    if !is_privileged().await? {
        settings.run_dir = state_dir.join("run");
        settings.lock_dir = state_dir.join("lock");
    }
    Ok(settings)
}

/// This machine.
pub(crate) async fn host(state_dir: &Path) -> Result<Arc<dyn Host>> {
    Ok(Arc::new(LinuxHost::new(host_settings(state_dir).await?)))
}

/// The control half and what it is reached through.
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hub: Arc<Hub>,
}

/// Where storage is that is part of a machine, such as local pools.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// On this machine, which nobody asks the name of.
    Here,
    /// On this machine, and volumes are known to be reached from this node alone.
    OnNode(NodeId),
    /// On the nodes that dial in.
    OnNodes,
}

/// Opens the store and the classes. The engine has not started yet.
pub(crate) async fn server(
    settings: &Settings,
    host: &Arc<dyn Host>,
    storage: &Storage,
) -> Result<Server> {
    let instance = prepare_state(&settings.state_dir)?;
    let store = hawser_store::open(&settings.store).await?;
    let hub = Arc::new(Hub::default());
    let mut classes = Vec::new();
    for (name, class) in &settings.class {
        let node = if let Storage::OnNode(id) = storage { Some(id.clone()) } else { None };
        let nodes: Arc<dyn Nodes> = hub.clone();
        let deps = Deps { node, nodes: Some(nodes), ..Deps::new(name.clone(), host.clone()) };
        let class =
            if matches!(storage, Storage::OnNodes) { on_nodes(class)? } else { class.clone() };
        let entry = open_class(name, &class, settings, &deps).await;
        classes.push(entry.context(|| format!("opening class {name}"))?);
    }
    if !settings.class.contains_key(&settings.default_class) {
        let message =
            format!("default_class is {}, but there is no such class", settings.default_class);
        return Err(Error::new(Kind::Invalid, message));
    }
    // Each write of a shared store is a request to somebody else's server.
    let history = settings.store.starts_with("embedded:");
    let drafts = (!history).then_some(ABANDONED);
    let parts = EngineParts { instance, store, classes, nodes: hub.clone(), history, drafts };
    Ok(Server { engine: Arc::new(Engine::new(parts)), hub })
}

/// A class whose storage is part of a machine, as the control half sees it that is elsewhere.
fn on_nodes(class: &ClassSettings) -> Result<ClassSettings> {
    let kind = hawser_provider::find(&class.provider)?;
    if kind.outline(&class.rest)?.is_none() {
        return Ok(class.clone());
    }
    let mut rest = class.rest.clone();
    rest.insert("of".to_owned(), class.provider.clone().into());
    Ok(ClassSettings { provider: "on_nodes".to_owned(), rest })
}

/// The classes whose storage is part of this machine, as its node half has them.
pub(crate) async fn pools(
    settings: &Settings,
    host: &Arc<dyn Host>,
    node: &NodeId,
) -> Result<Vec<(ClassName, Arc<dyn Provider>)>> {
    let mut pools = Vec::new();
    for (name, class) in &settings.class {
        let kind = hawser_provider::find(&class.provider)?;
        if kind.outline(&class.rest)?.is_none() {
            continue;
        }
        let deps = Deps { node: Some(node.clone()), ..Deps::new(name.clone(), host.clone()) };
        let provider = kind.open(class.rest.clone(), &deps).await;
        pools.push((name.clone(), provider.context(|| format!("opening class {name}"))?));
    }
    Ok(pools)
}

/// What the classes of the settings can do, whoever runs them: a driver says the same of itself in
/// each of its processes.
pub(crate) fn abilities(settings: &Settings) -> Result<HashSet<Ability>> {
    let mut all = HashSet::new();
    for class in settings.class.values() {
        let kind = hawser_provider::find(&class.provider)?;
        if let Some(outline) = kind.outline(&class.rest)? {
            all.extend(outline.abilities);
            all.insert(Ability::Placement);
        }
    }
    Ok(all)
}

async fn open_class(
    name: &ClassName,
    class: &ClassSettings,
    settings: &Settings,
    deps: &Deps,
) -> Result<ClassEntry> {
    let kind = hawser_provider::find(&class.provider)?;
    let provider = kind.open(class.rest.clone(), deps).await?;
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let shown: BTreeMap<_, _> =
        class.rest.iter().map(|(key, value)| (key.clone(), shown(value))).collect();
    let class = Class {
        name: name.clone(),
        provider: class.provider.clone(),
        settings: shown,
        abilities: provider.abilities(),
        default: *name == settings.default_class,
    };
    Ok(ClassEntry { class, provider })
}

/// The node half of this machine, with what a crash left behind put right.
pub(crate) async fn node(
    state_dir: &Path,
    id: Option<&NodeId>,
    host: &Arc<dyn Host>,
    pools: Vec<(ClassName, Arc<dyn Provider>)>,
) -> Result<(NodeId, Arc<NodeHalf>)> {
    let instance = prepare_state(state_dir)?;
    let id = own_id(id, host).await?;
    let HostSettings { run_dir, lock_dir, .. } = host_settings(state_dir).await?;
    let half = NodeHalf::new(NodeParts {
        id: id.clone(),
        instance,
        host: host.clone(),
        connectors: CONNECTORS.into(),
        registry: Arc::new(FileRegistry::open(&run_dir, &lock_dir)?),
        pools,
    });
    half.recover()
        .await
        .context(|| "putting right what an earlier run left on this host".into())?;
    Ok((id, Arc::new(half)))
}

/// The id of this machine as a node: the one that was given, else its name.
pub(crate) async fn own_id(given: Option<&NodeId>, host: &Arc<dyn Host>) -> Result<NodeId> {
    match given {
        Some(id) => Ok(id.clone()),
        None => Ok(node_id(&host.facts().await?.hostname)),
    }
}

/// The host library: records and locks shared with every Hawser process of the host, or below the
/// state folder for users who may not write there.
pub(crate) async fn library(state_dir: &Path) -> Result<NodeHalf> {
    hawser_connect::open(host_settings(state_dir).await?)
}

/// The host name as a node id; hosts whose name is none are called `localhost`.
pub(crate) fn node_id(hostname: &str) -> NodeId {
    let lower = hostname.to_ascii_lowercase().replace('_', "-");
    lower.parse().unwrap_or_else(|_| "localhost".parse().expect("localhost is a legal node id"))
}

/// Makes the state folder and answers the id of the instance that lives in it.
pub(crate) fn prepare_state(dir: &Path) -> Result<InstanceId> {
    let failed = |source| StateError::Folder { path: dir.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let path = dir.join(INSTANCE_FILE);
    for _ in 0..2 {
        match fs::read_to_string(&path) {
            Ok(text) => return Ok(text.trim().parse()?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error).into()),
        }
        write_new(dir, &path, InstanceId::generate().as_str()).map_err(failed)?;
    }
    let message = format!("{} cannot be read back", path.display());
    Err(Error::new(Kind::Internal, message))
}

/// Writes a file that must not exist, whole or not at all; somebody else's is left as it is.
fn write_new(dir: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = dir.join(format!(".instance.{}", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_folder_keeps_its_instance() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");

        let first = prepare_state(&state).unwrap();

        assert_eq!(prepare_state(&state).unwrap(), first);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn a_damaged_instance_file_is_refused_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("instance"), "garbage").unwrap();

        assert!(prepare_state(dir.path()).is_err());
    }

    #[test]
    fn every_host_has_a_node_id() {
        assert_eq!(node_id("Node_1").as_str(), "node-1");
        assert_eq!(node_id("").as_str(), "localhost");
        assert_eq!(node_id("ü").as_str(), "localhost");
    }
}
