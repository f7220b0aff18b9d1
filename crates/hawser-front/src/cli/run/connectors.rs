//! `hawser connectors`: what is built in, and what this host lacks for it.

use hawser_core::port::library::ConnectorStatus;

use super::super::args::library::ConnectorsArgs;
use super::super::context::Context;
use super::super::error::CliError;
use super::super::table::Table;
use super::library::library;

pub(super) async fn run(args: ConnectorsArgs, context: &Context<'_>) -> Result<(), CliError> {
    let node = context.backend.library().await?;
    let all = library(&node)?.connectors().await?;
    if args.markdown {
        return context.show(&all, || markdown(&all));
    }
    let names = || all.iter().map(|status| status.protocol.clone()).collect();
    context.list(&all, names, || people(&all))
}

fn people(all: &[ConnectorStatus]) -> String {
    let mut table = Table::new(["PROTOCOL", "HERE", "MATURITY", "PROVEN BY"]);
    for status in all {
        let here = if status.ready { "ready" } else { "not ready" };
        table.row([
            status.protocol.clone(),
            here.into(),
            status.maturity.clone(),
            status.proof.clone(),
        ]);
    }
    let mut text = table.render();
    for status in all.iter().filter(|status| !status.ready) {
        text.push_str(&format!("\n{} lacks on this host:\n", status.protocol));
        for missing in &status.missing {
            text.push_str(&format!("  {}: {}\n", missing.what, missing.advice));
        }
    }
    text
}

/// The table of the documentation: says nothing of this host. Each ability is told by what proves it.
fn markdown(all: &[ConnectorStatus]) -> String {
    let mut text = String::from(
        "| protocol | maturity | platforms | connect | extend | multipath | encryption | reservation | note |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for status in all {
        let ConnectorStatus { protocol, maturity, proofs, note, .. } = status;
        let platforms = status.platforms.join(", ");
        let cell = |proof: &Option<String>| proof.clone().unwrap_or_else(|| "–".into());
        let multipath = match &status.multipath {
            Some(by) => format!("{by}: {}", cell(&proofs.multipath)),
            None => "–".into(),
        };
        text.push_str(&format!(
            "| {protocol} | {maturity} | {platforms} | {} | {} | {multipath} | {} | {} | {note} |\n",
            cell(&proofs.connect),
            cell(&proofs.extend),
            cell(&proofs.encryption),
            cell(&proofs.reservation),
        ));
    }
    text
}
