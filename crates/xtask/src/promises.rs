//! What every connector must be able to do and what must prove it, against the generated table of
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

/// Protocols whose connector is there and not proven yet as it must be. The same.
static NOT_PROVEN_YET: &[&str] = &[];

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
    for name in NOT_PROVEN_YET.iter().filter(|name| row(name).is_some_and(is_real)) {
        problems.push(done("NOT_PROVEN_YET", name));
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

    /// Where the real thing runs in the lab, it is what proves the connector.
    fn check_proof(
        &self,
        row: &Row,
        suites: &[String],
        not_yet: &[&str],
        problems: &mut Vec<String>,
    ) {
        let suite = suites.iter().any(|suite| suite.starts_with(self.suite));
        let name = self.protocol;
        let real = is_real(row);
        if !self.suite.is_empty() && !real && !not_yet.contains(&name) {
            problems.push(format!(
                "{DOCUMENT}: {name} is proven by {} only, and the lab has the real thing: {}*",
                cell(row, "proven by"),
                self.suite
            ));
        }
        if real && (self.suite.is_empty() || !suite) {
            let wanted = if self.suite.is_empty() { "vm_…" } else { self.suite };
            problems.push(format!(
                "{SUITES}: {name} says it is proven by a {}, and no suite {wanted}* runs in `make lab`",
                cell(row, "proven by")
            ));
        }
    }
}

fn is_real(row: &Row) -> bool {
    cell(row, "proven by").starts_with("real ")
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

    const HEAD: &str = "| protocol | platforms | connect | extend | multipath | encryption | reservation | proven by |\n|---|---|---|---|---|---|---|---|\n";

    fn row(line: &str) -> Row {
        let table = format!("<!-- connectors -->\n{HEAD}{line}\n<!-- /connectors -->");
        rows(&table).remove(0)
    }

    fn found(promise: &Promise, line: &str, suites: &[&str], not_yet: &[&str]) -> Vec<String> {
        let suites: Vec<String> = suites.iter().map(ToString::to_string).collect();
        let mut problems = Vec::new();
        let row = row(line);
        promise.check(&row, &mut problems);
        promise.check_proof(&row, &suites, not_yet, &mut problems);
        problems
    }

    const NBD: Promise = promise("NBD", ALL, [Y, Y, Y, N], "vm_nbd");
    const KEPT: &str =
        "| NBD | ALL | yes | yes | several connections | yes | – | real kernel and target |";

    #[test]
    fn a_promise_that_is_kept_is_no_problem_and_more_than_promised_neither() {
        assert_eq!(found(&NBD, KEPT, &["vm_nbd"], &[]), Vec::<String>::new());
        let more = KEPT.replace("| – |", "| yes |");
        assert_eq!(found(&NBD, &more, &["vm_nbd"], &[]), Vec::<String>::new());
    }

    #[test]
    fn less_than_promised_is_named() {
        let less = "| NBD | X86 | yes | – | – | yes | – | real kernel and target |";
        let found = found(&NBD, less, &["vm_nbd"], &[]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("S390") && found[1].contains("PPC64"), "{found:?}");
        assert!(found[2].contains("for extend") && found[3].contains("for multipath"), "{found:?}");
    }

    #[test]
    fn a_simulator_is_no_proof_where_the_lab_has_the_real_thing() {
        let simulated = KEPT.replace("real kernel and target", "simulator");
        let found_it = found(&NBD, &simulated, &["vm_nbd"], &[]);
        assert!(found_it.len() == 1 && found_it[0].contains("simulator only"), "{found_it:?}");
        assert!(found(&NBD, &simulated, &["vm_nbd"], &["NBD"]).is_empty());
    }

    #[test]
    fn a_real_proof_needs_its_suite_outside_of_the_soak() {
        let found = found(&NBD, KEPT, &["vm_nfs"], &[]);
        assert!(found.len() == 1 && found[0].contains("no suite vm_nbd*"), "{found:?}");
        let source = "Suite::new(\"vm_a\", Set::Full, x),\n  Suite::new(\"vm_b\", Set::Soak, x),";
        assert_eq!(suites(source), ["vm_a"]);
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
        for name in NOT_THERE_YET.iter().chain(NOT_PROVEN_YET) {
            assert!(names.contains(name), "{name} is not promised");
        }
    }
}
