//! SendTargets: one portal names all portals of a target.

use std::path::{Path, PathBuf};

use hawser_core::Outcome;
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::admin::{self, Exit};
use super::data::{Chap, Target, Volume};
use super::portal::Portal;
use super::record::{self, MARK};
use crate::shared::error::AttachError;
use crate::shared::locks;
use crate::shared::wait::Deadline;

/// Every way to a volume of which one is known. Where all portals that answer belong to its target,
/// or some do, only those count; a target that is known under other names at other portals (some
/// storage systems do that) is tried under all of them.
pub(super) async fn ways(
    host: &dyn Host,
    volume: &Volume,
    chap: Option<&Chap>,
    deadline: Deadline,
) -> Result<Vec<Target>> {
    let given = &volume.targets[0];
    let found = portals(host, given, &volume.iface, chap, deadline).await?;
    let way = |(portal, iqn): &(Portal, String)| Target {
        portal: portal.clone(),
        iqn: iqn.clone(),
        ..given.clone()
    };
    let everywhere = found
        .iter()
        .map(|(portal, _)| portal)
        .all(|portal| found.iter().any(|(its, iqn)| its == portal && *iqn == given.iqn));
    let mut ways: Vec<Target> = match everywhere {
        true => found.iter().filter(|(_, iqn)| *iqn == given.iqn).map(way).collect(),
        false => found.iter().map(way).collect(),
    };
    if !found.iter().any(|(_, iqn)| *iqn == given.iqn) {
        let portal = given.portal.to_string();
        return Err(AttachError::TargetNotFound { portal, target: given.iqn.clone() }.into());
    }
    // The portal that was given works, whatever the target says of itself (behind an address
    // translation it does not know its own portals).
    if !ways.contains(given) {
        ways.insert(0, given.clone());
    }
    Ok(ways)
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
            // The record is the portal's: nobody else may put his credentials there meanwhile.
            let name = format!("iscsi-discovery-{portal}");
            let what = format!("the discovery at {portal}");
            let _alone = locks::alone(host, &name, &what, deadline).await?;
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

/// Takes a record of ours away again, also one that a process which died left, and brings back the
/// one that was there; true when there was one of ours.
pub(super) async fn sweep(host: &dyn Host, portal: &Portal) -> Result<bool> {
    let files = host.files();
    let path = record_file(host, portal)?;
    let kept = path.with_file_name(KEPT);
    let mut swept = false;
    if let Some(before) = files.read(&kept)? {
        files.store(&path, &before, 0o600).await?;
        swept |= files.remove(&kept).await?;
    } else if files.read(&path)?.is_some_and(|text| text.starts_with(MARK.as_bytes())) {
        swept |= files.remove(&path).await?;
    }
    if let Some(folder) = path.parent()
        && files.resolve(folder)?.is_some()
        && files.list(folder)?.is_empty()
    {
        swept |= files.remove(folder).await?;
    }
    Ok(swept)
}
