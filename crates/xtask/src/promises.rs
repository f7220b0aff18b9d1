//! What every connector must be able to do and what must prove each ability, against the generated table of
//! `docs/connectors.md`; a test of the program keeps that table true to the code, and the contract
//! of the connectors keeps the code true to what it says of itself.

use std::collections::BTreeMap;

use crate::Result;
use crate::tree::Tree;

/// Where the generated table stands.
const DOCUMENT: &str = "docs/connectors.md";

/// Where the suites of the lab are listed.
const SUITES: &str = "crates/hawser-live/src/lab/suites.rs";

/// One protocol that has to be there.
struct Promise {
    protocol: &'static str,
    /// The platforms on which it is known to exist.
    platforms: &'static [&'static str],
    /// A larger volume is seen without detaching it.
    extend: bool,
    /// Several paths become one device.
    multipath: bool,
    /// A block device, so it can be encrypted.
    block: bool,
    /// A single writer can be enforced at the device.
    reservation: bool,
    /// What the suite of the lab is called that proves it on a real kernel or with a real daemon;
    /// empty where the storage system cannot be had.
    suite: &'static str,
}

const ALL: &[&str] = &["X86", "S390", "PPC64"];
const X86: &[&str] = &["X86"];
const NO_Z: &[&str] = &["X86", "PPC64"];

/// A line of the table below; the flags are extend, multipath, block, reservation.
const fn promise(
    protocol: &'static str,
    platforms: &'static [&'static str],
    flags: [bool; 4],
    suite: &'static str,
) -> Promise {
    let [extend, multipath, block, reservation] = flags;
    Promise { protocol, platforms, extend, multipath, block, reservation, suite }
}

const Y: bool = true;
const N: bool = false;

/// Every protocol of the host library. A connector may do more than this, never less.
static PROMISES: &[Promise] = &[
    promise("AOE", X86, [N, Y, Y, N], "vm_aoe"),
    promise("DISCO", X86, [N, N, Y, N], ""),
    promise("DRBD", X86, [N, N, Y, N], "vm_drbd"),
    promise("FIBRE_CHANNEL", ALL, [Y, Y, Y, Y], "vm_fc"),
    promise("GLUSTERFS", X86, [N, N, N, N], "vm_gluster"),
    promise("GPFS", ALL, [Y, N, N, N], ""),
    promise("HGST", X86, [N, N, Y, N], ""),
    promise("HUAWEISDSHYPERVISOR", X86, [N, N, Y, N], ""),
    promise("ISCSI", ALL, [Y, Y, Y, Y], "vm_iscsi"),
    promise("ISER", NO_Z, [Y, Y, Y, Y], "vm_iser"),
    promise("LOCAL", ALL, [Y, N, Y, N], "vm_local"),
    promise("NBD", ALL, [Y, Y, Y, N], "vm_nbd"),
    promise("NFS", ALL, [N, N, N, N], "vm_nfs"),
    promise("NVMEOF", X86, [Y, Y, Y, Y], "vm_nvme"),
    promise("QUOBYTE", X86, [N, N, N, N], ""),
    promise("RBD", ALL, [Y, N, Y, N], "vm_rbd"),
    promise("SCALEIO", X86, [Y, N, Y, N], ""),
    promise("SCALITY", X86, [N, N, N, N], ""),
    promise("SMBFS", X86, [N, N, N, N], "vm_smb"),
    promise("VZSTORAGE", NO_Z, [N, N, N, N], ""),
];

/// Protocols that are still to be written. One that is there must be taken out of this list.
static NOT_THERE_YET: &[&str] = &[];

/// Abilities of which the lab has the real thing and does not prove them yet. The same.
static NOT_PROVEN_YET: &[(&str, &str)] = &[
    // The lab has one way to an AoE target.
    ("AOE", "multipath"),
];

/// What a connector does itself. Where the lab has the protocol it must prove all of it.
const OWN: [&str; 3] = ["connect", "extend", "multipath"];

/// Every column that is told by what proves it.
const ABILITIES: [&str; 5] = ["connect", "extend", "multipath", "encryption", "reservation"];

/// One row of the generated table, by the names of its columns.
type Row = BTreeMap<String, String>;

/// Holds the table against the promises; answers how many there are.
pub(crate) fn check(tree: &Tree, problems: &mut Vec<String>) -> Result<usize> {
    let rows = rows(&tree.read(DOCUMENT)?);
    let suites = suites(&tree.read(SUITES)?);
    check_lists(&rows, problems);
    for promise in PROMISES {
        let Some(row) = rows.iter().find(|row| cell(row, "protocol") == promise.protocol) else {
            if !NOT_THERE_YET.contains(&promise.protocol) {
                problems.push(format!("{DOCUMENT}: no row for {}", promise.protocol));
            }
            continue;
        };
        promise.check(row, problems);
        promise.check_proof(row, &suites, NOT_PROVEN_YET, problems);
    }
    for row in &rows {
        let name = cell(row, "protocol");
        if PROMISES.iter().all(|promise| promise.protocol != name) {
            problems.push(format!(
                "{DOCUMENT}: {name} has no line in PROMISES of crates/xtask/src/promises.rs"
            ));
        }
    }
    Ok(PROMISES.len())
}

/// The lists of what is missing shrink as soon as it is there.
fn check_lists(rows: &[Row], problems: &mut Vec<String>) {
    let row = |name: &str| rows.iter().find(|row| cell(row, "protocol") == name);
    let done = |list: &str, name: &str| {
        format!("crates/xtask/src/promises.rs: {name} is there: take it out of {list}")
    };
    for name in NOT_THERE_YET.iter().filter(|name| row(name).is_some()) {
        problems.push(done("NOT_THERE_YET", name));
    }
    for (name, column) in NOT_PROVEN_YET {
        if row(name).is_some_and(|row| suite_of(cell(row, column)).is_some()) {
            problems.push(done("NOT_PROVEN_YET", &format!("{column} of {name}")));
        }
    }
}

impl Promise {
    /// What the connector says of itself must hold what is promised.
    fn check(&self, row: &Row, problems: &mut Vec<String>) {
        let mut lacks = |what: &str| problems.push(format!("{DOCUMENT}: {} {what}", self.protocol));
        let listed: Vec<&str> = cell(row, "platforms").split(", ").collect();
        for platform in self.platforms {
            if !listed.contains(platform) && !listed.contains(&"ALL") {
                lacks(&format!("does not work on {platform}"));
            }
        }
        for (column, promised) in [
            ("connect", true),
            ("extend", self.extend),
            ("multipath", self.multipath),
            ("encryption", self.block),
            ("reservation", self.reservation),
        ] {
            if promised && matches!(cell(row, column), "–" | "") {
                lacks(&format!("answers Unsupported for {column}, which this protocol can do"));
            }
        }
    }

    /// Where the real thing runs in the lab, it is what proves the connector; and what is said to
    /// prove something runs there.
    fn check_proof(
        &self,
        row: &Row,
        suites: &[String],
        not_yet: &[(&str, &str)],
        problems: &mut Vec<String>,
    ) {
        let name = self.protocol;
        for column in ABILITIES {
            let told = cell(row, column);
            if matches!(told, "–" | "") {
                continue;
            }
            let exempt = !OWN.contains(&column) || not_yet.contains(&(name, column));
            match suite_of(told) {
                None if self.suite.is_empty() || exempt => {}
                None => problems.push(format!(
                    "{DOCUMENT}: {column} of {name} is told as {told:?}, and the lab has the real thing: {}*",
                    self.suite
                )),
                Some(suite) if !suites.iter().any(|known| known == suite) => {
                    problems.push(format!(
                        "{SUITES}: {column} of {name} is told as {told:?}, and `make lab` runs no such suite"
                    ));
                }
                // LUKS and reservations may be tried above it by a suite of their own.
                Some(suite) if OWN.contains(&column) && !self.has(suite) => {
                    problems.push(format!(
                        "{DOCUMENT}: {column} of {name} is told as {told:?}, a suite of another protocol"
                    ));
                }
                Some(_) => {}
            }
        }
    }

    /// True for the suites of this protocol.
    fn has(&self, suite: &str) -> bool {
        !self.suite.is_empty() && suite.starts_with(self.suite)
    }
}

/// The suite that a cell names, where the real thing is its proof: `device mapper: kernel vm_fc`.
fn suite_of(told: &str) -> Option<&str> {
    let proof = told.rsplit(": ").next()?;
    proof.strip_prefix("kernel ").or_else(|| proof.strip_prefix("daemon "))
}

fn cell<'a>(row: &'a Row, column: &str) -> &'a str {
    row.get(column).map(String::as_str).unwrap_or_default()
}

/// The rows between the two marks.
fn rows(document: &str) -> Vec<Row> {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
        inner.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let table = document.split("<!-- connectors -->").nth(1).unwrap_or_default();
    let table = table.split("<!-- /connectors -->").next().unwrap_or_default();
    let mut lines = table.lines().filter(|line| line.starts_with('|'));
    let head = lines.next().map(cells).unwrap_or_default();
    lines
        .filter(|line| !line.starts_with("|---"))
        .map(|line| head.iter().cloned().zip(cells(line)).collect())
        .collect()
}

/// The suites that `make lab` runs.
fn suites(source: &str) -> Vec<String> {
    let listed = listed(source).into_iter();
    listed.filter(|(_, set)| *set != "Soak").map(|(name, _)| name.to_owned()).collect()
}

/// Every suite and the set it belongs to.
fn listed(source: &str) -> Vec<(&str, &str)> {
    fn suite(line: &str) -> Option<(&str, &str)> {
        let (name, rest) = line.strip_prefix("Suite::new(\"")?.split_once('"')?;
        Some((name, rest.strip_prefix(", Set::")?.split(',').next()?))
    }
    source.lines().map(str::trim).filter_map(suite).collect()
}

/// The names of all suites, for other checks.
pub(crate) fn all_suites(tree: &Tree) -> Result<Vec<String>> {
    let source = tree.read(SUITES)?;
    Ok(listed(&source).into_iter().map(|(name, _)| name.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| protocol | platforms | connect | extend | multipath | encryption | reservation |\n|---|---|---|---|---|---|---|\n";

    fn row(line: &str) -> Row {
        let table = format!("<!-- connectors -->\n{HEAD}{line}\n<!-- /connectors -->");
        rows(&table).remove(0)
    }

    fn found(
        promise: &Promise,
        line: &str,
        suites: &[&str],
        not_yet: &[(&str, &str)],
    ) -> Vec<String> {
        let suites: Vec<String> = suites.iter().map(ToString::to_string).collect();
        let mut problems = Vec::new();
        let row = row(line);
        promise.check(&row, &mut problems);
        promise.check_proof(&row, &suites, not_yet, &mut problems);
        problems
    }

    const NBD: Promise = promise("NBD", ALL, [Y, Y, Y, N], "vm_nbd");
    const KEPT: &str = "| NBD | ALL | kernel vm_nbd | kernel vm_nbd | several connections: kernel vm_nbd | not proven | – |";

    #[test]
    fn a_promise_that_is_kept_is_no_problem_and_more_than_promised_neither() {
        assert_eq!(found(&NBD, KEPT, &["vm_nbd"], &[]), Vec::<String>::new());
        let more = KEPT.replace("| – |", "| kernel vm_layers |");
        assert_eq!(found(&NBD, &more, &["vm_nbd", "vm_layers"], &[]), Vec::<String>::new());
    }

    #[test]
    fn less_than_promised_is_named() {
        let less = "| NBD | X86 | kernel vm_nbd | – | – | not proven | – |";
        let found = found(&NBD, less, &["vm_nbd"], &[]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("S390") && found[1].contains("PPC64"), "{found:?}");
        assert!(found[2].contains("for extend") && found[3].contains("for multipath"), "{found:?}");
    }

    #[test]
    fn less_than_the_real_thing_is_no_proof_where_the_lab_has_it() {
        for (real, less) in [
            ("| kernel vm_nbd | kernel", "| simulator | kernel"),
            (": kernel vm_nbd", ": not proven"),
            ("kernel vm_nbd | several", "fixtures | several"),
        ] {
            let line = KEPT.replace(real, less);
            let found_it = found(&NBD, &line, &["vm_nbd"], &[]);
            assert!(found_it.len() == 1 && found_it[0].contains("the real thing"), "{found_it:?}");
        }
        let line = KEPT.replace(": kernel vm_nbd", ": not proven");
        assert!(found(&NBD, &line, &["vm_nbd"], &[("NBD", "multipath")]).is_empty());
    }

    #[test]
    fn every_cell_that_names_a_suite_names_one_that_runs_outside_of_the_soak() {
        let line = KEPT.replace("| not proven |", "| kernel vm_layers |");
        let found_it = found(&NBD, &line, &["vm_nbd"], &[]);
        assert!(found_it.len() == 1 && found_it[0].contains("encryption of NBD"), "{found_it:?}");
        assert_eq!(found(&NBD, KEPT, &["vm_nfs"], &[]).len(), 3);
        let source = "Suite::new(\"vm_a\", Set::Full, x),\n  Suite::new(\"vm_b\", Set::Soak, x),";
        assert_eq!(suites(source), ["vm_a"]);
    }

    #[test]
    fn what_a_connector_does_itself_is_proven_by_a_suite_of_its_own() {
        let line = KEPT.replace("| kernel vm_nbd | several", "| kernel vm_nfs | several");
        let found_it = found(&NBD, &line, &["vm_nbd", "vm_nfs"], &[]);
        assert!(found_it.len() == 1 && found_it[0].contains("another protocol"), "{found_it:?}");
        let simulated = promise("HGST", X86, [N, N, Y, N], "");
        let line = "| HGST | X86 | kernel vm_nbd | – | – | not proven | – |";
        assert_eq!(found(&simulated, line, &["vm_nbd"], &[]).len(), 1);
    }

    #[test]
    fn the_lists_of_what_is_missing_shrink_when_it_is_there() {
        let mut problems = Vec::new();
        let listed = NOT_THERE_YET.iter().map(|name| row(&KEPT.replace("NBD", name)));
        check_lists(&listed.collect::<Vec<_>>(), &mut problems);
        assert_eq!(problems.len(), NOT_THERE_YET.len(), "{problems:?}");
    }

    #[test]
    fn every_protocol_is_promised_once() {
        let mut names: Vec<_> = PROMISES.iter().map(|promise| promise.protocol).collect();
        names.dedup();
        assert_eq!(names.len(), PROMISES.len());
        for name in NOT_THERE_YET.iter().chain(NOT_PROVEN_YET.iter().map(|(name, _)| name)) {
            assert!(names.contains(name), "{name} is not promised");
        }
    }
}
