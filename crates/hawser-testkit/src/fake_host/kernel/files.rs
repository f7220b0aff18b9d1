//! The `Files` part: the tree, and what behaviours make of a write.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{Files, KernelError, KernelResult};

use super::Kernel;
use super::behaviour::{Answer, Door, Write};
use super::errno::{EACCES, EINVAL, EISDIR, ENODEV, ENOENT, ENOTTY, ENXIO};
use super::tree::{Node, Tree};

/// The largest file that is read whole.
const LARGEST: usize = 1 << 20;

/// A switch that makes looking at this path fail; devices that went are nothing.
fn failing(tree: &Tree, path: &Path) -> Answer<()> {
    let place = tree.resolve(path);
    let errno = tree
        .failing_reads
        .get(path)
        .or_else(|| place.as_ref().and_then(|place| tree.failing_reads.get(place)));
    errno.map_or(Ok(()), |errno| Err(*errno))
}

/// Settings may be made and removed; files of the kernel may not.
fn settings(path: &Path) -> Answer<()> {
    let kernel = ["/sys", "/proc"].iter().any(|folder| path.starts_with(folder));
    if kernel { Err(EACCES) } else { Ok(()) }
}

fn ask(tree: &mut Tree, door: Door, file: &Path, request: u32, data: &[u8]) -> Answer<Vec<u8>> {
    let place = tree.resolve(file).ok_or(ENOENT)?;
    let write = Write { path: file, place: &place, request, data };
    match (tree.ask_file(door, &write), door) {
        (Some(answer), _) => answer,
        (None, Door::Write) => tree.overwrite(file, data).map(|()| Vec::new()),
        (None, Door::Exchange) => Err(EINVAL),
        (None, Door::Control) => Err(ENOTTY),
    }
}

impl Kernel {
    /// Looks at the tree, which is no fault point.
    fn look<T>(
        &self,
        verb: &str,
        path: &Path,
        look: impl FnOnce(&Tree) -> Answer<T>,
    ) -> KernelResult<T> {
        let mut state = self.state();
        let tree = state.tree();
        failing(tree, path)
            .and_then(|()| look(tree))
            .map_err(|errno| KernelError::refused(format!("{verb} {}", path.display()), errno))
    }
}

#[async_trait]
impl Files for Kernel {
    fn read(&self, file: &Path) -> KernelResult<Option<Vec<u8>>> {
        let read = self.look("reading", file, |tree| match tree.node(file) {
            None => Ok(None),
            Some(Node::File(data, _)) => Ok(Some(data[..data.len().min(LARGEST)].to_vec())),
            Some(Node::Folder) => Err(EISDIR),
            Some(Node::Link(_) | Node::Block(..)) => Err(EINVAL),
        });
        match read {
            Err(error) if [Some(ENODEV), Some(ENXIO)].contains(&error.errno()) => Ok(None),
            read => read,
        }
    }

    fn list(&self, folder: &Path) -> KernelResult<Vec<String>> {
        self.look("listing", folder, |tree| tree.names(folder))
    }

    fn resolve(&self, path: &Path) -> KernelResult<Option<PathBuf>> {
        self.look("resolving", path, |tree| Ok(tree.resolve(path)))
    }

    fn device_number(&self, node: &Path) -> KernelResult<Option<(u32, u32)>> {
        let number = self.look("looking at", node, |tree| match tree.node(node) {
            Some(Node::Block(major, minor)) => Ok(Some((*major, *minor))),
            Some(Node::Folder | Node::File(..) | Node::Link(_)) | None => Ok(None),
        })?;
        Ok(number.or_else(|| self.state().devices.get(node).ok().map(|device| device.number)))
    }

    async fn write(&self, file: &Path, data: &[u8], limit: Duration) -> KernelResult<()> {
        self.call("Files::write", &file.display().to_string(), limit, |state| {
            ask(state.tree(), Door::Write, file, 0, data).map(drop)
        })
        .await
    }

    async fn exchange(&self, file: &Path, data: &[u8], limit: Duration) -> KernelResult<Vec<u8>> {
        self.call("Files::exchange", &file.display().to_string(), limit, |state| {
            ask(state.tree(), Door::Exchange, file, 0, data)
        })
        .await
    }

    async fn control(
        &self,
        device: &Path,
        request: u32,
        data: Vec<u8>,
        limit: Duration,
    ) -> KernelResult<Vec<u8>> {
        let detail = format!("{} {request:#x}", device.display());
        self.call("Files::control", &detail, limit, |state| {
            ask(state.tree(), Door::Control, device, request, &data)
        })
        .await
    }

    async fn store(&self, file: &Path, data: &[u8], mode: u32) -> KernelResult<()> {
        let detail = format!("{} {mode:o}", file.display());
        self.call("Files::store", &detail, Duration::MAX, |state| {
            settings(file)?;
            state.tree().file_mode(file, data, mode);
            Ok(())
        })
        .await
    }

    async fn create(&self, file: &Path, data: &[u8], mode: u32) -> KernelResult<bool> {
        let detail = format!("{} {mode:o}", file.display());
        self.call("Files::create", &detail, Duration::MAX, |state| {
            settings(file)?;
            Ok(state.tree().create(file, data, mode).is_ok())
        })
        .await
    }

    async fn remove(&self, path: &Path) -> KernelResult<bool> {
        self.call("Files::remove", &path.display().to_string(), Duration::MAX, |state| {
            settings(path)?;
            state.tree().unlink(path)
        })
        .await
    }

    async fn settled(&self, folder: &Path) -> KernelResult<()> {
        self.call("Files::settled", &folder.display().to_string(), Duration::MAX, |state| {
            let tree = state.tree();
            let inner = tree.list(folder).into_iter().map(|name| folder.join(name));
            for folder in inner.chain([folder.to_owned()]).collect::<Vec<_>>() {
                let names = tree.list(&folder).into_iter();
                for name in names.filter(|name| name.starts_with(".hawser.")) {
                    tree.unlink(&folder.join(name))?;
                }
            }
            Ok(())
        })
        .await
    }

    fn run_dir(&self) -> PathBuf {
        "/run/hawser".into()
    }
}
