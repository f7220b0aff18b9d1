//! `generated`: the checked-in code of protocol buffers is what its `.proto` files give.
//!
//! `cargo xtask proto` writes it, with a compiler written in Rust, so that no build needs one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;
use protox::Compiler;

use crate::Result;
use crate::report::Report;
use crate::tree::Tree;

/// Where the `.proto` files are.
const PROTOS: &str = "crates/hawser-api/proto";
/// Where the code is.
const CODE: &str = "crates/hawser-api/src/csi/generated";
/// The files below [`PROTOS`]; the code has the names of their packages.
const FILES: [&str; 2] = ["csi/csi.proto", "pluginregistration/api.proto"];
/// The field in which every request of CSI carries its secrets.
const SECRETS: &str = "secrets";

/// True for files that a generator wrote.
pub(crate) fn is_generated(path: &Path) -> bool {
    path.starts_with(CODE)
}

/// Runs the check on the tree.
pub(crate) fn check(tree: &Tree) -> Result<Report> {
    let wanted = generate(&tree.root.join(PROTOS))?;
    let found = read(&tree.root.join(CODE))?;
    let scope = format!("{} files of {} .proto files", wanted.len(), FILES.len());
    Ok(Report { scope, problems: compare(&wanted, &found), ..Report::default() })
}

/// Writes the code anew.
pub(crate) fn write(tree: &Tree) -> Result<bool> {
    let folder = tree.root.join(CODE);
    fs::create_dir_all(&folder).map_err(|e| format!("making {CODE}: {e}"))?;
    let wanted = generate(&tree.root.join(PROTOS))?;
    for name in read(&folder)?.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(folder.join(name)).map_err(|e| format!("removing {CODE}/{name}: {e}"))?;
    }
    for (name, text) in &wanted {
        fs::write(folder.join(name), text).map_err(|e| format!("writing {CODE}/{name}: {e}"))?;
        println!("proto: {CODE}/{name}");
    }
    Ok(true)
}

/// Texts by the names of their files.
type Code = BTreeMap<String, String>;

/// What differs, in words.
fn compare(wanted: &Code, found: &Code) -> Vec<String> {
    let fix = "run `cargo xtask proto`";
    let mut problems = Vec::new();
    for (name, text) in wanted {
        match found.get(name) {
            None => problems.push(format!("{CODE}/{name} is missing: {fix}")),
            Some(there) if there != text => {
                problems.push(format!("{CODE}/{name} is not what {PROTOS} gives: {fix}"));
            }
            Some(_) => {}
        }
    }
    for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
        problems.push(format!("{CODE}/{name} is made of nothing: {fix}"));
    }
    problems
}

/// The files of a folder.
fn read(folder: &Path) -> Result<Code> {
    let mut code = Code::new();
    let broken = |e: std::io::Error| format!("reading {}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let text = fs::read_to_string(entry.path()).map_err(broken)?;
        code.insert(entry.file_name().to_string_lossy().into_owned(), text);
    }
    Ok(code)
}

/// Makes the code of the `.proto` files below a folder.
fn generate(protos: &Path) -> Result<Code> {
    let folder = tempfile::tempdir().map_err(|e| format!("making a folder: {e}"))?;
    for file in FILES {
        let descriptors = compile(protos, file)?;
        tonic_prost_build::configure()
            .build_transport(false)
            .btree_map(".")
            .skip_debug(with_secrets(&descriptors))
            .emit_rerun_if_changed(false)
            .out_dir(folder.path())
            .compile_fds_with_config(descriptors, prost_build::Config::new())
            .map_err(|e| format!("making the code of {file}: {e}"))?;
    }
    read(folder.path())
}

/// Reads one file and what it imports. Comments stay behind: their examples are no Rust, and would be
/// run as tests of the documentation.
fn compile(protos: &Path, file: &str) -> Result<FileDescriptorSet> {
    let refused = |e: protox::Error| format!("reading {PROTOS}/{file}: {e}");
    let path: PathBuf = protos.join(file);
    let mut compiler = Compiler::new([protos]).map_err(refused)?;
    compiler.include_source_info(false).include_imports(true).open_file(path).map_err(refused)?;
    Ok(compiler.file_descriptor_set())
}

/// The messages that carry secrets: they get no `Debug`.
fn with_secrets(descriptors: &FileDescriptorSet) -> Vec<String> {
    let mut found = Vec::new();
    for file in &descriptors.file {
        for message in &file.message_type {
            if message.field.iter().any(|field| field.name() == SECRETS) {
                found.push(format!(".{}.{}", file.package(), message.name()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(files: &[(&str, &str)]) -> Code {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn every_difference_is_named_with_its_remedy() {
        let wanted = code(&[("a.rs", "1"), ("b.rs", "2"), ("c.rs", "3")]);
        let found = code(&[("a.rs", "1"), ("b.rs", "x"), ("d.rs", "4")]);

        let problems = compare(&wanted, &found);

        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, name) in problems.iter().zip(["b.rs", "c.rs", "d.rs"]) {
            assert!(problem.contains(name) && problem.contains("cargo xtask proto"), "{problem}");
        }
        assert!(compare(&wanted, &wanted).is_empty());
    }

    #[test]
    fn messages_with_secrets_cannot_be_printed() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            (
                FILES[0],
                "syntax = \"proto3\"; package csi.v1; message Open { string name = 1; }\n\
                 message Closed { map<string, string> secrets = 1; }\n",
            ),
            (FILES[1], "syntax = \"proto3\"; package pluginregistration; message A {}\n"),
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        let descriptors = compile(folder.path(), FILES[0]).unwrap();
        let code = generate(folder.path()).unwrap();

        assert_eq!(with_secrets(&descriptors), [".csi.v1.Closed"]);
        let text = &code["csi.v1.rs"];
        assert_eq!(text.matches("skip_debug").count(), 1, "{text}");
        assert!(text.contains("BTreeMap") && !text.contains("HashMap"), "{text}");
        assert!(code.contains_key("pluginregistration.rs"), "{:?}", code.keys());
    }

    #[test]
    fn generated_files_are_known_by_their_folder() {
        assert!(is_generated(&Path::new(CODE).join("csi.v1.rs")));
        assert!(!is_generated(Path::new("crates/hawser-api/src/csi/mod.rs")));
    }
}
