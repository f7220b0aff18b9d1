//! What a run of csi-sanity came to, case by case.

use serde_json::Value;

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// In any other way.
    Failed,
    /// The driver says that it cannot do this.
    Skipped,
    /// The suite itself has it switched off.
    Pending,
}

/// One case of the suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The names of what it is in, then its own.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed or was skipped.
    pub why: String,
}

/// All cases of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they ran.
    pub cases: Vec<Case>,
}

/// What a run has to come to; nothing may fail.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// How many cases pass.
    pub passed: usize,
    /// How many the suite itself has switched off.
    pub pending: usize,
    /// The names of those that the driver does not do, or parts of the names: one for each.
    pub skipped: &'a [&'a str],
}

impl Report {
    /// Reads the report that ginkgo writes as JSON.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let suites: Vec<Value> = serde_json::from_slice(bytes)?;
        let specs = suites.iter().flat_map(|suite| suite["SpecReports"].as_array()).flatten();
        Ok(Self { cases: specs.filter_map(case).collect() })
    }

    /// The cases that ended so.
    pub fn of(&self, outcome: Outcome) -> Vec<&Case> {
        self.cases.iter().filter(|case| case.outcome == outcome).collect()
    }

    /// How many ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.of(outcome).len()
    }

    /// Panics when the run is not as expected, with every case that differs and why.
    #[track_caller]
    pub fn assert(&self, expected: &Expected<'_>) {
        let problems = self.problems(expected);
        assert!(problems.is_empty(), "csi-sanity: {self}\n{}", problems.join("\n"));
    }

    fn problems(&self, expected: &Expected<'_>) -> Vec<String> {
        let mut problems: Vec<String> = self.of(Outcome::Failed).iter().map(|c| line(c)).collect();
        let mut missing = expected.skipped.to_vec();
        for case in self.of(Outcome::Skipped) {
            match missing.iter().position(|name| case.name.contains(name)) {
                Some(place) => drop(missing.swap_remove(place)),
                None => problems.push(line(case)),
            }
        }
        problems.extend(missing.iter().map(|name| format!("not skipped: {name}")));
        for (outcome, wanted) in
            [(Outcome::Passed, expected.passed), (Outcome::Pending, expected.pending)]
        {
            let count = self.count(outcome);
            if count != wanted {
                problems.push(format!("{outcome:?}: {count} and not {wanted}"));
            }
        }
        problems
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [passed, failed, skipped, pending] =
            [Outcome::Passed, Outcome::Failed, Outcome::Skipped, Outcome::Pending]
                .map(|outcome| self.count(outcome));
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped, {pending} pending")
    }
}

fn line(case: &Case) -> String {
    format!("{:?}: {}: {}", case.outcome, case.name, case.why)
}

/// A case; what runs before and after cases is one only when it fails.
fn case(spec: &Value) -> Option<Case> {
    let outcome = match spec["State"].as_str()? {
        "passed" => Outcome::Passed,
        "skipped" => Outcome::Skipped,
        "pending" => Outcome::Pending,
        // Failed, panicked, timed out, interrupted, aborted.
        _ => Outcome::Failed,
    };
    if spec["LeafNodeType"] != "It" && outcome != Outcome::Failed {
        return None;
    }
    let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let words = containers.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    let failure = &spec["Failure"];
    let place = &failure["Location"];
    let mut why = failure["Message"].as_str().unwrap_or_default().trim().to_owned();
    if let (Outcome::Failed, Some(file)) = (outcome, place["FileName"].as_str()) {
        why = format!("{why} ({file}:{})", place["LineNumber"]);
    }
    Some(Case { name: words.collect::<Vec<_>>().join(" "), outcome, why })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> Report {
        let spec = |leaf: &str, state: &str, message: &str| {
            json!({
                "ContainerHierarchyTexts": ["Node Service", "NodeStageVolume"],
                "LeafNodeType": "It",
                "LeafNodeText": leaf,
                "State": state,
                "Failure": { "Message": message, "Location": { "FileName": "a.go", "LineNumber": 7 } },
            })
        };
        let before =
            json!({ "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "passed" });
        let suite = json!([{ "SpecReports": [
            before,
            spec("should work", "passed", ""),
            spec("should be idempotent", "panicked", "oh no"),
            spec("should tell health", "skipped", "not supported"),
            spec("should wait", "pending", ""),
        ]}]);
        Report::parse(suite.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn cases_are_counted_and_named() {
        let report = report();
        assert_eq!(report.to_string(), "1 passed, 1 failed, 1 skipped, 1 pending");
        let failed = report.of(Outcome::Failed);
        assert_eq!(failed[0].name, "Node Service NodeStageVolume should be idempotent");
        assert_eq!(failed[0].why, "oh no (a.go:7)");
    }

    #[test]
    fn a_failed_case_is_a_problem_and_an_expected_skip_is_none() {
        let expected = Expected { passed: 1, pending: 1, skipped: &["should tell health"] };
        let problems = report().problems(&expected);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("Failed: Node Service"), "{problems:?}");
    }

    #[test]
    fn a_skip_that_nobody_expects_and_other_counts_are_problems() {
        let expected = Expected { passed: 2, pending: 0, skipped: &["should snapshot"] };
        let problems = report().problems(&expected).join("\n");
        for wanted in [
            "Skipped: Node Service NodeStageVolume should tell health: not supported",
            "not skipped: should snapshot",
            "Passed: 1 and not 2",
            "Pending: 1 and not 0",
        ] {
            assert!(problems.contains(wanted), "{problems}");
        }
    }

    #[test]
    fn what_fails_before_the_cases_is_a_failure() {
        let suite = json!([{ "SpecReports": [
            { "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "failed" },
        ]}]);
        let report = Report::parse(suite.to_string().as_bytes()).unwrap();
        assert_eq!(report.count(Outcome::Failed), 1);
    }

    #[test]
    fn half_a_report_is_none() {
        assert!(Report::parse(b"[{\"SpecReports\": [").is_err());
        assert!(Report::parse(b"").is_err());
    }
}
