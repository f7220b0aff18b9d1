//! The smallest connector for volumes of a SCSI fabric that keeps the whole contract: one or several
//! paths, identity, flush, locks. It is here to prove the contract and the simulations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health, Identity, Multipath};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, PathsBy, Platform, Proof, Proofs,
};
use hawser_core::port::kernel::{DeviceEvents, KernelError, LockMode};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Reason};
use tokio::time::Instant;

const SHORT: Duration = Duration::from_secs(5);
const WWIDS: &str = "/etc/multipath/wwids";

pub(crate) struct Sample;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["SAMPLE"],
    maturity: Maturity::Preview,
    note: "for tests of the tests",
    platforms: &[Platform::All],
    abilities: Abilities {
        extend: true,
        multipath: Some(PathsBy::DeviceMapper),
        encryption: false,
        reservation: false,
    },
    proofs: Proofs::of(Proof::Fixtures),
    own: &[],
    needs: &[],
};

/// What the connection info says.
struct Volume {
    addresses: Vec<String>,
    wwid: String,
    identity: Identity,
}

fn read(info: &ConnectionInfo) -> Result<Volume> {
    let list = info.data.get("addresses").and_then(|value| value.as_array());
    let list = list.ok_or_else(|| Error::new(Kind::Invalid, "addresses are missing"))?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    // The data names the volume too, for a caller who does not say who it must be.
    let named = info.data.get("wwid").and_then(text).map(|wwid| Identity::new("wwid", wwid));
    let identity = info.identity.clone().or(named);
    let identity = identity.ok_or_else(|| Error::new(Kind::Invalid, "no identity"))?;
    let addresses = list.iter().filter_map(text).collect();
    Ok(Volume { addresses, wwid: identity.value.clone(), identity })
}

/// What is there of a volume now.
#[derive(Default)]
struct There {
    /// Address and disk of each path; a path may wait for its disk.
    paths: Vec<(String, Option<String>)>,
    /// Name and device of the map.
    map: Option<(String, String)>,
}

impl There {
    fn top(&self) -> Option<PathBuf> {
        let disk = self.paths.iter().find_map(|(_, disk)| disk.as_ref());
        self.map.as_ref().map(|(_, dm)| dm).or(disk).map(|name| Path::new("/dev").join(name))
    }

    fn is_nothing(&self) -> bool {
        self.paths.is_empty() && self.map.is_none()
    }
}

fn text(host: &dyn Host, path: impl AsRef<Path>) -> Result<String> {
    Ok(host.files().read_text(path.as_ref())?.unwrap_or_default())
}

/// What the kernel shows: paths by their address whose name of the volume fits, and the map.
fn look(host: &dyn Host, volume: &Volume) -> Result<There> {
    let mut there = There::default();
    for address in &volume.addresses {
        let device = format!("/sys/class/scsi_device/{address}/device");
        let wwid = text(host, format!("{device}/wwid"))?.replace("naa.", "3");
        if wwid == volume.wwid {
            let disk = host.files().list(Path::new(&format!("{device}/block")))?.into_iter().next();
            there.paths.push((address.clone(), disk));
        }
    }
    for name in host.files().list(Path::new("/sys/block"))? {
        let folder = format!("/sys/block/{name}/dm");
        if text(host, format!("{folder}/uuid"))? == format!("mpath-{}", volume.wwid) {
            there.map = Some((text(host, format!("{folder}/name"))?, name));
        }
    }
    Ok(there)
}

fn late(what: &str) -> Error {
    Error::new(Kind::Timeout, format!("{what} did not happen in time"))
}

/// Waits for events until a deadline; begun before the act whose effect is waited for.
struct Wait {
    events: Box<dyn DeviceEvents>,
    end: Instant,
}

impl Wait {
    fn begin(host: &dyn Host, limit: Duration) -> Self {
        Self { events: host.events().subscribe(), end: Instant::now() + limit }
    }

    async fn next(&mut self, what: &str) -> Result<()> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(what));
        }
        self.events.changed(left).await;
        Ok(())
    }
}

/// The name of the volume that a device tells when it is asked now.
async fn live_wwid(host: &dyn Host, disk: &str) -> Result<String> {
    let opened = host.disks().open(&Path::new("/dev").join(disk)).await?;
    let page = opened.inquiry(Some(0x83)).await?;
    let name = page.get(8..24).unwrap_or_default();
    Ok(format!("3{}", name.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

fn wrong(volume: &Volume, found: &str) -> Error {
    let why = format!("{found} is where {} should be", volume.identity);
    Error::new(Kind::Precondition, why).with_reason(Some(Reason::IdentityMismatch))
}

async fn verify(host: &dyn Host, volume: &Volume, there: &There) -> Result<()> {
    for disk in there.paths.iter().filter_map(|(_, disk)| disk.as_ref()) {
        let found = live_wwid(host, disk).await?;
        if found != volume.wwid {
            return Err(wrong(volume, &found));
        }
    }
    Ok(())
}

fn describe(host: &dyn Host, volume: &Volume, there: &There) -> Result<Option<Attached>> {
    let Some(device) = there.top() else { return Ok(None) };
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sectors: u64 = text(host, format!("/sys/block/{name}/size"))?.parse().unwrap_or(0);
    let (identity, size) = (Some(volume.identity.clone()), ByteSize::bytes(sectors * 512));
    Ok(Some(Attached::Block { device, identity, size }))
}

/// Adds or removes the line of a volume that multipathd remembers.
async fn remember(host: &dyn Host, wwid: &str, known: bool) -> Result<()> {
    let Some(old) = host.files().read(Path::new(WWIDS))? else { return Ok(()) };
    let old = String::from_utf8_lossy(&old).into_owned();
    let line = format!("/{wwid}/\n");
    let new = match (old.contains(&line), known) {
        (false, true) => format!("{old}{line}"),
        (true, false) => old.replace(&line, ""),
        (false, false) | (true, true) => return Ok(()),
    };
    Ok(host.files().store(Path::new(WWIDS), new.as_bytes(), 0o600).await?)
}

async fn multipathd_runs(host: &dyn Host) -> bool {
    host.maps().multipathd("show status", SHORT).await.is_ok()
}

impl Volume {
    async fn scan(&self, host: &dyn Host, attach: &Attach) -> Result<()> {
        let several = attach.multipath != Multipath::Off;
        let wanted = if several { self.addresses.len() } else { 1 };
        let mut wait = Wait::begin(host, attach.deadline);
        for address in &self.addresses[..wanted] {
            let parts: Vec<&str> = address.split(':').collect();
            let [number, rest @ ..] = parts.as_slice() else { continue };
            let file = format!("/sys/class/scsi_host/host{number}/scan");
            host.files().write(Path::new(&file), rest.join(" ").as_bytes(), SHORT).await?;
        }
        while self.disks(host, &self.addresses[..wanted]).await? < wanted {
            wait.next("the disk").await?;
        }
        Ok(())
    }

    /// How many of these paths have their disk; another volume there is refused.
    async fn disks(&self, host: &dyn Host, addresses: &[String]) -> Result<usize> {
        let mut disks = 0;
        for address in addresses {
            let block = format!("/sys/class/scsi_device/{address}/device/block");
            let Some(disk) = host.files().list(Path::new(&block))?.into_iter().next() else {
                continue;
            };
            disks += 1;
            let live = live_wwid(host, &disk).await?;
            if live != self.wwid {
                return Err(wrong(self, &live));
            }
        }
        Ok(disks)
    }

    /// True when the map has all of its paths.
    fn is_mapped(&self, host: &dyn Host) -> Result<bool> {
        let Some((_, dm)) = look(host, self)?.map else { return Ok(false) };
        let paths = host.files().list(Path::new(&format!("/sys/block/{dm}/slaves")))?;
        Ok(paths.len() == self.addresses.len())
    }

    async fn attach(&self, host: &dyn Host, attach: &Attach) -> Result<Attached> {
        self.scan(host, attach).await?;
        let there = look(host, self)?;
        if attach.read_only {
            for disk in there.paths.iter().filter_map(|(_, disk)| disk.as_ref()) {
                host.disks().set_read_only(&Path::new("/dev").join(disk), true).await?;
            }
        }
        if attach.multipath != Multipath::Off && multipathd_runs(host).await {
            remember(host, &self.wwid, true).await?;
            let mut wait = Wait::begin(host, SHORT);
            for disk in there.paths.iter().filter_map(|(_, disk)| disk.as_ref()) {
                host.maps().multipathd(&format!("add path {disk}"), SHORT).await?;
            }
            while !self.is_mapped(host)? {
                wait.next("the map").await?;
            }
        }
        let there = look(host, self)?;
        verify(host, self, &there).await?;
        describe(host, self, &there)?.ok_or_else(|| late("the device"))
    }

    /// Flushes what is on top, then takes everything away.
    async fn detach(&self, host: &dyn Host, detach: &Detach) -> Result<Change<()>> {
        let there = look(host, self)?;
        if there.is_nothing() {
            remember(host, &self.wwid, false).await?;
            return Ok(Change::Already(()));
        }
        let mut lost = None;
        if let Some(top) = there.top() {
            if host.disks().is_claimed(&top).await? {
                let why = format!("{} is in use", top.display());
                return Err(Error::new(Kind::Busy, why).with_reason(Some(Reason::DeviceBusy)));
            }
            if let Err(error) = flush(host, &top, detach).await {
                let reason = if detach.force { Reason::DataLost } else { Reason::FlushFailed };
                let error = Error::from(error).with_reason(Some(reason));
                if !detach.force {
                    return Err(error);
                }
                lost = Some(error);
            }
        }
        if let Some((name, _)) = &there.map {
            host.maps().remove(name).await?;
        }
        for (address, disk) in &there.paths {
            let file = format!("/sys/class/scsi_device/{address}/device/delete");
            host.files().write(Path::new(&file), b"1", SHORT).await?;
            if let Some(disk) = disk {
                // It may not run, or have forgotten the path by itself.
                let _ = host.maps().multipathd(&format!("del path {disk}"), SHORT).await;
            }
        }
        remember(host, &self.wwid, false).await?;
        match lost {
            Some(error) if !detach.ignore_errors => Err(error),
            Some(_) | None => Ok(Change::Made(())),
        }
    }
}

async fn flush(host: &dyn Host, top: &Path, detach: &Detach) -> Result<(), KernelError> {
    host.disks().open(top).await?.flush(detach.deadline).await
}

#[async_trait]
impl Connector for Sample {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        let volume = read(info)?;
        let _lock = host.locks().lock(&volume.wwid, LockMode::Exclusive).await?;
        let there = look(host, &volume)?;
        verify(host, &volume, &there).await?;
        if let Some(attached) = describe(host, &volume, &there)? {
            return Ok(Change::Already(attached));
        }
        // Something else at one of the addresses is not ours to take away.
        let taken = |address: &String| {
            let device = format!("/sys/class/scsi_device/{address}/device/wwid");
            text(host, device).map(|wwid| wwid.replace("naa.", "3"))
        };
        for address in &volume.addresses {
            let found = taken(address)?;
            if !found.is_empty() && found != volume.wwid {
                return Err(wrong(&volume, &found));
            }
        }
        match volume.attach(host, attach).await {
            Ok(attached) => Ok(Change::Made(attached)),
            Err(error) => Err(undo(host, &volume, error).await),
        }
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let volume = read(&record.info)?;
        let _lock = host.locks().lock(&volume.wwid, LockMode::Exclusive).await?;
        volume.detach(host, detach).await
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let volume = read(&record.info)?;
        let there = look(host, &volume)?;
        verify(host, &volume, &there).await?;
        for (address, _) in &there.paths {
            let file = format!("/sys/class/scsi_device/{address}/device/rescan");
            host.files().write(Path::new(&file), b"1", SHORT).await?;
        }
        if let Some((name, _)) = &there.map {
            let said = host.maps().multipathd(&format!("resize map {name}"), SHORT).await?;
            assert_eq!(said.trim(), "ok");
        }
        match describe(host, &volume, &there)? {
            Some(Attached::Block { size, .. }) => Ok(size),
            Some(Attached::Directory { .. } | Attached::File { .. }) | None => Err(late("it")),
        }
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let volume = read(info)?;
        let there = look(host, &volume)?;
        match verify(host, &volume, &there).await {
            Ok(()) => describe(host, &volume, &there),
            Err(error) if error.reason() == Some(Reason::IdentityMismatch) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        Ok(match self.lookup(host, &record.info).await? {
            Some(_) => Health::good(),
            None => Health::bad("it is not there"),
        })
    }
}

/// Takes away what a failed attach made at our addresses, whatever it turned out to be.
async fn undo(host: &dyn Host, volume: &Volume, error: Error) -> Error {
    let force = Detach { force: true, ignore_errors: true, ..Detach::default() };
    let mut undone = volume.detach(host, &force).await.map(drop);
    for address in &volume.addresses {
        let file = PathBuf::from(format!("/sys/class/scsi_device/{address}/device/delete"));
        let there = host.files().read(&file).ok().flatten().is_some();
        if there && let Err(failed) = host.files().write(&file, b"1", SHORT).await {
            undone = Err(failed.into());
        }
    }
    match undone {
        Ok(()) => error.with_outcome(Outcome::RolledBack),
        Err(_) => error.with_outcome(Outcome::Unknown),
    }
}
