//! What `doctor` asks of a host: what does not belong together, and the repair of what is provably
//! ours and unused.
//!
//! Records are looked at under their publication's lock, stray loop devices under their volume's, so
//! that work in progress is never taken for a leftover.

mod loops;
mod records;

use std::path::Path;

use hawser_core::Result;
use hawser_core::doctor::{Finding, FindingCode, Repair};

use super::NodeHalf;

impl NodeHalf {
    pub(super) async fn survey_host(&self, fix: bool) -> Result<Vec<Finding>> {
        let registered = self.registry.list().await?;
        let mut findings: Vec<Finding> =
            registered.unreadable.iter().map(|(path, why)| unreadable(path, why)).collect();
        for record in &registered.records {
            findings.extend(self.survey_record(&record.publication, fix).await?);
        }
        findings.extend(self.survey_loops(fix).await?);
        Ok(findings)
    }
}

fn unreadable(path: &Path, why: &str) -> Finding {
    finding(
        FindingCode::UnreadableRecord,
        path.display(),
        format!(
            "this attachment record cannot be read ({why}); it may be of a newer Hawser, or the disk is damaged. Until it is gone, nothing new is attached on this host, because nobody can tell which volume it is of"
        ),
        "look at the file; if no process uses the volume it names, detach the volume's device by hand and remove the file. `--fix` does not do this",
    )
}

/// A finding that nothing repairs, until [`repaired`] says otherwise.
fn finding(
    code: FindingCode,
    subject: impl ToString,
    explanation: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    Finding {
        code,
        subject: subject.to_string(),
        explanation: explanation.into(),
        advice: advice.into(),
        fixable: false,
        repair: None,
    }
}

/// The same finding with what came of its repair, where one was asked for.
fn repaired(mut finding: Finding, result: Option<Result<()>>) -> Finding {
    finding.fixable = true;
    finding.repair = result.map(|result| match result {
        Ok(()) => Repair::Done,
        Err(error) => Repair::Failed(error.sentence()),
    });
    finding
}
