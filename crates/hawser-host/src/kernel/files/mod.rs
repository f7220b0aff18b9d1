//! Small files: sysfs, procfs, configfs, settings, notes of our own.

mod draft;
mod lanes;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{Files, KernelError, KernelResult};
use rustix::fs::{FileType, OFlags, major, minor, stat};
use rustix::io::Errno;

use draft::{Draft, sync_folder};
use lanes::Lanes;

use super::call;
use crate::sys::control::control;
use crate::workers::Workers;

/// No file that is read here is larger.
const LARGEST: u64 = 1 << 20;

/// The small files of this machine.
#[derive(Debug)]
pub(crate) struct LinuxFiles {
    workers: Workers,
    limit: Duration,
    run_dir: PathBuf,
    lanes: Lanes,
}

impl LinuxFiles {
    pub(crate) fn new(workers: Workers, limit: Duration, run_dir: PathBuf) -> Self {
        Self { workers, limit, run_dir, lanes: Lanes::default() }
    }

    /// Runs file work on a worker.
    async fn work<T: Send + 'static>(
        &self,
        what: &str,
        path: &Path,
        limit: Duration,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> KernelResult<T> {
        let owned = path.to_owned();
        let work = move || absolute(&owned).and_then(|()| work(&owned));
        call(&self.workers, attempt(what, path), limit, work).await
    }

    /// The same for what changes a file of ours, in order.
    async fn change<T: Send + 'static>(
        &self,
        what: &str,
        path: &Path,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> KernelResult<T> {
        let lane = self.in_time(what, path, self.lanes.enter(path)).await?;
        let work = move |path: &Path| {
            // Held until the work is done, whether or not somebody still waits for it.
            let _lane = lane;
            work(path)
        };
        self.work(what, path, self.limit, work).await
    }

    async fn in_time<T>(
        &self,
        what: &str,
        path: &Path,
        wait: impl Future<Output = T>,
    ) -> KernelResult<T> {
        let late = |_| KernelError::Late { attempt: attempt(what, path), limit: self.limit };
        tokio::time::timeout(self.limit, wait).await.map_err(late)
    }
}

fn attempt(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}

/// A relative path would mean whatever folder this process happens to be in.
fn absolute(path: &Path) -> io::Result<()> {
    if path.is_absolute() { Ok(()) } else { Err(Errno::INVAL.into()) }
}

/// `None` for what is not there, or whose device has just gone.
fn present<T>(what: &str, path: &Path, done: io::Result<T>) -> KernelResult<Option<T>> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(source) => Err(KernelError::Refused { attempt: attempt(what, path), source }),
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::NODEV, Errno::NXIO];
    Errno::from_io_error(error).is_some_and(|errno| gone.contains(&errno))
}

#[async_trait]
impl Files for LinuxFiles {
    fn read(&self, file: &Path) -> KernelResult<Option<Vec<u8>>> {
        let content = present("reading", file, absolute(file).and_then(|()| read(file)))?;
        if content.as_ref().is_some_and(|content| content.len() as u64 > LARGEST) {
            let why = format!("it is larger than {LARGEST} bytes");
            return Err(KernelError::Nonsense { attempt: attempt("reading", file), why });
        }
        Ok(content)
    }

    fn list(&self, folder: &Path) -> KernelResult<Vec<String>> {
        let names = absolute(folder).and_then(|()| list(folder));
        Ok(present("listing", folder, names)?.unwrap_or_default())
    }

    fn resolve(&self, path: &Path) -> KernelResult<Option<PathBuf>> {
        let real = absolute(path).and_then(|()| fs::canonicalize(path));
        present("following the links of", path, real)
    }

    fn device_number(&self, node: &Path) -> KernelResult<Option<(u32, u32)>> {
        let found = absolute(node).and_then(|()| Ok(stat(node)?));
        let found = present("looking at", node, found)?;
        Ok(found
            .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice)
            .map(|stat| (major(stat.st_rdev), minor(stat.st_rdev))))
    }

    async fn write(&self, file: &Path, data: &[u8], limit: Duration) -> KernelResult<()> {
        const WHAT: &str = "writing to";
        let data = data.to_owned();
        // A driver's own file takes one command after the other, also one whose caller has gone.
        let lane = match file.starts_with("/dev") {
            true => Some(self.in_time(WHAT, file, self.lanes.enter(file)).await?),
            false => None,
        };
        let write = move |path: &Path| {
            let _lane = lane;
            write_whole(&open(path, OFlags::WRONLY)?, &data)
        };
        self.work(WHAT, file, limit, write).await
    }

    async fn exchange(&self, file: &Path, data: &[u8], limit: Duration) -> KernelResult<Vec<u8>> {
        let data = data.to_owned();
        let exchange = move |path: &Path| {
            let file = open(path, OFlags::RDWR)?;
            write_whole(&file, &data)?;
            let mut answer = Vec::new();
            file.take(LARGEST).read_to_end(&mut answer)?;
            Ok(answer)
        };
        self.work("writing to", file, limit, exchange).await
    }

    async fn control(
        &self,
        device: &Path,
        request: u32,
        data: Vec<u8>,
        limit: Duration,
    ) -> KernelResult<Vec<u8>> {
        let what = format!("the request {request:#x} to");
        let call = move |path: &Path| {
            // udev takes the end of an opening for writing for a change of the disk.
            let kind = FileType::from_raw_mode(stat(path)?.st_mode);
            let is_disk = kind == FileType::BlockDevice;
            let flags = if is_disk { OFlags::RDONLY } else { OFlags::RDWR };
            Ok(control(open(path, flags)?, request, data)?)
        };
        self.work(&what, device, limit, call).await
    }

    async fn store(&self, file: &Path, data: &[u8], mode: u32) -> KernelResult<()> {
        let data = data.to_owned();
        let store = move |path: &Path| {
            fs::rename(Draft::write(path, &data, mode)?.path(), path)?;
            sync_folder(path)
        };
        self.change("writing", file, store).await
    }

    async fn settled(&self, folder: &Path) -> KernelResult<()> {
        const WHAT: &str = "waiting for changes below";
        self.in_time(WHAT, folder, self.lanes.settle(folder)).await?;
        self.work(WHAT, folder, self.limit, Draft::clear_dead).await
    }

    async fn create(&self, file: &Path, data: &[u8], mode: u32) -> KernelResult<bool> {
        let data = data.to_owned();
        let create = move |path: &Path| {
            if fs::symlink_metadata(path).is_ok() {
                return Ok(false);
            }
            let draft = Draft::write(path, &data, mode)?;
            // The whole file under its name in one step, and never over another one.
            match fs::hard_link(draft.path(), path) {
                Ok(()) => sync_folder(path).map(|()| true),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.change("making", file, create).await
    }

    async fn remove(&self, path: &Path) -> KernelResult<bool> {
        self.change("removing", path, remove).await
    }

    fn run_dir(&self) -> PathBuf {
        self.run_dir.clone()
    }
}

/// At most one byte more than the largest.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Non-blocking: a pipe or a terminal that stands there by mistake must not hold us up.
    let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let mut content = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut content)?;
    Ok(content)
}

fn list(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Opens what is there; never makes it.
fn open(path: &Path, how: OFlags) -> io::Result<File> {
    let flags = how | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?.into())
}

/// One `write(2)`: a file of the kernel takes each for a request of its own.
fn write_whole(mut file: &File, data: &[u8]) -> io::Result<()> {
    let written = loop {
        match file.write(data) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            written => break written?,
        }
    };
    if written == data.len() {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::WriteZero,
        format!("the kernel took {written} of {} bytes", data.len()),
    ))
}

fn remove(path: &Path) -> io::Result<bool> {
    let removed = match fs::remove_file(path) {
        // A folder; or, in configfs, EPERM for it.
        Err(error)
            if [ErrorKind::IsADirectory, ErrorKind::PermissionDenied].contains(&error.kind())
                && fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) =>
        {
            fs::remove_dir(path)
        }
        removed => removed,
    };
    match removed {
        Ok(()) => match sync_folder(path) {
            // Somebody removed the folder too, meanwhile.
            Err(error) if is_gone(&error) => Ok(true),
            synced => synced.map(|()| true),
        },
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
