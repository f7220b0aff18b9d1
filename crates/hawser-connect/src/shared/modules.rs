//! Kernel modules: there, built in, or loaded when they are needed.

use std::path::{Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::Tool;

use super::error::AttachError;

/// Makes sure that a module is there, and loads it where it is not.
pub(crate) async fn need(host: &dyn Host, module: &str) -> Result<()> {
    if is_loaded(host, module)? || is_built_in(host, module).await? {
        return Ok(());
    }
    let loaded = host.run(&Tool::new("modprobe").arg(module)).await;
    match loaded {
        Ok(output) if output.code == Some(0) => Ok(()),
        Ok(output) => Err(missing(module, output.failed().stderr).into()),
        Err(error) => Err(missing(module, error.sentence()).into()),
    }
}

/// True when a module can be used without loading anything.
pub(crate) async fn is_there(host: &dyn Host, module: &str) -> Result<bool> {
    Ok(is_loaded(host, module)? || is_built_in(host, module).await?)
}

/// True when the module is loaded, or built in with parameters.
fn is_loaded(host: &dyn Host, module: &str) -> Result<bool> {
    let folder = Path::new("/sys/module").join(module.replace('-', "_"));
    Ok(host.files().resolve(&folder)?.is_some())
}

/// Modules that are built in without parameters stand in a list only.
async fn is_built_in(host: &dyn Host, module: &str) -> Result<bool> {
    let kernel = host.facts().await?.kernel;
    let list = PathBuf::from(format!("/lib/modules/{kernel}/modules.builtin"));
    Ok(host.files().read_text(&list)?.is_some_and(|list| lists(&list, module)))
}

/// True when a `modules.builtin` or a `modules.dep` has the module; `-` and `_` are the same in names
/// of modules.
pub(crate) fn lists(text: &str, module: &str) -> bool {
    let wanted = module.replace('-', "_");
    text.lines().any(|line| {
        let file = line.split(':').next().unwrap_or_default();
        let name = file.rsplit('/').next().and_then(|name| name.split_once(".ko"));
        name.is_some_and(|(name, _)| name.replace('-', "_") == wanted)
    })
}

fn missing(module: &str, why: String) -> AttachError {
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    AttachError::Missing {
        what: format!("the kernel module {module}"),
        advice: format!("load it with modprobe {module}, or use a kernel that has it{why}"),
    }
}
