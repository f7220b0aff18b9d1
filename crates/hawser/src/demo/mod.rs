//! `hawser demo`: the whole life of a volume on this machine, checked at every turn, in seconds.
//!
//! It runs the same engine, provider, connector and host as the service, in a folder of its own that
//! is gone afterwards.

mod data;
mod stage;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::port::Host;
use hawser_core::size::ByteSize;

use hawser_front::cli::Global;

use crate::assemble;
use crate::settings::{Settings, SettingsFlags};
use data::{checksum, write_files};
use stage::Stage;

/// How large the demo's volume is, and how large it becomes.
const SIZE: ByteSize = ByteSize::mib(256);
const GROWN: ByteSize = ByteSize::mib(512);

/// Plays it. Whatever fails, what was made is taken away again.
pub(crate) async fn run(global: &Global) -> Result<()> {
    let began = Instant::now();
    let privileged = assemble::is_privileged().await?;
    let dir = tempfile::Builder::new()
        .prefix("hawser-demo-")
        .tempdir()
        .map_err(|source| Error::from_source(Kind::Unavailable, source))
        .context(|| "making a folder for the demo".into())?;
    introduce(privileged);
    let state_dir = dir.path().join("state");
    let host = assemble::host(&state_dir).await?;
    let before = Traces::of(&*host, dir.path()).await?;
    let flags = SettingsFlags::default();
    let settings = Settings::read(&flags, global, &state_dir, privileged)?;
    let server = assemble::server(&settings, &host, &assemble::Storage::Here).await?;
    let (node, half) = assemble::node(&settings.state_dir, None, &host, Vec::new()).await?;
    server.hub.add_local(node.clone(), half);
    server.engine.start().await?;
    let stage = Stage::new(server.engine.clone(), node, dir.path(), privileged);
    let played = play(&stage).await;
    let cleaned = stage.clean_up().await;
    server.engine.stop(Duration::from_secs(10)).await;
    drop(server);
    // The failure that came first says more than what it led to.
    played.and(cleaned)?;
    let after = Traces::of(&*host, dir.path()).await?;
    check_traces(&before, &after)?;
    let took = began.elapsed();
    println!("Nothing is left behind: loop devices, mounts and the pool are as before.");
    println!("The whole life of a volume took {:.1} s.", took.as_secs_f64());
    println!("Next: `hawser up` leaves a running service; `hawser --help` shows the commands.");
    Ok(())
}

fn introduce(privileged: bool) {
    if privileged {
        println!("The life of a volume: a sparse image file, a loop device, ext4.");
    } else {
        println!("The life of a volume, without privileges: a plain folder instead of a device.");
        println!("What is different from running as root: no loop device, no ext4, no mount (the");
        println!("folder is used where it is), and its size is kept in mind but not enforced.");
    }
}

/// The whole life; each step prints its time, and data is compared by checksum.
async fn play(stage: &Stage) -> Result<()> {
    stage.create("data", SIZE).await?;
    let data = stage.open("data").await?;
    let first = stage.step("write 32 MiB in 8 files", || write_files(&data, 1)).await?;
    stage.snapshot("monday", "data").await?;
    let second = stage.step("overwrite all of it", || write_files(&data, 2)).await?;
    stage.restore("restored", "monday").await?;
    let restored = stage.open("restored").await?;
    stage.verify("the restored volume has the data of the snapshot", &restored, &first).await?;
    stage.clone_volume("copy", "data").await?;
    let copy = stage.open("copy").await?;
    stage.verify("the clone has the data of now", &copy, &second).await?;
    stage.expand("data", GROWN).await?;
    stage.verify_size(&data, GROWN).await?;
    stage.verify("after growing, the data is unchanged", &data, &second).await?;
    stage.step("write to the clone", || write_files(&copy, 3)).await?;
    stage.verify("the original does not see it", &data, &second).await?;
    for name in ["data", "restored", "copy"] {
        stage.close(name).await?;
    }
    stage.delete_snapshot("monday").await?;
    for name in ["data", "restored", "copy"] {
        stage.delete(name).await?;
    }
    stage.doctor().await
}

/// What a host shows of a demo.
#[derive(PartialEq, Eq, Debug)]
struct Traces {
    loops: Vec<String>,
    mounts: Vec<String>,
    pool: Vec<String>,
}

impl Traces {
    async fn of(host: &dyn Host, dir: &Path) -> Result<Self> {
        let of_demo = |text: &str| text.contains(&dir.display().to_string());
        let loops = host.loop_devices().await?;
        let loops = loops.iter().map(|device| device.backing_file.display().to_string());
        let mounts = host.mounts().await?;
        let mounts = mounts.iter().map(|mount| mount.target.display().to_string());
        let mut pool = Vec::new();
        for part in ["volumes", "snapshots", "staging"] {
            let entries = std::fs::read_dir(dir.join("state/pool").join(part));
            let names = entries.into_iter().flatten().flatten();
            pool.extend(names.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        }
        Ok(Self {
            loops: loops.filter(|file| of_demo(file)).collect(),
            mounts: mounts.filter(|target| of_demo(target)).collect(),
            pool,
        })
    }
}

fn check_traces(before: &Traces, after: &Traces) -> Result<()> {
    if before == after {
        return Ok(());
    }
    let message = format!("the demo left something behind: {after:?}, before it was {before:?}");
    Err(Error::new(Kind::Internal, message))
}

/// Reading back, off the runtime's threads.
async fn checksum_of(dir: &Path) -> Result<String> {
    let dir = dir.to_owned();
    blocking(move || checksum(&dir)).await
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let result = tokio::task::spawn_blocking(work).await;
    result
        .map_err(|source| Error::from_source(Kind::Internal, source))?
        .map_err(|source| Error::from_source(Kind::Internal, source))
}

/// Keeps the engine's type out of the stage.
type Control = Arc<dyn hawser_core::port::Control>;
