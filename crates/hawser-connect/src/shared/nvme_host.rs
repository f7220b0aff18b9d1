//! The name and the id by which NVMe targets know this host: `/etc/nvme/hostnqn` and
//! `/etc/nvme/hostid`, shared with nvme-cli and every other NVMe tool.
//!
//! Both are made once, when they are missing, and belong together: recent kernels refuse one host
//! name with two ids and one id with two names.

use std::path::Path;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::{Files, LockMode};
use hawser_core::{Error, Kind};
use uuid::Uuid;

use super::error::AttachError;

const NQN_FILE: &str = "/etc/nvme/hostnqn";
const ID_FILE: &str = "/etc/nvme/hostid";

/// What every name that is made of a UUID begins with.
const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// The kernel takes names of fewer than 223 bytes.
const LONGEST_NQN: usize = 222;

/// Ids that firmware gives when nobody set one; half the world has them.
const NOBODYS: [Uuid; 3] =
    [Uuid::nil(), Uuid::max(), Uuid::from_u128(0x0300_0200_0400_0500_0006_0007_0008_0009)];

/// How NVMe targets know this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NvmeHost {
    /// The host NQN.
    pub(crate) nqn: String,
    /// The host id, a UUID in lower case with hyphens.
    pub(crate) id: String,
}

impl NvmeHost {
    /// What is suspicious about this name: that it was made on another machine, as in a copied disk
    /// image. Two hosts of one name take each other's sessions and reservations.
    pub(crate) fn warning(&self, system: Option<&str>) -> Option<String> {
        let machine = system.and_then(usable_uuid)?;
        let named = embedded_uuid(&self.nqn)?;
        (machine != named).then(|| {
            format!(
                "the NVMe host name {} was made on another machine than this one ({machine}); \
                 if this system was copied from another, give it a name of its own in {NQN_FILE} \
                 and {ID_FILE}",
                self.nqn
            )
        })
    }
}

/// Reads name and id, and makes what is missing: from the machine's UUID where it has one, else by
/// chance. `None` when something is missing and this process may not make it.
pub(crate) async fn read_or_create(
    host: &dyn Host,
    system: Option<&str>,
) -> Result<Option<NvmeHost>> {
    let files = host.files();
    if let (Some(nqn), Some(id)) = (read_nqn(files)?, read_id(files)?) {
        return Ok(Some(NvmeHost { nqn, id }));
    }
    // Two processes that make the files at once must make them of one UUID.
    let _lock = match host.locks().lock("nvme-host", LockMode::Exclusive).await {
        Ok(lock) => lock,
        Err(error) if error.kind() == Kind::Denied => return Ok(None),
        Err(error) => return Err(error),
    };
    match create(files, system).await {
        Ok(made) => Ok(Some(made)),
        Err(error) if error.kind() == Kind::Denied => Ok(None),
        Err(error) => Err(error.context("making the NVMe name of this host")),
    }
}

async fn create(files: &dyn Files, system: Option<&str>) -> Result<NvmeHost> {
    let (nqn, id) = (read_nqn(files)?, read_id(files)?);
    let known = nqn.as_deref().and_then(embedded_uuid).or(id.as_deref().and_then(usable_uuid));
    let uuid = known.or(system.and_then(usable_uuid)).unwrap_or_else(Uuid::new_v4);
    let nqn = match nqn {
        Some(nqn) => nqn,
        None => {
            let nqn = format!("{UUID_NQN}{uuid}");
            files.create(Path::new(NQN_FILE), format!("{nqn}\n").as_bytes(), 0o644).await?;
            // A tool that knows nothing of our lock may have been first.
            read_nqn(files)?.unwrap_or(nqn)
        }
    };
    let id = match id {
        Some(id) => id,
        None => {
            let id = embedded_uuid(&nqn).unwrap_or(uuid).to_string();
            files.create(Path::new(ID_FILE), format!("{id}\n").as_bytes(), 0o644).await?;
            read_id(files)?.unwrap_or(id)
        }
    };
    Ok(NvmeHost { nqn, id })
}

fn read_nqn(files: &dyn Files) -> Result<Option<String>> {
    let Some(text) = files.read_text(Path::new(NQN_FILE))? else { return Ok(None) };
    let nqn = first_line(&text);
    if is_nqn(nqn) { Ok(Some(nqn.to_owned())) } else { Err(unusable(NQN_FILE, "NVMe host name")) }
}

fn read_id(files: &dyn Files) -> Result<Option<String>> {
    let Some(text) = files.read_text(Path::new(ID_FILE))? else { return Ok(None) };
    match Uuid::parse_str(first_line(&text)) {
        Ok(uuid) => Ok(Some(uuid.to_string())),
        Err(_) => Err(unusable(ID_FILE, "NVMe host id")),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim()
}

fn unusable(file: &str, what: &str) -> Error {
    let advice = format!("{file} holds something else: repair it, or remove it to get a new one");
    AttachError::Missing { what: format!("a usable {what}"), advice }.into()
}

/// True for a name that the kernel takes whole: its options are separated by commas.
pub(crate) fn is_nqn(text: &str) -> bool {
    let legal = |c: char| c != ',' && !c.is_whitespace() && !c.is_control();
    text.starts_with("nqn.") && text.len() <= LONGEST_NQN && text.chars().all(legal)
}

/// The id that belongs to a name when nothing else says one: its UUID, or one made of it.
pub(crate) fn id_of(nqn: &str) -> String {
    use sha2::{Digest, Sha256};
    let made = || {
        let digest = Sha256::digest(nqn.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    };
    embedded_uuid(nqn).unwrap_or_else(made).to_string()
}

fn embedded_uuid(nqn: &str) -> Option<Uuid> {
    Uuid::parse_str(nqn.strip_prefix(UUID_NQN)?).ok()
}

fn usable_uuid(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text.trim()).ok().filter(|uuid| !NOBODYS.contains(uuid))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MACHINE: &str = "4c4c4544-0031-4810-8051-b4c04f4a3232";

    #[test]
    fn a_name_from_another_machine_is_warned_of() {
        let own = NvmeHost { nqn: format!("{UUID_NQN}{MACHINE}"), id: MACHINE.into() };
        let copied = NvmeHost { nqn: format!("{UUID_NQN}{}", Uuid::new_v4()), id: MACHINE.into() };
        let chosen = NvmeHost { nqn: "nqn.2020-01.org.example:h1".into(), id: MACHINE.into() };

        assert_eq!(own.warning(Some(&MACHINE.to_uppercase())), None);
        assert!(copied.warning(Some(MACHINE)).is_some_and(|w| w.contains(MACHINE)));
        assert_eq!(copied.warning(None), None, "a machine without an id is not compared");
        assert_eq!(copied.warning(Some("00000000-0000-0000-0000-000000000000")), None);
        assert_eq!(chosen.warning(Some(MACHINE)), None, "a name that somebody chose is his affair");
    }

    #[test]
    fn names_that_would_become_options_are_refused() {
        for bad in ["", "iqn.a", "nqn.a,hostid=1", "nqn.a b", "nqn.a\nb", &"nqn.".repeat(60)] {
            assert!(!is_nqn(bad), "{bad:?}");
        }
        assert!(is_nqn("nqn.2020-01.org.example:s1"));
    }

    #[test]
    fn a_name_without_a_uuid_always_gets_the_same_id() {
        assert_eq!(id_of(&format!("{UUID_NQN}{MACHINE}")), MACHINE);
        let made = id_of("nqn.2020-01.org.example:h1");
        assert_eq!(made, id_of("nqn.2020-01.org.example:h1"));
        assert_ne!(made, id_of("nqn.2020-01.org.example:h2"));
        assert!(Uuid::parse_str(&made).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_looked_at(text in "\\PC{0,300}") {
            let _ = (is_nqn(&text), id_of(&text), usable_uuid(&text));
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "nvme_host", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let line = first_line(&text);
        assert!(!is_nqn(line) || !line.contains([',', ' ', '\n']), "{line:?} adds an option");
        let _ = (embedded_uuid(line), usable_uuid(line), id_of(line));
    });
}
