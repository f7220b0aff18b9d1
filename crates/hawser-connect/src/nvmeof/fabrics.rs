//! Making and deleting controllers: `/dev/nvme-fabrics`, and files of the controller in sysfs.
//!
//! The kernel makes one controller at a time on the whole host, and the write that asks for one
//! ends when it is live or has failed. A dead TCP portal costs it 3 seconds.

use std::path::Path;
use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::data::Target;
use super::portal::{Portal, Transport};
use super::sysfs::{self, Controller, State};
use crate::shared::error::AttachError;
use crate::shared::nvme_host::NvmeHost;
use crate::shared::wait::{self, Deadline};

const FABRICS: &str = "/dev/nvme-fabrics";

/// How long the kernel may take to answer. It waits up to 60 s for a target that takes the
/// connection and then says nothing (one that refuses a key may do so), cannot be interrupted, and
/// makes no other controller meanwhile: giving up earlier would only make an unknown end of a known
/// one. The caller's deadline counts all the same.
const ANSWER_LIMIT: Duration = Duration::from_secs(75);

/// How long a controller may take to come up after that, or to come back.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// How long a controller and its devices may take to go.
pub(super) const REMOVE_LIMIT: Duration = Duration::from_secs(30);

/// As the kernel numbers its reasons.
mod errno {
    pub(super) const ENOENT: i32 = 2;
    pub(super) const EIO: i32 = 5;
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENODEV: i32 = 19;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const ENXIO: i32 = 6;
    pub(super) const EADDRNOTAVAIL: i32 = 99;
    pub(super) const ENETUNREACH: i32 = 101;
    pub(super) const ECONNABORTED: i32 = 103;
    pub(super) const ECONNRESET: i32 = 104;
    pub(super) const ETIMEDOUT: i32 = 110;
    pub(super) const ECONNREFUSED: i32 = 111;
    pub(super) const EHOSTDOWN: i32 = 112;
    pub(super) const EHOSTUNREACH: i32 = 113;
    pub(super) const EALREADY: i32 = 114;
    pub(super) const ENOKEY: i32 = 126;
    pub(super) const EKEYREJECTED: i32 = 129;
}

/// The options of one controller. Everything in them was checked to have no comma.
fn request(target: &Target, portal: &Portal, host: &NvmeHost) -> String {
    let options = &target.options;
    let mut text = format!("nqn={},transport={}", target.nqn, portal.transport.as_str());
    let mut add = |key: &str, value: &dyn std::fmt::Display| {
        text.push_str(&format!(",{key}={value}"));
    };
    if let Some(address) = &portal.address {
        add("traddr", address);
    }
    if let Some(service) = portal.service {
        add("trsvcid", &service);
    }
    if let Some(from) = &portal.from {
        add("host_traddr", from);
    }
    if let Some(interface) = &portal.interface {
        add("host_iface", interface);
    }
    add("hostnqn", &host.nqn);
    add("hostid", &host.id);
    add("queue_size", &options.queue_size.unwrap_or(128));
    // With any other value the device goes with its unwritten data when the target is away for long.
    add("ctrl_loss_tmo", &options.loss_limit.unwrap_or(-1));
    if let Some(delay) = options.reconnect_delay {
        add("reconnect_delay", &delay);
    }
    if let Some(limit) = options.keep_alive {
        add("keep_alive_tmo", &limit);
    }
    if let Some(limit) = options.fast_fail {
        add("fast_io_fail_tmo", &limit);
    }
    if let Some(count) = options.io_queues {
        add("nr_io_queues", &count);
    }
    if let Some(key) = &options.host_key {
        add("dhchap_secret", &key.expose());
    }
    if let Some(key) = &options.target_key {
        add("dhchap_ctrl_secret", &key.expose());
    }
    if portal.transport == Transport::Tcp && options.header_digest {
        text.push_str(",hdr_digest");
    }
    if portal.transport == Transport::Tcp && options.data_digest {
        text.push_str(",data_digest");
    }
    text
}

/// Makes a controller and waits until it is live. Answers its name, or `None` when the kernel had
/// one for this way already.
pub(super) async fn create(
    host: &dyn Host,
    target: &Target,
    portal: &Portal,
    own: &NvmeHost,
    deadline: Deadline,
) -> Result<Option<String>> {
    let mut events = host.events().subscribe();
    let text = request(target, portal, own);
    let limit = deadline.within(ANSWER_LIMIT);
    let answer = host.files().exchange(Path::new(FABRICS), text.as_bytes(), limit.left()).await;
    let name = match answer {
        Ok(answer) => instance(&answer).map(|number| format!("nvme{number}")),
        Err(error) if error.errno() == Some(errno::EALREADY) => return Ok(None),
        Err(error) => return Err(refusal(host, target, portal, own, limit.limit(), error)),
    };
    let deadline = deadline.within(CONNECT_LIMIT);
    let Some(name) = name else {
        let why = "it does not say which controller was made".to_owned();
        let source = KernelError::Nonsense { attempt: format!("reading {FABRICS}"), why };
        return Err(AttachError::Kernel { attempt: attempt(target, portal), source }.into());
    };
    // Over Fibre Channel the kernel answers before the controller is live, and takes it away again
    // when the target refuses it.
    let state = wait::until(&mut *events, deadline, async || {
        let controllers = sysfs::controllers(host.files(), &target.nqn)?;
        match controllers.into_iter().find(|controller| controller.name == name) {
            None => Ok(Some(None)),
            Some(controller) if controller.state == State::Connecting => Ok(None),
            Some(controller) => Ok(Some(Some(controller.state))),
        }
    })
    .await?;
    match state {
        Some(Some(State::Live)) => Ok(Some(name)),
        Some(Some(State::Connecting | State::Leaving) | None) => {
            Err(not_found(target, portal, own).into())
        }
        None => {
            let (portal, limit) = (portal.to_string(), deadline.limit());
            Err(AttachError::PortalTimeout { portal, limit }.into())
        }
    }
}

fn attempt(target: &Target, portal: &Portal) -> String {
    format!("connecting to the NVMe subsystem {} at {portal}", target.nqn)
}

/// `instance=3,cntlid=7`.
fn instance(answer: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(answer);
    let mut pairs = text.trim().split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == "instance").and_then(|(_, value)| value.trim().parse().ok())
}

/// One number of the kernel stands for all of it; only its log tells them apart.
fn not_found(target: &Target, portal: &Portal, own: &NvmeHost) -> AttachError {
    let with = if target.options.host_key.is_some() { " with this key" } else { "" };
    let target = format!("{} that lets the host {} in{with}", target.nqn, own.nqn);
    AttachError::TargetNotFound { portal: portal.to_string(), target }
}

/// What a refusal of the kernel means.
fn refusal(
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

/// Waits until the kernel has finished the controller that it makes now: it makes one at a time, so
/// it answers a request without any option, which it refuses, after that one.
pub(super) async fn finish(host: &dyn Host, deadline: Deadline) -> Result<()> {
    let deadline = deadline.within(REMOVE_LIMIT);
    match host.files().exchange(Path::new(FABRICS), b"\n", deadline.left()).await {
        Ok(_) | Err(KernelError::Refused { .. }) => Ok(()),
        Err(KernelError::Late { .. }) => {
            let attempt = "waiting for a controller that the kernel is making".to_owned();
            Err(AttachError::Deadline { attempt, limit: deadline.limit() }.into())
        }
        Err(source @ (KernelError::NotBegun { .. } | KernelError::Nonsense { .. })) => {
            let attempt = format!("asking {FABRICS} whether it is busy");
            Err(AttachError::Kernel { attempt, source }.into())
        }
    }
}

/// Asks a controller to look which namespaces it has. It does so behind our back.
pub(super) async fn rescan(host: &dyn Host, controller: &Controller) {
    let file = controller.file("rescan_controller");
    // One that is gone or reconnecting looks by itself when it is back.
    if let Err(error) = host.files().write(&file, b"1", CONNECT_LIMIT).await {
        tracing::debug!(controller = %controller.name, %error, "could not be asked to rescan");
    }
}

/// Keeps a controller for as long as its target is away, however long that is.
pub(super) async fn keep(host: &dyn Host, controller: &Controller) -> Result<()> {
    let file = controller.file("ctrl_loss_tmo");
    match host.files().read_text(&file)? {
        Some(limit) if limit != "off" && limit != "-1" => {
            let attempt = format!("making {} outlast an outage of its target", controller.name);
            let written = host.files().write(&file, b"-1", CONNECT_LIMIT).await;
            Ok(written.map_err(AttachError::kernel(attempt))?)
        }
        Some(_) | None => Ok(()),
    }
}

/// Deletes a controller and waits until it is gone. What is under way on it fails.
pub(super) async fn delete(
    host: &dyn Host,
    nqn: &str,
    controller: &Controller,
    deadline: Deadline,
) -> Result<()> {
    let deadline = deadline.within(REMOVE_LIMIT);
    let mut events = host.events().subscribe();
    let file = controller.file("delete_controller");
    let asked = host.files().write(&file, b"1", deadline.left()).await;
    let is_gone = || -> Result<bool> {
        let left = sysfs::controllers(host.files(), nqn)?;
        Ok(!left.iter().any(|other| other.name == controller.name))
    };
    match asked {
        Ok(()) => {}
        // Somebody else, or the kernel itself, was quicker.
        Err(error) if matches!(error.errno(), Some(errno::ENOENT | errno::ENODEV)) => {}
        Err(_) if is_gone()? => return Ok(()),
        Err(error) => {
            let attempt = format!("deleting the NVMe controller {}", controller.name);
            return Err(AttachError::Kernel { attempt, source: error }.into());
        }
    }
    let gone = wait::until(&mut *events, deadline, async || Ok(is_gone()?.then_some(()))).await?;
    if gone.is_none() {
        let what = format!("the NVMe controller {}", controller.name);
        return Err(AttachError::NotRemoved { what, limit: deadline.limit() }.into());
    }
    Ok(())
}
