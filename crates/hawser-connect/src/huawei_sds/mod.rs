//! HUAWEISDSHYPERVISOR: volumes of Huawei's software-defined storage, through the vendor's `sds_cli`.
//!
//! Data: `{"volume_id": …}`. The program is `/usr/local/bin/sds/sds_cli`, or in one of the usual
//! folders; it prints `key=value` lines with `ret_code`, `ret_desc` and
//! `dev_addr`. Codes that mean "done already" count as done. Follows os-brick 7 `huawei.py`.
//!
//! Needs the vendor's client (`sds_cli` and its VBS daemon). Proven against a simulator only.

mod answer;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Packages, Platform, Proof, Proofs,
};
use hawser_core::port::host::Tool;

use self::answer::Answer;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::vendor::Client;
use crate::shared::wait::Deadline;

const PROGRAM: &str = "sds_cli";

/// How long the program may take to say where a volume is.
const QUERY_LIMIT: Duration = Duration::from_secs(30);

/// Attached: done, done before, or the id of the node was set before.
const ATTACHED: [i64; 3] = [0, 50_151_401, 50_151_405];
/// Detached: done, the daemon is not well, or it was not mounted here.
const DETACHED: [i64; 3] = [0, 50_151_209, 50_155_007];

/// Huawei's client; keeps nothing.
pub(crate) struct HuaweiSds;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["HUAWEISDSHYPERVISOR"],
    maturity: Maturity::Legacy,
    note: "through the vendor's sds_cli, which cannot be had; proven against a simulator of it",
    platforms: &[Platform::X86],
    abilities: Abilities { extend: false, multipath: None, encryption: true, reservation: false },
    proofs: Proofs::of(Proof::Simulator),
    own: &[],
    needs: &[
        Need::Root,
        Need::Program {
            name: PROGRAM,
            packages: Packages { apt: "", dnf: "", zypper: "", apk: "" },
        },
    ],
};

async fn ask(host: &dyn Host, verb: &str, volume: &str, deadline: Deadline) -> Result<Answer> {
    let tool = Tool::new(PROGRAM).args(["-c", verb, "-v", volume]).limit(deadline.left());
    let output = host.run(&tool).await?;
    let attempt = format!("asking {PROGRAM} for {verb} of {volume}");
    let output = output.ok().map_err(AttachError::tool(attempt))?;
    Ok(Answer::read(&output.stdout)?)
}

#[async_trait]
impl Client for HuaweiSds {
    type Volume = String;

    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn read(&self, _: &ConnectionInfo, fields: &Fields) -> Result<String, AttachError> {
        let volume = fields.volume_id()?.ok_or_else(|| invalid("volume_id", "is missing"))?;
        // It becomes an argument.
        if volume.starts_with('-') || volume.contains(char::is_whitespace) {
            return Err(invalid("volume_id", "must not have blanks or begin with a dash"));
        }
        Ok(volume)
    }

    fn name(&self, volume: &String) -> String {
        volume.clone()
    }

    async fn node(&self, host: &dyn Host, volume: &String) -> Result<Option<PathBuf>> {
        let answer = ask(host, "querydev", volume, Deadline::after(QUERY_LIMIT)).await?;
        Ok(answer.device())
    }

    async fn attach(&self, host: &dyn Host, volume: &String, deadline: Deadline) -> Result<()> {
        Ok(ask(host, "attach", volume, deadline).await?.expect(&ATTACHED, "attaching", volume)?)
    }

    async fn detach(&self, host: &dyn Host, volume: &String, deadline: Deadline) -> Result<bool> {
        ask(host, "detach", volume, deadline).await?.expect(&DETACHED, "detaching", volume)?;
        Ok(true)
    }
}
