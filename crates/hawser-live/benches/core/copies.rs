//! Snapshots and clones of 1 GiB against a person with `cp`.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hawser_api::RestClient;
use hawser_core::filesystem::FsKind;
use hawser_core::name::{Alias, Labels, NodeId};
use hawser_core::port::Control;
use hawser_core::port::control::Reply;
use hawser_core::publication::MountRequest;
use hawser_core::snapshot::{SnapshotRef, SnapshotRequest};
use hawser_core::volume::{Access, SourceRef, VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Result};
use hawser_live::process::{Ground, command};

use crate::pool::{self, Kind, said};
use crate::process::flush;
use hawser_live::report::{Figure, Report, median, milliseconds};

const WAIT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// The bar: so many times the peer, plus so much.
const TIMES: f64 = 1.2;
const PLUS: f64 = 0.005;

/// How much is in the volume, and how often it is copied.
struct Fill {
    name: &'static str,
    /// `None`: as much as goes in.
    bytes: Option<usize>,
    rounds: usize,
}

const FILLS: [Fill; 2] = [
    Fill { name: "200MiB", bytes: Some(200 * MIB), rounds: 7 },
    Fill { name: "full", bytes: None, rounds: 5 },
];

struct Copies<'a> {
    kind: &'a Kind,
    client: RestClient,
    node: NodeId,
    pool: PathBuf,
    mounts: PathBuf,
}

/// Measures copies on one kind of pool.
pub(crate) async fn run(report: &mut Report, kind: &Kind) {
    let ground = Ground::below(&crate::place());
    // Ours flushes its journal too, so a disk that is busy with something else shows here first.
    println!("disk: a 4 KiB write and its flush take {} now", milliseconds(flush(&ground)));
    let pool = pool::make(&ground, kind);
    let config = ground.path().join("hawser.toml");
    let text = format!("[class.default]\nprovider = \"local\"\npath = \"{}/h\"\n", pool.display());
    fs::write(&config, text).expect("a settings file");
    let mut server = ground.up(&["--config", &config.display().to_string()]).await;
    let client = ground.client();
    let nodes = client.list_nodes().await.expect("the nodes");
    let node = nodes.first().expect("this node").id.clone();
    let mounts = ground.mounts();
    let copies = Copies { kind, client, node, pool, mounts };
    for fill in &FILLS {
        let volume = copies.fill(fill).await;
        copies.measure(report, fill, &volume, Some(&copies.mounts.join(fill.name))).await;
        let unmounted = copies.client.unmount(&volume, &copies.node, None, WAIT).await;
        done(unmounted);
        copies.measure(report, fill, &volume, None).await;
        done(copies.client.delete_volume(&volume, WAIT).await);
    }
    server.stop();
}

fn done<T>(reply: Result<Reply<T>>) -> T {
    match reply.expect("a change that succeeds") {
        Reply::Done(change) => change.into_inner(),
        Reply::Pending(operation) => panic!("{operation:?} takes too long"),
    }
}

fn alias(name: &str) -> Alias {
    Alias::native(name).expect("a legal name")
}

impl Copies<'_> {
    /// A mounted volume of 1 GiB with so much in it.
    async fn fill(&self, fill: &Fill) -> VolumeRef {
        let alias = alias(&format!("source-{}", fill.name.to_lowercase()));
        let mut request = VolumeRequest::new(alias.clone(), ByteSize::gib(1));
        request.access = Some(Access::Filesystem(FsKind::Ext4));
        done(self.client.create_volume(request, WAIT).await);
        let volume = VolumeRef::Alias(alias);
        let target = self.mounts.join(fill.name);
        let node = self.node.clone();
        let request =
            MountRequest { node, target: target.clone(), read_only: false, flags: Vec::new() };
        done(self.client.mount(&volume, request, WAIT).await);
        write(&target.join("data"), fill.bytes);
        said(command("sync").arg("-f").arg(&target));
        volume
    }

    /// The three ways in turn, each first as often as last; then their medians.
    async fn measure(
        &self,
        report: &mut Report,
        fill: &Fill,
        volume: &VolumeRef,
        mounted: Option<&Path>,
    ) {
        let id = self.client.get_volume(volume).await.expect("our volume").id;
        let image = self.pool.join(format!("h/volumes/{id}.img"));
        // In memory before the first, not only before the second.
        said(command("cat").arg(&image).stdout(std::process::Stdio::null()));
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..fill.rounds {
            for turn in 0..3 {
                let way = (round + turn) % 3;
                times[way].push(match way {
                    0 => self.peer(&image, mounted),
                    1 => self.snapshot(volume).await,
                    _ => self.clone(volume).await,
                });
                said(command("sync").arg("-f").arg(&self.pool));
            }
        }
        let [peer, snapshot, clone] = times.map(median);
        let (state, how) = match mounted {
            Some(_) => ("mounted", format!("fsfreeze,{}", self.kind.copy)),
            None => ("unmounted", self.kind.copy.to_owned()),
        };
        for (what, ours) in [("snapshot", snapshot), ("clone", clone)] {
            let bar = TIMES * peer + PLUS;
            let figure = Figure {
                ours: milliseconds(ours),
                peer: Some(format!("{}({})", milliseconds(peer), how.replace(' ', "_"))),
                ratio: Some(ours / peer),
                bar: Some((format!("{}(1.2x+5ms)", milliseconds(bar)), ours <= bar)),
            };
            report.add(&format!("{what}-{}-{}-{state}", self.kind.name, fill.name), figure);
        }
    }

    async fn snapshot(&self, volume: &VolumeRef) -> f64 {
        let name = alias("snapshot");
        let request = SnapshotRequest {
            alias: name.clone(),
            volume: volume.clone(),
            labels: Labels::default(),
        };
        let begun = Instant::now();
        done(self.client.create_snapshot(request, WAIT).await);
        let time = begun.elapsed().as_secs_f64();
        done(self.client.delete_snapshot(&SnapshotRef::Alias(name), WAIT).await);
        time
    }

    async fn clone(&self, volume: &VolumeRef) -> f64 {
        let name = alias("clone");
        let mut request = VolumeRequest::new(name.clone(), ByteSize::gib(1));
        request.source = Some(SourceRef::Volume(volume.clone()));
        let begun = Instant::now();
        done(self.client.create_volume(request, WAIT).await);
        let time = begun.elapsed().as_secs_f64();
        done(self.client.delete_volume(&VolumeRef::Alias(name), WAIT).await);
        time
    }

    /// What a person does. A mounted file system is held still meanwhile, as ours is: the copy of
    /// one that goes on writing is worth nothing, and holding still has its price in the kernel.
    fn peer(&self, image: &Path, mounted: Option<&Path>) -> f64 {
        let copy = self.pool.join("peer.img");
        let mut script = format!("{} \"$1\" \"$2\" && sync -f \"$2\"", self.kind.copy);
        if mounted.is_some() {
            script =
                format!("fsfreeze -f \"$3\" && {script}; code=$?; fsfreeze -u \"$3\"; exit $code");
        }
        let begun = Instant::now();
        said(command("sh").args(["-c", &script, "sh"]).args([image, &copy]).args(mounted));
        let time = begun.elapsed().as_secs_f64();
        fs::remove_file(copy).expect("the peer's copy");
        time
    }
}

/// Writes so much that no zeros can be left out of; until nothing more goes in where that is asked.
fn write(path: &Path, bytes: Option<usize>) {
    let mut file = File::create_new(path).expect("a new file");
    let mut block = vec![0_u8; MIB];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for byte in &mut block {
        // xorshift: not zero, not the same everywhere.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
    for number in 0..bytes.map_or(usize::MAX, |bytes| bytes / MIB) {
        block[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        match file.write_all(&block) {
            Ok(()) => {}
            Err(error) if bytes.is_none() && error.kind() == std::io::ErrorKind::StorageFull => {
                break;
            }
            Err(error) => panic!("writing {}: {error}", path.display()),
        }
    }
}
