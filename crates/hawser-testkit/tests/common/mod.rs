//! What the tests of the fake kernel and of the simulations share.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses a part of it")]

use std::path::Path;
use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{Lun, Target};
use hawser_testkit::sim::fc;

pub const SHORT: Duration = Duration::from_secs(5);
pub const NAA: &str = "6001405aaaaaaaaaaaaaaaaaaaaaaaaa";
pub const WWID: &str = "36001405aaaaaaaaaaaaaaaaaaaaaaaaa";
pub const OTHER: &str = "6001405bbbbbbbbbbbbbbbbbbbbbbbbb";

pub fn errno<T: std::fmt::Debug>(result: Result<T, KernelError>) -> i32 {
    result.unwrap_err().errno().unwrap()
}

pub async fn write(host: &FakeHost, path: &str, data: &str) -> Result<(), KernelError> {
    host.files().write(Path::new(path), data.as_bytes(), SHORT).await
}

pub fn text(host: &FakeHost, path: &str) -> String {
    host.files().read_text(Path::new(path)).unwrap().unwrap_or_default()
}

/// Two adapters, one volume behind both.
pub fn fabric() -> (FakeHost, Lun, Target) {
    let host = FakeHost::new();
    let lun = Lun::scsi(NAA, ByteSize::mib(8));
    let target = Target::new().with(1, &lun);
    fc::install(host.kernel());
    for (adapter, wwpn) in [(3, "2100001b32000001"), (4, "2100001b32000002")] {
        fc::add_adapter(host.kernel(), adapter, wwpn);
        fc::add_remote_port(host.kernel(), adapter, "500a0980000000a1", &target);
    }
    (host, lun, target)
}

pub async fn scan(host: &FakeHost, adapter: u32) {
    write(host, &format!("/sys/class/scsi_host/host{adapter}/scan"), "0 0 1").await.unwrap();
    host.kernel().edit(|tree| tree.settle());
}
