//! The programs of LVM, and what they answer.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::{Tool, ToolOutput};
use serde::Deserialize;

use super::Name;
use crate::shared::error::AttachError;

/// How long a program may take; LVM waits for its own locks.
const LIMIT: Duration = Duration::from_secs(30);

/// A program of LVM may crash when a device goes while it looks; the next one sees it gone.
const ATTEMPTS: usize = 3;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// What a shell makes of a crash.
const CRASHED: i32 = 139;

const COLUMNS: &str =
    "vg_name,lv_name,vg_uuid,lv_uuid,lv_attr,lv_size,vg_shared,lv_active_exclusively";

/// A logical volume as its metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Described {
    vg_name: String,
    lv_name: String,
    vg_uuid: String,
    lv_uuid: String,
    lv_attr: String,
    lv_size: String,
    #[serde(default)]
    vg_shared: String,
    #[serde(default)]
    lv_active_exclusively: String,
}

#[derive(Deserialize)]
struct Report {
    report: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    lv: Vec<Described>,
}

impl Described {
    /// What the kernel says of its device.
    pub(super) fn map_uuid(&self) -> String {
        format!("LVM-{}{}", self.vg_uuid.replace('-', ""), self.lv_uuid.replace('-', ""))
    }

    /// What it is known by: names of volumes and groups can be used again.
    pub(super) fn identity(&self) -> String {
        format!("{}/{}", self.vg_uuid, self.lv_uuid)
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.lv_size.parse().unwrap_or(0)
    }

    /// What it is, where that is nothing to be used: parts of other volumes, and pools.
    pub(super) fn not_usable(&self) -> Option<&'static str> {
        match self.lv_attr.chars().next() {
            Some('t') => Some("a pool of thin volumes"),
            Some('d') => Some("a pool of VDO volumes"),
            Some('T' | 'D' | 'e' | 'i' | 'I' | 'l' | 'p') => Some("a part of another volume"),
            Some(_) => None,
            None => Some("nothing that LVM describes"),
        }
    }

    /// True when other hosts may have it active too.
    pub(super) fn is_shared_now(&self) -> bool {
        !self.vg_shared.is_empty() && self.lv_active_exclusively.is_empty()
    }
}

/// What LVM knows of a volume; `None` when there is none of this name.
pub(super) async fn describe(host: &dyn Host, name: &Name) -> Result<Option<Described>> {
    let tool = Tool::new("lvs")
        .args(["--reportformat", "json", "--units", "b", "--nosuffix", "-o", COLUMNS])
        .arg(name.to_string());
    let output = run(host, tool).await?;
    let said = &output.stderr;
    if output.code != Some(0) && (said.contains("not found") || said.contains("Failed to find")) {
        return Ok(None);
    }
    let attempt = format!("asking LVM for {name}");
    let output = output.ok().map_err(AttachError::tool(attempt))?;
    parse(&output.stdout, name)
        .ok_or_else(|| {
            let why = "lvs answers no report in JSON; LVM 2.02.158 or newer is needed".to_owned();
            AttachError::Missing { what: "an LVM that reports in JSON".into(), advice: why }.into()
        })
        .map(Some)
}

/// The volume of this name in a report.
fn parse(text: &str, name: &Name) -> Option<Described> {
    let report: Report = serde_json::from_str(text).ok()?;
    let mut all = report.report.into_iter().flat_map(|part| part.lv);
    all.find(|lv| lv.vg_name == name.vg && lv.lv_name == name.lv)
}

/// Makes it a device, alone among the hosts of its group where that is asked for.
pub(super) async fn activate(host: &dyn Host, name: &Name, exclusive: bool) -> Result<()> {
    let how = if exclusive { "ey" } else { "y" };
    // -K: also volumes that are not to be activated by themselves, such as snapshots.
    change(host, name, &["-a", how, "--yes", "-K"], "activating").await
}

/// Takes its device away; LVM refuses one that is open.
pub(super) async fn deactivate(host: &dyn Host, name: &Name) -> Result<()> {
    change(host, name, &["-a", "n", "--yes"], "deactivating").await
}

/// Makes the kernel's table what the metadata says, after another host changed that.
pub(super) async fn refresh(host: &dyn Host, name: &Name) -> Result<()> {
    change(host, name, &["--refresh"], "refreshing").await
}

async fn change(host: &dyn Host, name: &Name, args: &[&str], attempt: &str) -> Result<()> {
    let tool = Tool::new("lvchange").args(args.iter().copied()).arg(name.to_string());
    let output = run(host, tool).await?;
    let done = output.ok().map_err(AttachError::tool(format!("{attempt} {name}")));
    Ok(done.map(drop)?)
}

async fn run(host: &dyn Host, tool: Tool) -> Result<ToolOutput> {
    let tool = tool.limit(LIMIT);
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        let output = host.run(&tool).await?;
        let crashed = matches!(output.code, None | Some(CRASHED));
        if !crashed || left == 0 {
            return Ok(output);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As LVM 2.03.16 answers.
    const REPORT: &str = r#"  {
      "report": [
          {
              "lv": [
                  {"vg_name":"vg0", "lv_name":"v1", "vg_uuid":"a1-b2", "lv_uuid":"c3-d4", "lv_attr":"Vwi-a-tz--", "lv_size":"67108864", "vg_shared":"", "lv_active_exclusively":"active exclusively"}
              ]
          }
      ]
  }"#;

    fn name() -> Name {
        Name { vg: "vg0".into(), lv: "v1".into() }
    }

    #[test]
    fn a_report_is_read() {
        let found = parse(REPORT, &name()).unwrap();

        assert_eq!(found.map_uuid(), "LVM-a1b2c3d4");
        assert_eq!(found.identity(), "a1-b2/c3-d4");
        assert_eq!((found.size(), found.not_usable()), (67_108_864, None));
        assert_eq!(parse(REPORT, &Name { vg: "vg1".into(), lv: "v1".into() }), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_not(text in "\\PC{0,80}", cut in 0..REPORT.len()) {
            let _ = parse(&text, &name());
            let _ = parse(&REPORT[..cut], &name());
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "lvs", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = parse(&text, &name());
    });
}
