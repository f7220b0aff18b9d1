//! SendTargets: one portal names all portals of a target.

use std::path::{Path, PathBuf};

use hawser_core::Outcome;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::registry::LockGuard;

use super::admin::{self, Exit};
use super::data::{Chap, Target, Volume};
use super::portal::Portal;
use super::record::{self, MARK};
use crate::shared::error::AttachError;
use crate::shared::locks;
use crate::shared::wait::Deadline;

/// Every way to a volume of which one is known: what the portal lists, as far as it may lead there.
pub(super) async fn ways(
    host: &dyn Host,
    volume: &Volume,
    chap: Option<&Chap>,
    deadline: Deadline,
) -> Result<Vec<Target>> {
    let given = &volume.targets[0];
    let found = portals(host, given, &volume.iface, chap, deadline).await?;
    if !found.iter().any(|(_, iqn)| *iqn == given.iqn) {
        let portal = given.portal.to_string();
        return Err(AttachError::TargetNotFound { portal, target: given.iqn.clone() }.into());
    }
    let way = |(portal, iqn): &(Portal, String)| Target {
        portal: portal.clone(),
        iqn: iqn.clone(),
        ..given.clone()
    };
    let mut ways: Vec<Target> = may_lead(&found, &given.iqn).map(way).collect();
    // The portal that was given works, whatever the target says of itself (behind an address
    // translation it does not know its own portals).
    if !ways.contains(given) {
        ways.insert(0, given.clone());
    }
    Ok(ways)
}

/// What may lead to a target, of all that is listed. A portal that has it under its name is used
/// under that name only. A portal that does not may have it under another one (some storage systems
/// have a name per portal), so all names there count but those that stand beside its own name
/// somewhere: a target has one name at a portal, and those are other targets'. Whether a name that is
/// left is its own or somebody else's, only the device tells ([`super::renamed`]).
fn may_lead<'a>(
    found: &'a [(Portal, String)],
    iqn: &'a str,
) -> impl Iterator<Item = &'a (Portal, String)> {
    let has_it = move |portal: &Portal| found.iter().any(|(at, its)| at == portal && its == iqn);
    let beside = move |name: &str| found.iter().any(|(at, its)| its == name && has_it(at));
    found.iter().filter(move |(_, name)| name == iqn || !beside(name))
}

/// True when a portal that answers does not have the target of a way.
pub(super) async fn is_unknown(
    host: &dyn Host,
    target: &Target,
    iface: &str,
    chap: Option<&Chap>,
    deadline: Deadline,
) -> bool {
    match portals(host, target, iface, chap, deadline).await {
        Ok(found) => !found.is_empty() && !found.iter().any(|(_, iqn)| *iqn == target.iqn),
        Err(error) => {
            tracing::debug!(error = %error.sentence(), "the portal does not list its targets");
            false
        }
    }
}

/// Waits to be alone with the record of a discovery: it is the portal's, and nobody else may put his
/// credentials there, or take these away, meanwhile. It is the last lock that anybody takes: whoever
/// has it waits for no other.
pub(super) async fn lock(
    host: &dyn Host,
    portal: &Portal,
    deadline: Deadline,
) -> Result<Box<dyn LockGuard>> {
    let name = format!("iscsi-discovery-{portal}");
    locks::alone(host, &name, &format!("the discovery at {portal}"), deadline).await
}

async fn portals(
    host: &dyn Host,
    target: &Target,
    iface: &str,
    chap: Option<&Chap>,
    deadline: Deadline,
) -> Result<Vec<(Portal, String)>> {
    let portal = &target.portal;
    let output = match chap {
        None => admin::discover(host, portal, iface, false, deadline).await?,
        Some(chap) => {
            let _alone = lock(host, portal, deadline).await?;
            let asked = match put_record(host, portal, chap).await {
                Ok(()) => admin::discover(host, portal, iface, true, deadline).await,
                Err(error) => Err(error),
            };
            // Credentials that stay where they are must not be forgotten.
            if sweep(host, portal).await.is_err() {
                let again = sweep(host, portal).await;
                again.map_err(|error| error.with_outcome(Outcome::Unknown))?;
            }
            asked?
        }
    };
    match Exit::of(&output) {
        Exit::Done => Ok(parse(&output.stdout)),
        // The portal answers and shows nothing to this host.
        Exit::NothingFound => Ok(Vec::new()),
        Exit::AuthFailed | Exit::LoginFailed | Exit::LoginFatal => {
            Err(AttachError::AuthFailed { target: format!("the discovery at {portal}") }.into())
        }
        Exit::SessionNotFound
        | Exit::Transport
        | Exit::Database
        | Exit::TransportTimeout
        | Exit::PduTimeout
        | Exit::TransportMissing
        | Exit::Access
        | Exit::SessionExists
        | Exit::NoDaemon
        | Exit::TryAgain
        | Exit::Other => {
            let attempt = format!("asking {portal} for its targets");
            Err(AttachError::Tool { attempt, source: output.failed() }.into())
        }
    }
}

/// `ADDRESS:PORT,GROUP IQN`, line by line; anything else is left out.
pub(super) fn parse(text: &str) -> Vec<(Portal, String)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (portal, iqn) = (words.next()?, words.next()?);
        let named = ["iqn.", "eui.", "naa."].iter().any(|kind| iqn.starts_with(kind));
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
        if !named || iqn.len() > 223 || !iqn.bytes().all(legal) || !portal.contains(',') {
            return None;
        }
        Some((Portal::parse(portal)?, iqn.to_owned()))
    };
    let mut found: Vec<_> = text.lines().filter_map(line).collect();
    found.dedup();
    found
}

/// Where the record of a discovery stands.
fn record_file(host: &dyn Host, portal: &Portal) -> Result<PathBuf> {
    let nodes = record::database(host.files())?.unwrap_or_else(|| "/etc/iscsi/nodes".into());
    let root = nodes.parent().unwrap_or(Path::new("/etc/iscsi")).join("send_targets");
    Ok(root.join(portal.file_name()).join("st_config"))
}

/// What somebody else's record is called meanwhile.
const KEPT: &str = "st_config.kept-by-hawser";

/// Puts a record with the credentials of a discovery in place: `iscsiadm` takes them from nowhere
/// else but from arguments.
async fn put_record(host: &dyn Host, portal: &Portal, chap: &Chap) -> Result<()> {
    let files = host.files();
    let path = record_file(host, portal)?;
    if let Some(before) = files.read(&path)?.filter(|before| !before.starts_with(MARK.as_bytes())) {
        files.store(&path.with_file_name(KEPT), &before, 0o600).await?;
    }
    let mut text = format!(
        "{MARK}\ndiscovery.startup = manual\ndiscovery.type = sendtargets\n\
         discovery.sendtargets.address = {}\ndiscovery.sendtargets.port = {}\n\
         discovery.sendtargets.use_discoveryd = No\n\
         discovery.sendtargets.auth.authmethod = CHAP\n\
         discovery.sendtargets.auth.username = {}\ndiscovery.sendtargets.auth.password = {}\n",
        portal.address,
        portal.port,
        chap.username,
        chap.password.expose(),
    );
    if let Some((username, password)) = &chap.target {
        text += &format!(
            "discovery.sendtargets.auth.username_in = {username}\n\
             discovery.sendtargets.auth.password_in = {}\n",
            password.expose()
        );
    }
    if let Some(algorithms) = &chap.algorithms {
        text += &format!("discovery.sendtargets.auth.chap_algs = {algorithms}\n");
    }
    Ok(files.store(&path, text.as_bytes(), 0o600).await?)
}

/// Takes away what a discovery of a process that died left; true when there was anything. What is
/// there may as well be of a discovery that goes on now, which needs it: that one is waited for.
pub(super) async fn clear(host: &dyn Host, portal: &Portal, deadline: Deadline) -> Result<bool> {
    let files = host.files();
    let path = record_file(host, portal)?;
    let kept = files.resolve(&path.with_file_name(KEPT))?.is_some();
    // Nothing to wait for: a discovery that begins now cleans up after itself.
    if !kept && !is_ours(host, &path)? && !is_empty(host, &path)? {
        return Ok(false);
    }
    // The volume is gone by now: it is not as it was.
    let alone = lock(host, portal, deadline).await;
    let _alone = alone.map_err(|error| error.with_outcome(Outcome::Unknown))?;
    sweep(host, portal).await
}

/// True when the folder of a record is there and has nothing in it.
fn is_empty(host: &dyn Host, record: &Path) -> Result<bool> {
    let Some(folder) = record.parent() else { return Ok(false) };
    Ok(host.files().resolve(folder)?.is_some() && host.files().list(folder)?.is_empty())
}

fn is_ours(host: &dyn Host, record: &Path) -> Result<bool> {
    Ok(host.files().read(record)?.is_some_and(|text| text.starts_with(MARK.as_bytes())))
}

/// Takes a record of ours away again and brings back the one that was there; true when there was one
/// of ours. Under the [`lock`].
async fn sweep(host: &dyn Host, portal: &Portal) -> Result<bool> {
    let files = host.files();
    let path = record_file(host, portal)?;
    let kept = path.with_file_name(KEPT);
    let mut swept = false;
    if let Some(before) = files.read(&kept)? {
        files.store(&path, &before, 0o600).await?;
        swept |= files.remove(&kept).await?;
    } else if is_ours(host, &path)? {
        swept |= files.remove(&path).await?;
    }
    if is_empty(host, &path)?
        && let Some(folder) = path.parent()
    {
        swept |= files.remove(folder).await?;
    }
    Ok(swept)
}
