use super::*;
use crate::graph::Use;
use crate::graph::sample::graph;

const RULES: &str = r#"
[graph]
targets = ["x86_64-unknown-linux-gnu"]
[licenses]
allow = ["Apache-2.0", "MIT"]
[bans]
multiple-versions = "deny"
deny = [{ crate = "openssl", reason = "TLS is rustls" }]
[sources]
allow-registry = ["https://github.com/rust-lang/crates.io-index"]
"#;

fn problems(rules: &str, packages: &[(&str, &str, &str)]) -> Vec<String> {
    let all: Vec<_> = [("hawser", "0.1.0", "Apache-2.0"), ("m", "1.0.0", "MIT")]
        .iter()
        .chain(packages)
        .copied()
        .collect();
    judge(&graph(&all, &[("hawser", "m", Use::Normal)]), &Config::parse(rules).unwrap()).problems
}

#[test]
fn allowed_licences_pass_in_every_spelling() {
    let packages = [
        ("a", "1.0.0", "MIT OR GPL-3.0-only"),
        ("b", "1.0.0", "MIT/Apache-2.0"),
        ("c", "1.0.0", "MIT AND Apache-2.0"),
    ];
    assert_eq!(problems(RULES, &packages), Vec::<String>::new());
}

#[test]
fn other_licences_and_none_are_refused() {
    let packages = [
        ("a", "1.0.0", "GPL-3.0-only"),
        ("b", "1.0.0", "MIT AND ISC"),
        ("c", "1.0.0", ""),
        ("d", "1.0.0", "My-Own"),
    ];
    let found = problems(RULES, &packages);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[0].contains("a 1.0.0: licence GPL-3.0-only is not allowed"));
}

#[test]
fn a_licence_exception_holds_for_its_crate_and_needs_a_reason() {
    let with = |comment: &str| {
        let exception = format!(
            "allow = [\"Apache-2.0\", \"MIT\"]\nexceptions = [\n{comment}\n{{ crate = \"a\", allow = [\"ISC\"] }}\n]"
        );
        RULES.replace("allow = [\"Apache-2.0\", \"MIT\"]", &exception)
    };
    let reasoned = with("# ring's own code");
    assert_eq!(problems(&reasoned, &[("a", "1.0.0", "ISC")]), Vec::<String>::new());
    assert_eq!(problems(&reasoned, &[("a", "1.0.0", "ISC"), ("b", "1.0.0", "ISC")]).len(), 1);

    let bare = problems(&with(""), &[("a", "1.0.0", "ISC")]);
    assert_eq!(bare, ["deny.toml: the licence exception of a has no reason"]);
    let unused = problems(&reasoned, &[("a", "1.0.0", "MIT")]);
    assert_eq!(unused, ["deny.toml: the licence exception of a is not needed"]);
}

#[test]
fn two_versions_are_refused_unless_one_is_skipped_with_a_reason() {
    let twice = [("m", "2.0.0", "MIT")];
    let found = problems(RULES, &twice);
    assert!(found[0].starts_with("m is built more than once: 1.0.0 (used by hawser)"), "{found:?}");

    let skip = |entry: &str| RULES.replace("deny = [", &format!("skip = [{entry}]\ndeny = ["));
    let reasoned = skip("{ crate = \"m\u{40}1.0.0\", reason = \"x needs it\" }");
    assert_eq!(problems(&reasoned, &twice), Vec::<String>::new());
    assert_eq!(problems(&reasoned, &[]), ["deny.toml: bans.skip m@1.0.0 is not needed"]);
    let bare = skip("{ crate = \"m\u{40}1.0.0\" }");
    assert_eq!(problems(&bare, &twice), ["deny.toml: bans.skip m@1.0.0 has no reason"]);
}

#[test]
fn a_banned_crate_is_refused_with_its_reason() {
    let found = problems(RULES, &[("openssl", "0.10.0", "MIT")]);
    assert!(found[0].contains("banned, TLS is rustls"), "{found:?}");
}

#[test]
fn a_banned_crate_is_fine_below_its_wrapper_alone() {
    let with = |wrapper: &str| {
        let ban =
            format!("{{ crate = \"m\", wrappers = [\"{wrapper}\"], reason = \"ours is typed\" }}");
        RULES.replace("{ crate = \"openssl\", reason = \"TLS is rustls\" }", &ban)
    };

    assert_eq!(problems(&with("hawser"), &[]), Vec::<String>::new());
    let found = problems(&with("other"), &[]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("m 1.0.0 is banned, ours is typed; used by hawser"), "{found:?}");
    assert_eq!(found[1], "deny.toml: the wrapper other of m is not needed");
}

#[test]
fn only_the_named_registry_is_a_source() {
    let mut graph = graph(&[("a", "1.0.0", "MIT"), ("b", "1.0.0", "MIT")], &[]);
    graph.packages[0].source = Some("git+https://example.org/a".into());
    graph.packages[1].source = None;

    let found = judge(&graph, &Config::parse(RULES).unwrap()).problems;

    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("git+https://example.org/a, which is not allowed"));
    assert!(found[1].contains("path outside the workspace"));
}
