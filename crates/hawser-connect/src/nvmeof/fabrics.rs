//! Making and deleting controllers: `/dev/nvme-fabrics`, and files of the controller in sysfs.
//!
//! The kernel makes one controller at a time on the whole host, and the write that asks for one
//! ends when it is live or has failed. A dead TCP portal costs it 3 seconds.

use std::path::Path;
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::data::Target;
use super::portal::{Portal, Transport};
use super::refusal::{attempt, errno, not_found, refusal};
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
    // The kernel's own loop never loses its target, and knows neither of the two.
    if portal.transport != Transport::Loop {
        add("ctrl_loss_tmo", &first_loss_limit(target, portal));
        if let Some(delay) = options.reconnect_delay {
            add("reconnect_delay", &delay);
        }
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

/// How long the target may be away, as the caller wants it. With any other value than -1, for ever,
/// the device goes with its unwritten data when the target is away for long.
fn loss_limit(target: &Target) -> i64 {
    target.options.loss_limit.unwrap_or(-1)
}

/// The limit that a controller begins with. Over Fibre Channel the kernel answers before the first
/// connect has succeeded, and one that never does cannot be deleted: it must end by itself.
fn first_loss_limit(target: &Target, portal: &Portal) -> i64 {
    match portal.transport {
        Transport::Fc => i64::try_from(CONNECT_LIMIT.as_secs()).unwrap_or(20),
        Transport::Tcp | Transport::Rdma | Transport::Loop => loss_limit(target),
    }
}

/// What became of a request for a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// The kernel makes this one.
    New(String),
    /// The kernel had one for this way already.
    There,
}

/// Asks for a controller. Over most transports it is live afterwards; [`come_up`] makes sure.
pub(super) async fn create(
    host: &dyn Host,
    target: &Target,
    portal: &Portal,
    own: &NvmeHost,
    deadline: Deadline,
) -> Result<Begun> {
    let text = request(target, portal, own);
    let limit = deadline.within(ANSWER_LIMIT);
    let answer = host.files().exchange(Path::new(FABRICS), text.as_bytes(), limit.left()).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if error.errno() == Some(errno::EALREADY) => return Ok(Begun::There),
        Err(error) => return Err(refusal(host, target, portal, own, limit.limit(), error)),
    };
    match instance(&answer) {
        Some(number) => Ok(Begun::New(format!("nvme{number}"))),
        None => {
            let why = "it does not say which controller was made".to_owned();
            let source = KernelError::Nonsense { attempt: format!("reading {FABRICS}"), why };
            Err(AttachError::Kernel { attempt: attempt(target, portal), source }.into())
        }
    }
}

/// Waits until a new controller is live. Over Fibre Channel the kernel takes it away again when the
/// target refuses it.
pub(super) async fn come_up(
    host: &dyn Host,
    target: &Target,
    portal: &Portal,
    own: &NvmeHost,
    name: &str,
    deadline: Deadline,
) -> Result<()> {
    let deadline = deadline.within(CONNECT_LIMIT);
    let mut events = host.events().subscribe();
    let state =
        wait::until(&mut *events, deadline, async || match sysfs::state_of(host.files(), name)? {
            None => Ok(Some(None)),
            Some(State::Connecting) => Ok(None),
            Some(state) => Ok(Some(Some(state))),
        })
        .await?;
    match state {
        Some(Some(State::Live)) if first_loss_limit(target, portal) != loss_limit(target) => {
            set_loss_limit(host, name, loss_limit(target)).await
        }
        Some(Some(State::Live)) => Ok(()),
        Some(Some(State::Connecting | State::Leaving) | None) => {
            Err(not_found(target, portal, own).into())
        }
        None => {
            let (portal, limit) = (portal.to_string(), deadline.limit());
            Err(AttachError::PortalTimeout { portal, limit }.into())
        }
    }
}

/// `instance=3,cntlid=7` and the end of the line, without which a number may go on.
fn instance(answer: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(answer);
    let mut pairs = text.strip_suffix('\n')?.split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == "instance").and_then(|(_, value)| value.trim().parse().ok())
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
    match host.files().read_text(&controller.file("ctrl_loss_tmo"))? {
        Some(limit) if limit != "off" && limit != "-1" => {
            set_loss_limit(host, &controller.name, -1).await
        }
        Some(_) | None => Ok(()),
    }
}

async fn set_loss_limit(host: &dyn Host, name: &str, limit: i64) -> Result<()> {
    let file = sysfs::controller_file(name, "ctrl_loss_tmo");
    let written = host.files().write(&file, limit.to_string().as_bytes(), CONNECT_LIMIT).await;
    let attempt = format!("making {name} outlast an outage of its target");
    Ok(written.map_err(AttachError::kernel(attempt))?)
}

/// Deletes a controller and waits until it is gone. What is under way on it fails.
pub(super) async fn delete(
    host: &dyn Host,
    controller: &Controller,
    deadline: Deadline,
) -> Result<()> {
    let deadline = deadline.within(REMOVE_LIMIT);
    let mut events = host.events().subscribe();
    let file = controller.file("delete_controller");
    let asked = host.files().write(&file, b"1", deadline.left()).await;
    let is_gone =
        || -> Result<bool> { Ok(sysfs::state_of(host.files(), &controller.name)?.is_none()) };
    match asked {
        Ok(()) => {}
        // Somebody else, or the kernel itself, was quicker; or it has never been live, and ends by
        // itself.
        Err(error)
            if matches!(error.errno(), Some(errno::ENOENT | errno::ENODEV | errno::EBUSY)) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_off_names_no_other_controller() {
        assert_eq!(instance(b"instance=12,cntlid=3\n"), Some(12));
        for short in ["instance=12,cntlid=3", "instance=12", "instance=1", "instance=", ""] {
            assert_eq!(instance(short.as_bytes()), None, "{short}");
        }
        assert_eq!(instance(b"instance=-1,cntlid=-1,transport=%s\n"), None, "what it can do");
    }

    hawser_testkit::fuzz_corpus!(corpus, "nvme_fabrics", |bytes| {
        if let Some(number) = instance(bytes) {
            let text = String::from_utf8_lossy(bytes);
            assert!(text.contains("instance=") && text.ends_with('\n'), "{text:?}");
            assert!(text.contains(&number.to_string()), "{number} was made up of {text:?}");
        }
    });
}
