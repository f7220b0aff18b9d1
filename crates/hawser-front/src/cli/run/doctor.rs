//! `hawser doctor`

use hawser_api::rest::doctor::FindingView;
use hawser_api::rest::list::ListView;
use hawser_core::doctor::{Finding, Repair};

use super::super::args::node::DoctorArgs;
use super::super::context::Context;
use super::super::error::CliError;
use super::super::human::plain;

pub(super) async fn run(args: DoctorArgs, context: &Context<'_>) -> Result<(), CliError> {
    let findings = if args.local || !context.backend.has_server() {
        context.backend.node().await?.survey(args.fix).await?
    } else {
        context.control().await?.doctor(args.fix).await?
    };
    let open = findings.iter().filter(|finding| finding.repair != Some(Repair::Done)).count();
    let names: Vec<String> = findings.iter().map(|finding| finding.subject.clone()).collect();
    let text: String = findings.iter().map(describe).collect();
    context.list(&ListView::<FindingView>::whole(findings), || names, || text)?;
    match open {
        0 if context.backend.has_server() => context.say("everything belongs together"),
        0 => context.say("everything on this host belongs together; there is no server here"),
        _ => Err(CliError::Findings(open)),
    }
}

fn describe(finding: &Finding) -> String {
    let mark = match &finding.repair {
        Some(Repair::Done) => "repaired".to_owned(),
        Some(Repair::Failed(reason)) => format!("repair failed: {reason}"),
        None if finding.fixable => "fixable".to_owned(),
        None => "needs a person".to_owned(),
    };
    let Finding { subject, explanation, advice, .. } = finding;
    let lines = [format!("{subject} ({mark})"), format!("  {explanation}"), format!("  {advice}")];
    lines.iter().map(|line| format!("{}\n", plain(line))).collect()
}
