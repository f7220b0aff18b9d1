//! What the kernel's refusals to make a controller mean.

use std::time::Duration;

use hawser_core::error::Error;
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::data::Target;
use super::portal::{Portal, Transport};
use super::sysfs;
use crate::shared::error::AttachError;
use crate::shared::nvme_host::NvmeHost;

/// As the kernel numbers its reasons.
pub(super) mod errno {
    pub(in crate::nvmeof) const ENOENT: i32 = 2;
    pub(in crate::nvmeof) const EIO: i32 = 5;
    pub(in crate::nvmeof) const EAGAIN: i32 = 11;
    pub(in crate::nvmeof) const EBUSY: i32 = 16;
    pub(in crate::nvmeof) const ENODEV: i32 = 19;
    pub(in crate::nvmeof) const EINVAL: i32 = 22;
    pub(in crate::nvmeof) const ENXIO: i32 = 6;
    pub(in crate::nvmeof) const EADDRNOTAVAIL: i32 = 99;
    pub(in crate::nvmeof) const ENETUNREACH: i32 = 101;
    pub(in crate::nvmeof) const ECONNABORTED: i32 = 103;
    pub(in crate::nvmeof) const ECONNRESET: i32 = 104;
    pub(in crate::nvmeof) const ETIMEDOUT: i32 = 110;
    pub(in crate::nvmeof) const ECONNREFUSED: i32 = 111;
    pub(in crate::nvmeof) const EHOSTDOWN: i32 = 112;
    pub(in crate::nvmeof) const EHOSTUNREACH: i32 = 113;
    pub(in crate::nvmeof) const EALREADY: i32 = 114;
    pub(in crate::nvmeof) const ENOKEY: i32 = 126;
    pub(in crate::nvmeof) const EKEYREJECTED: i32 = 129;
}

/// What was attempted, for errors.
pub(super) fn attempt(target: &Target, portal: &Portal) -> String {
    format!("connecting to the NVMe subsystem {} at {portal}", target.nqn)
}

/// One number of the kernel stands for all of it; only its log tells them apart.
pub(super) fn not_found(target: &Target, portal: &Portal, own: &NvmeHost) -> AttachError {
    let with = if target.options.host_key.is_some() { " with this key" } else { "" };
    let target = format!("{} that lets the host {} in{with}", target.nqn, own.nqn);
    AttachError::TargetNotFound { portal: portal.to_string(), target }
}

/// What a refusal of the kernel means.
pub(super) fn refusal(
    host: &dyn Host,
    target: &Target,
    portal: &Portal,
    own: &NvmeHost,
    limit: Duration,
    error: KernelError,
) -> Error {
    let at = portal.to_string();
    let late = matches!(error, KernelError::Late { .. });
    let Some(number) = error.errno() else {
        let attempt = attempt(target, portal);
        return if late {
            AttachError::Deadline { attempt, limit }.into()
        } else {
            AttachError::Kernel { attempt, source: error }.into()
        };
    };
    let unreachable = |why: &str| AttachError::Unreachable { target: at.clone(), why: why.into() };
    let meaning = match number {
        errno::ECONNREFUSED => AttachError::PortalRefused { portal: at },
        errno::ETIMEDOUT | errno::EAGAIN => AttachError::PortalTimeout { portal: at, limit },
        errno::ENETUNREACH | errno::EHOSTUNREACH => unreachable("there is no route"),
        errno::EHOSTDOWN => unreachable("the host is down"),
        errno::ECONNRESET | errno::ECONNABORTED => unreachable("the connection was cut off"),
        errno::ENOKEY | errno::EKEYREJECTED => {
            AttachError::AuthFailed { target: format!("{} at {portal}", target.nqn) }
        }
        errno::EIO => not_found(target, portal, own),
        errno::ENOENT | errno::ENXIO if portal.transport == Transport::Fc => {
            unreachable("no Fibre Channel port of this host sees that port")
        }
        errno::ENOENT if portal.transport == Transport::Loop => not_found(target, portal, own),
        errno::ENODEV if portal.interface.is_some() => unreachable("host_iface is not there"),
        errno::ENODEV => AttachError::NoHba { kind: "RDMA" },
        errno::EADDRNOTAVAIL => unreachable("host_traddr is no address of this host"),
        errno::EINVAL => return invalid(host, target, portal, own, error),
        _ => AttachError::Kernel { attempt: attempt(target, portal), source: error },
    };
    meaning.into()
}

/// The kernel's answer to anything it does not like; what can be found out is said.
fn invalid(
    host: &dyn Host,
    target: &Target,
    portal: &Portal,
    own: &NvmeHost,
    source: KernelError,
) -> Error {
    let others = sysfs::all_controllers(host.files()).unwrap_or_default();
    let conflict = others.into_iter().map(|(_, controller)| controller).find(|controller| {
        let same_nqn = controller.host_nqn.as_ref().map(|nqn| *nqn == own.nqn);
        let same_id = controller.host_id.as_ref().map(|id| id.eq_ignore_ascii_case(&own.id));
        matches!((same_nqn, same_id), (Some(true), Some(false)) | (Some(false), Some(true)))
    });
    let attempt = attempt(target, portal);
    let attempt = match conflict {
        Some(other) => format!(
            "{attempt} as {} with the id {}: {} is connected with one of them and another one of \
             the other, and the kernel wants both to be the same",
            own.nqn, own.id, other.name
        ),
        None => format!(
            "{attempt}: this kernel does not take these options; authentication, digests and \
             transports can be left out when it is built"
        ),
    };
    AttachError::Kernel { attempt, source }.into()
}
