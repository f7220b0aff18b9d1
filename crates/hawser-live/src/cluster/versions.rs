//! What is pinned: the lines of `lab/cluster.versions`.

use sha2::{Digest, Sha256};

use super::error::{ClusterError, Result};

/// Part of every name in the cache: another way to build is another part.
const WAY: &str = "1";

/// A module, and what is taken of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// Its path.
    pub(super) path: String,
    /// Its version.
    pub(super) version: String,
    /// The version of what its `go.mod` takes from folders beside it.
    pub(super) local: Option<String>,
    /// Names of what is taken, each with where it is in the module and what it becomes.
    pub(super) items: Vec<Item>,
    /// Variables of the linker and their values.
    pub(super) stamps: Vec<(String, String)>,
}

/// Something that is taken of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// What it is called in the cache.
    pub(super) name: String,
    /// The package or folder in the module.
    pub(super) source: String,
    /// Whether it is built or copied.
    pub(super) kind: ItemKind,
}

/// What becomes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A package that is built to a program.
    Program,
    /// A folder that is copied.
    Files,
}

impl Module {
    /// The folder of the cache that has what is taken of it: another one for every other way to
    /// make it. What else is taken of it does not matter.
    pub(super) fn folder(&self) -> String {
        let mut hash = Sha256::new();
        let stamps = self.stamps.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        let words = [WAY, &self.path, &self.version, self.local.as_deref().unwrap_or_default()];
        for word in words.into_iter().chain(stamps) {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word.as_bytes());
        }
        let digits: String = hash.finalize()[..6].iter().map(|b| format!("{b:02x}")).collect();
        format!("{}-{}-{digits}", self.short_name(), self.version)
    }

    /// The last word of the path that is not a version.
    fn short_name(&self) -> &str {
        let is_version = |word: &&str| {
            let digits = word.strip_prefix('v').unwrap_or_default();
            digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        self.path.rsplit('/').find(is_version).unwrap_or(&self.path)
    }
}

/// Reads the file.
pub(super) fn parse(text: &str) -> Result<Vec<Module>> {
    let mut modules: Vec<Module> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let bare = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = bare.split_whitespace().collect();
        let wrong = || ClusterError::Versions { line: index + 1, text: line.to_owned() };
        if let ["module", path, version] = words[..] {
            modules.push(Module {
                path: path.to_owned(),
                version: version.to_owned(),
                local: None,
                items: Vec::new(),
                stamps: Vec::new(),
            });
            continue;
        }
        if words.is_empty() {
            continue;
        }
        let module = modules.last_mut().ok_or_else(wrong)?;
        let mut take = |name: &str, source: &str, kind| {
            let (name, source) = (name.to_owned(), source.to_owned());
            module.items.push(Item { name, source, kind });
        };
        match words[..] {
            ["local", version] => module.local = Some(version.to_owned()),
            ["program", name, package] => take(name, package, ItemKind::Program),
            ["files", name, folder] => take(name, folder, ItemKind::Files),
            ["stamp", name] => module.stamps.push((name.to_owned(), module.version.clone())),
            ["stamp", name, value] => module.stamps.push((name.to_owned(), value.to_owned())),
            _ => return Err(wrong()),
        }
    }
    Ok(modules)
}

/// The module that has something of this name, and the thing.
pub(super) fn find<'a>(modules: &'a [Module], name: &str) -> Result<(&'a Module, &'a Item)> {
    let items =
        modules.iter().flat_map(|module| module.items.iter().map(move |item| (module, item)));
    let mut named = items.filter(|(_, item)| item.name == name);
    named.next().ok_or_else(|| ClusterError::Unknown { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# words\nmodule example.org/a/v5 v5.1.0 # more\nprogram a ./cmd/a\n\
                        stamp main.version\nstamp main.minor 1\n\n\
                        module example.org/b v1.2.3\nlocal v0.2.3\nfiles c config/c\n";

    #[test]
    fn the_file_of_the_tree_can_be_read_and_names_each_thing_once() {
        let modules = parse(include_str!("../../../../lab/cluster.versions")).unwrap();
        let mut names: Vec<&str> =
            modules.iter().flat_map(|m| &m.items).map(|item| item.name.as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for name in ["csi-sanity", "kube-apiserver", "kubectl", "kubelet", "snapshot-crds"] {
            find(&modules, name).unwrap();
        }
    }

    #[test]
    fn lines_belong_to_the_module_above_them() {
        let modules = parse(TEXT).unwrap();
        let (module, item) = find(&modules, "a").unwrap();
        assert_eq!((module.version.as_str(), item.source.as_str()), ("v5.1.0", "./cmd/a"));
        let stamps = [("main.version", "v5.1.0"), ("main.minor", "1")];
        assert_eq!(module.stamps, stamps.map(|(name, value)| (name.into(), value.into())));
        let (module, item) = find(&modules, "c").unwrap();
        assert_eq!((module.local.as_deref(), item.kind), (Some("v0.2.3"), ItemKind::Files));
    }

    #[test]
    fn another_version_is_another_folder_and_another_program_is_not() {
        let folder = |text: &str| parse(text).unwrap()[0].folder();
        let one = folder("module example.org/a/v5 v5.1.0\nprogram a ./a\n");
        assert!(one.starts_with("a-v5.1.0-"), "{one}");
        assert_eq!(one, folder("module example.org/a/v5 v5.1.0\nprogram a ./a\nprogram b ./b\n"));
        assert_ne!(one, folder("module example.org/a/v5 v5.1.1\nprogram a ./a\n"));
        assert_ne!(one, folder("module example.org/a/v5 v5.1.0\nlocal v1\nprogram a ./a\n"));
    }

    #[test]
    fn a_line_that_is_not_understood_is_quoted_with_its_number() {
        let error = parse("module a v1\nprogram a\n").unwrap_err().to_string();
        assert_eq!(error, "lab/cluster.versions, line 2: \"program a\" is not understood");
        assert!(parse("program a ./a\n").is_err(), "nothing belongs to no module");
        let error = find(&parse(TEXT).unwrap(), "none").unwrap_err().to_string();
        assert!(error.ends_with("nothing named \"none\""), "{error}");
    }
}
