//! What the lab runs: one line per test file.

use std::time::Duration;

use super::host::Stage;
use crate::cluster::Place;
use crate::process;

/// Every suite, in the order in which they run. The name is that of the file in `tests/`, which is
/// declared in `Cargo.toml` with `test = false`, because it must never run outside a guest.
pub static SUITES: &[Suite] = &[
    Suite::new("vm_smoke", Set::Core, minutes(3)).scratch(2, 256),
    // The longest ones first: others run beside them.
    Suite::new("vm_faults", Set::Full, minutes(20)),
    Suite::new("vm_targets", Set::Full, minutes(18)),
    Suite::new("vm_multipath", Set::Full, minutes(18)),
    Suite::new("vm_kernel", Set::Core, minutes(5)),
    Suite::new("vm_nvme_tcp", Set::Core, minutes(6)),
    Suite::new("vm_nvme_faults", Set::Full, minutes(8)),
    Suite::new("vm_nvme_dm", Set::Full, minutes(5)).kernel_args("nvme_core.multipath=N"),
    Suite::new("vm_nvme_rdma", Set::Full, minutes(4)),
    Suite::new("vm_nvme_fc", Set::Full, minutes(4)),
    Suite::new("vm_iscsi_core", Set::Core, minutes(5)),
    Suite::new("vm_iscsi", Set::Full, minutes(12)),
    Suite::new("vm_iser", Set::Full, minutes(7)),
    Suite::new("vm_fc", Set::Full, minutes(12)),
    Suite::new("vm_lio", Set::Full, minutes(4)).scratch(1, 256),
    Suite::new("vm_layers", Set::Full, minutes(12)),
    Suite::new("vm_library", Set::Full, minutes(10)).examples(&["attach"]).stage(callers),
    Suite::new("vm_nfs", Set::Core, minutes(9)),
    Suite::new("vm_nbd", Set::Core, minutes(7)),
    Suite::new("vm_local", Set::Full, minutes(8)).scratch(1, 512),
    Suite::new("vm_rbd", Set::Full, minutes(10)).image(Image::Full).memory_mib(3072),
    Suite::new("vm_aoe", Set::Full, minutes(8)).image(Image::Full),
    Suite::new("vm_smb", Set::Full, minutes(5)).image(Image::Full),
    Suite::new("vm_gluster", Set::Full, minutes(6)).image(Image::Full),
    Suite::new("vm_drbd", Set::Full, minutes(10)).image(Image::Full),
    Suite::new("vm_drbd_pair", Set::Full, minutes(4)).image(Image::Full).guests(2),
    Suite::new("vm_pair", Set::Full, minutes(3)).guests(2),
    Suite::new("vm_kills", Set::Soak, minutes(90)),
    Suite::new("vm_kills_full", Set::Soak, minutes(60)).image(Image::Full).memory_mib(3072),
    Suite::new("vm_soak", Set::Soak, minutes(60)),
];

/// Every bench that needs a guest: `benches/NAME`, run by `lab bench NAME`. Release builds, no
/// counts; what they print are figures.
pub static BENCHES: &[Suite] =
    &[Suite::new("connect", Set::Soak, minutes(45)).memory_mib(3072).python("os-brick")];

/// When a suite runs without being asked for by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// In `make test`, and with everything else in `make lab`.
    Core,
    /// In `make lab`.
    Full,
    /// In `make lab-soak`, and nowhere else.
    Soak,
}

impl Set {
    /// True when asking for this set runs the suites of the other one.
    pub fn holds(self, other: Self) -> bool {
        match self {
            Self::Core => other == Self::Core,
            Self::Full => other != Self::Soak,
            Self::Soak => other == Self::Soak,
        }
    }
}

/// Which packages the guest has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Those of `lab/packages.core`.
    Core,
    /// Those of `lab/packages.full` too.
    Full,
}

/// Scratch disks, all of one size; the guest finds them by [`super::guest::scratch`].
#[derive(Clone, Copy, Debug)]
pub struct Scratch {
    /// How many.
    pub count: u8,
    /// How large each one looks; it takes room as it is written.
    pub mib: u64,
}

/// One test file and the guest that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Its name in `tests/`.
    pub test: &'static str,
    /// When it runs.
    pub set: Set,
    /// What is installed in its guest.
    pub image: Image,
    /// How many guests run it at the same time; they reach each other as 10.99.0.1, 10.99.0.2.
    pub guests: u8,
    /// Processors of a guest.
    pub cpus: u8,
    /// Memory of a guest.
    pub memory_mib: u32,
    /// Disks of a guest that the tests may write.
    pub scratch: Scratch,
    /// What the kernel is told at boot beside the usual, such as `nvme_core.multipath=N`.
    pub kernel_args: &'static str,
    /// After which it is ended and has failed; the boot counts.
    pub limit: Duration,
    /// Packages for Python that the guest finds in `/job/python`: those of `lab/python.NAME`.
    pub python: Option<&'static str>,
    /// Examples of the library that are built for it; in the guest below `/job/target/examples`.
    pub examples: &'static [&'static str],
    /// Adds files of its own to `/job` of the guest.
    pub stage: Option<fn(&Stage) -> std::io::Result<()>>,
}

impl Suite {
    /// One guest with two processors, 2 GiB, the core packages and no disk to write on.
    pub const fn new(test: &'static str, set: Set, limit: Duration) -> Self {
        Self {
            test,
            set,
            image: Image::Core,
            guests: 1,
            cpus: 2,
            memory_mib: 2048,
            scratch: Scratch { count: 0, mib: 0 },
            kernel_args: "",
            limit,
            python: None,
            examples: &[],
            stage: None,
        }
    }

    /// With these packages.
    pub const fn image(self, image: Image) -> Self {
        Self { image, ..self }
    }

    /// In this many guests at once.
    pub const fn guests(self, guests: u8) -> Self {
        Self { guests, ..self }
    }

    /// With this many processors in each guest.
    pub const fn cpus(self, cpus: u8) -> Self {
        Self { cpus, ..self }
    }

    /// With this much memory in each guest.
    pub const fn memory_mib(self, memory_mib: u32) -> Self {
        Self { memory_mib, ..self }
    }

    /// With this many disks of this size.
    pub const fn scratch(self, count: u8, mib: u64) -> Self {
        Self { scratch: Scratch { count, mib }, ..self }
    }

    /// With this on the command line of its kernel.
    pub const fn kernel_args(self, kernel_args: &'static str) -> Self {
        Self { kernel_args, ..self }
    }

    /// With the Python packages of `lab/python.NAME`.
    pub const fn python(self, name: &'static str) -> Self {
        Self { python: Some(name), ..self }
    }

    /// With these examples of the library.
    pub const fn examples(self, examples: &'static [&'static str]) -> Self {
        Self { examples, ..self }
    }

    /// With what this function adds to the job; see [`Stage`].
    pub const fn stage(self, stage: fn(&Stage) -> std::io::Result<()>) -> Self {
        Self { stage: Some(stage), ..self }
    }
}

/// The callers of the library's socket in other languages: their sources, and what can be built.
fn callers(stage: &Stage) -> std::io::Result<()> {
    stage.add(&stage.repo().join("examples/python/attach.py"), "examples/attach.py")?;
    let target = stage.folder().join("examples/attach-go");
    let source = stage.repo().join("examples/go/attach.go");
    // The test of this example fails by name then; the others of its suite run.
    let Some(go) = Place::of_environment().go else { return Ok(()) };
    let mut go = process::command(go);
    go.args(["build", "-o"]).arg(&target).arg(&source).env("CGO_ENABLED", "0");
    // Whatever Go there is builds it: none is fetched.
    let status = go.env("GOTOOLCHAIN", "local").status()?;
    match status.success() {
        true => Ok(()),
        false => Err(std::io::Error::other(format!("go build: {status}"))),
    }
}

/// For the lines of the table.
pub const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// The suites of a set whose name holds the filter. A filter without a set looks everywhere; neither
/// means the core set.
pub fn choose(set: Option<Set>, filter: Option<&str>) -> Vec<&'static Suite> {
    let set = match (set, filter) {
        (None, None) => Some(Set::Core),
        (set, _) => set,
    };
    let in_set = |suite: &&Suite| set.is_none_or(|set| set.holds(suite.set));
    let named = |suite: &&Suite| filter.is_none_or(|filter| suite.test.contains(filter));
    SUITES.iter().filter(in_set).filter(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_its_file_and_is_declared_not_to_run_on_the_host() {
        let folder = env!("CARGO_MANIFEST_DIR");
        let manifest = std::fs::read_to_string(format!("{folder}/Cargo.toml")).unwrap();
        for suite in SUITES {
            let declared = format!("[[test]]\nname = \"{}\"\ntest = false\n", suite.test);
            assert!(manifest.contains(&declared), "Cargo.toml lacks:\n{declared}");
            let file = format!("{folder}/tests/{}.rs", suite.test);
            assert!(std::path::Path::new(&file).is_file(), "{file} is missing");
        }
    }

    #[test]
    fn every_bench_has_its_folder_and_its_packages() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for bench in BENCHES {
            assert!(folder.join("benches").join(bench.test).join("main.rs").is_file());
            let list = bench.python.map(|name| folder.join(format!("../../lab/python.{name}")));
            assert!(list.is_none_or(|list| list.is_file()));
        }
    }

    #[test]
    fn every_file_for_the_guest_is_in_the_table() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
        for entry in std::fs::read_dir(tests).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let Some(name) = name.strip_suffix(".rs").filter(|name| name.starts_with("vm_")) else {
                continue;
            };
            assert!(
                SUITES.iter().any(|suite| suite.test == name),
                "{name} is in no line of SUITES"
            );
        }
    }

    #[test]
    fn the_full_set_holds_the_core_set_and_no_soak() {
        assert!(Set::Full.holds(Set::Core) && Set::Full.holds(Set::Full));
        assert!(!Set::Full.holds(Set::Soak) && !Set::Core.holds(Set::Full));
        assert!(Set::Soak.holds(Set::Soak) && !Set::Soak.holds(Set::Core));
    }

    #[test]
    fn a_name_alone_is_looked_for_in_every_set() {
        assert!(choose(None, Some("vm_pair")).iter().any(|suite| suite.test == "vm_pair"));
        assert!(choose(Some(Set::Core), Some("vm_pair")).is_empty());
        assert!(choose(None, None).iter().all(|suite| suite.set == Set::Core));
    }
}
