//! Small files: sysfs, procfs, configfs, settings below `/etc`, notes of our own below `/run`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

use super::KernelResult;

/// Reads and writes small files by absolute path.
///
/// # Contract
///
/// - reading answers at once: it is for files that the kernel answers from memory and for small
///   settings, never for what lies on a network;
/// - writing to a file of the kernel is one `write(2)` of the whole, on a worker with a limit, and
///   never creates the file;
/// - what is written is never logged: it may hold a secret.
#[async_trait]
pub trait Files: Send + Sync {
    /// The content, at most 1 MiB; `None` when there is no such file, also when its device went
    /// while it was read (`ENODEV`, `ENXIO`).
    fn read(&self, file: &Path) -> KernelResult<Option<Vec<u8>>>;

    /// The content as text without surrounding blanks and NULs, decoded lossily.
    fn read_text(&self, file: &Path) -> KernelResult<Option<String>> {
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8_lossy(&bytes);
            text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()
        };
        Ok(self.read(file)?.map(text))
    }

    /// The names in a folder, sorted; none when there is no such folder.
    fn list(&self, folder: &Path) -> KernelResult<Vec<String>>;

    /// The path with every link resolved; `None` when there is nothing.
    fn resolve(&self, path: &Path) -> KernelResult<Option<PathBuf>>;

    /// Major and minor number of a block device node, links followed; `None` when there is no block
    /// device.
    fn device_number(&self, node: &Path) -> KernelResult<Option<(u32, u32)>>;

    /// Writes to a file of the kernel.
    async fn write(&self, file: &Path, data: &[u8], limit: Duration) -> KernelResult<()>;

    /// Writes to a file of the kernel and reads its answer through the same descriptor, as
    /// `/dev/nvme-fabrics` wants it.
    async fn exchange(&self, file: &Path, data: &[u8], limit: Duration) -> KernelResult<Vec<u8>>;

    /// An ioctl of a vendor's control device with a buffer of plain bytes that the driver may fill
    /// in, such as ScaleIO's `/dev/scini`.
    async fn control(
        &self,
        device: &Path,
        request: u32,
        data: Vec<u8>,
        limit: Duration,
    ) -> KernelResult<Vec<u8>>;

    /// Replaces a settings file as a whole, with this mode, durably; its folder is made where it is
    /// missing.
    async fn store(&self, file: &Path, data: &[u8], mode: u32) -> KernelResult<()>;

    /// Makes a settings file that must not exist; false when it does, and then nothing is changed.
    async fn create(&self, file: &Path, data: &[u8], mode: u32) -> KernelResult<bool>;

    /// Removes a file or an empty folder; false when there is none.
    async fn remove(&self, path: &Path) -> KernelResult<bool>;

    /// Waits for changes of files in this folder and in the folders in it, by [`Files::store`] and the
    /// like, and below `/dev` by [`Files::write`], whose callers gave up waiting: they are made all the
    /// same. What processes that died while they changed such a file left is removed.
    async fn settled(&self, folder: &Path) -> KernelResult<()>;

    /// A folder for notes of our own that go with a reboot, such as `/run/hawser`.
    fn run_dir(&self) -> PathBuf;
}
