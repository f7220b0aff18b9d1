//! The `Nbd` part: devices that are there from the beginning, as the module makes them, and what is
//! served behind them.

use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::ByteSize;
use hawser_core::port::kernel::{KernelResult, Nbd, NbdAttach};

use super::Kernel;
use super::behaviour::Answer;
use super::disk::DiskSpec;
use super::errno::{EINVAL, ENODEV, ENOENT};
use super::lun::Lun;
use super::tree::Tree;

/// What the kernel is asked for, without the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAsk {
    /// How many connections.
    pub connections: usize,
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub block_size: u32,
    /// The flags of the server; bit 1 is read-only.
    pub server_flags: u64,
    /// What is found again in sysfs.
    pub backend: String,
}

/// The transmission flag of a server that takes no writes.
const READ_ONLY: u64 = 1 << 1;

/// Which devices the module has, and the sockets that it keeps.
#[derive(Default)]
struct Module {
    devices: u32,
    sockets: std::collections::BTreeMap<u32, Vec<OwnedFd>>,
}

impl Tree {
    /// Loads the module, with so many devices.
    pub fn load_nbd(&mut self, devices: u32) {
        self.folder("/sys/module/nbd").value("/sys/module/nbd/parameters/nbds_max", devices);
        for index in 0..devices {
            self.add_nbd(index);
        }
        self.with::<Module, _>(|module, _| module.devices = devices);
        self.behaviours.on_reboot(|tree| tree.with::<Module, _>(|m, _| m.sockets.clear()));
    }

    fn add_nbd(&mut self, index: u32) {
        let lun = Lun::new(ByteSize::ZERO);
        self.add_disk(DiskSpec::new(format!("nbd{index}"), &lun).number((43, index * 32)));
    }

    fn nbd_attach(&mut self, attach: NbdAttach) -> Answer<u32> {
        let ask = NbdAsk {
            connections: attach.sockets.len(),
            size: attach.size,
            block_size: attach.block_size,
            server_flags: attach.server_flags,
            backend: attach.backend,
        };
        if self.with::<Module, _>(|module, _| module.devices) == 0 {
            // The netlink family is not there.
            return Err(ENOENT);
        }
        if ask.connections == 0 {
            return Err(EINVAL);
        }
        let lun = match self.ask_nbd(&ask) {
            Some(answer) => answer?,
            None => Lun::new(ByteSize::bytes(ask.size)),
        };
        let free = |index: &u32| !self.exists(format!("/sys/block/nbd{index}/pid"));
        let index = (0..).find(free).expect("there are numbers enough");
        let name = format!("nbd{index}");
        self.remove_disk(&name);
        self.add_disk(DiskSpec::new(&name, &lun).number((43, index * 32)).size(ask.size));
        self.set_read_only(&name, ask.server_flags & READ_ONLY != 0);
        self.value(format!("/sys/block/{name}/pid"), 4711)
            .value(format!("/sys/block/{name}/backend"), &ask.backend);
        self.with::<Module, _>(|module, _| module.sockets.insert(index, attach.sockets));
        self.emit();
        Ok(index)
    }

    fn nbd_reconfigure(&mut self, index: u32, size: u64, sockets: Vec<OwnedFd>) -> Answer<()> {
        let name = format!("nbd{index}");
        if !self.exists(format!("/sys/block/{name}/pid")) {
            return Err(EINVAL);
        }
        if !sockets.is_empty() {
            self.with::<Module, _>(|module, _| module.sockets.insert(index, sockets));
            self.set_online(&name, true);
        }
        self.set_size(&name, size);
        Ok(())
    }

    /// The device stays, without a size; who has it open gets errors.
    fn nbd_detach(&mut self, index: u32) -> Answer<()> {
        let name = format!("nbd{index}");
        if !self.exists(format!("/sys/block/{name}/pid")) {
            return Err(ENODEV);
        }
        self.with::<Module, _>(|module, _| module.sockets.remove(&index));
        self.remove_disk(&name);
        self.add_nbd(index);
        Ok(())
    }
}

#[async_trait]
impl Nbd for Kernel {
    async fn attach(&self, attach: NbdAttach) -> KernelResult<u32> {
        let detail = format!("{} {} {}", attach.sockets.len(), attach.size, attach.backend);
        self.call("Nbd::attach", &detail, Duration::MAX, |state| state.tree().nbd_attach(attach))
            .await
    }

    async fn reconfigure(&self, index: u32, size: u64, sockets: Vec<OwnedFd>) -> KernelResult<()> {
        let detail = format!("{index} {size} {}", sockets.len());
        self.call("Nbd::reconfigure", &detail, Duration::MAX, |state| {
            state.tree().nbd_reconfigure(index, size, sockets)
        })
        .await
    }

    async fn detach(&self, index: u32) -> KernelResult<()> {
        self.call("Nbd::detach", &index.to_string(), Duration::MAX, |state| {
            state.tree().nbd_detach(index)
        })
        .await
    }
}
