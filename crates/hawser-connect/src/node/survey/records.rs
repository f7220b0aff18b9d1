//! One attachment record against the host: its state, device, mounts and freeze.

use std::time::Duration;

use hawser_core::attach::{AttachRecord, AttachState, Attached, Detach};
use hawser_core::doctor::{Finding, FindingCode};
use hawser_core::id::PublicationId;
use hawser_core::{Error, Result};

use super::super::NodeHalf;
use super::super::record::{Unknown, check_identity, expected, in_words};
use super::{finding, repaired};
use crate::library::{is_of_library, name_of};

/// A record whose lock is held for longer is being worked on and is no leftover.
const BUSY_AFTER: Duration = Duration::from_secs(1);

impl NodeHalf {
    pub(super) async fn survey_record(
        &self,
        publication: &PublicationId,
        fix: bool,
    ) -> Result<Vec<Finding>> {
        let alone = self.gates.try_enter(self.registry.as_ref(), publication, BUSY_AFTER).await?;
        let Some(_alone) = alone else { return Ok(Vec::new()) };
        let Some(mut record) = self.registry.get(publication).await? else {
            return Ok(Vec::new());
        };
        if !self.is_of_this_boot(&record).await? {
            return Ok(vec![restarted(&record)]);
        }
        if record.state != AttachState::Attached {
            return Ok(vec![self.half_made(record, fix).await]);
        }
        let mut findings = Vec::new();
        findings.extend(self.survey_frozen(&mut record, fix).await?);
        findings.extend(self.survey_mounts(&mut record, fix).await?);
        findings.extend(self.survey_device(&record).await);
        Ok(findings)
    }

    /// What programs attached through the library belongs to whoever looks after this host: the
    /// process that began it may be gone for good.
    fn is_ours(&self, record: &AttachRecord) -> bool {
        record.instance == self.instance || is_of_library(record)
    }

    async fn half_made(&self, record: AttachRecord, fix: bool) -> Finding {
        let found = match is_of_library(&record) {
            true => half_made_by_library(&record),
            false => finding(
                FindingCode::HalfMadeAttachment,
                &record.publication,
                format!(
                    "{}: volume {}, by {}; the process that did it was stopped or got no answer",
                    in_words(record.state),
                    record.volume,
                    record.instance
                ),
                if self.is_ours(&record) {
                    "repeat the attach or the detach; `--fix` takes it from this host"
                } else {
                    "it belongs to another instance: run `hawser doctor` with that one's state folder"
                },
            ),
        };
        if !self.is_ours(&record) {
            return found;
        }
        let result = match fix {
            true => Some(self.detach_record(record, &Detach::default()).await),
            false => None,
        };
        repaired(found, result)
    }

    async fn survey_frozen(&self, record: &mut AttachRecord, fix: bool) -> Result<Option<Finding>> {
        let Some(target) = record.frozen.clone() else { return Ok(None) };
        let publication = record.publication.clone();
        // Whoever holds the lock is taking a snapshot right now.
        if self.keeps_frozen(&publication) || !self.claim_frozen(&publication).await? {
            return Ok(None);
        }
        let found = finding(
            FindingCode::LeftFrozen,
            target.display(),
            format!(
                "writes to volume {} were stopped for a snapshot by {}, and the process that did it is gone: every program that writes there waits",
                record.volume, record.instance
            ),
            format!(
                "`fsfreeze --unfreeze {}` lets the writes go on; `--fix` does it for volumes of this instance",
                target.display()
            ),
        );
        if !self.is_ours(record) {
            self.release_frozen(&publication);
            return Ok(Some(found));
        }
        let result = match fix {
            true => Some(self.thaw_record(record).await.map(|_| ())),
            false => None,
        };
        self.release_frozen(&publication);
        Ok(Some(repaired(found, result)))
    }

    async fn survey_mounts(&self, record: &mut AttachRecord, fix: bool) -> Result<Vec<Finding>> {
        let table = self.table().await?;
        let mut findings = Vec::new();
        // Who attached a volume through the library mounts it as it likes.
        let managed = record.attached.as_ref().filter(|_| !is_of_library(record));
        if let Some(attached) = managed {
            for entry in table.all_of(attached) {
                if record.mounts.iter().all(|mount| mount.target != entry.target) {
                    findings.push(unrecorded(record, attached, &entry.target));
                }
            }
        }
        let missing: Vec<_> = record
            .mounts
            .iter()
            .map(|mount| mount.target.clone())
            .filter(|target| table.ours(record, target).is_none())
            .collect();
        for target in missing {
            let found = finding(
                FindingCode::RecordWithoutMount,
                target.display(),
                format!(
                    "the record of {} says that volume {} is mounted here, and it is not: it was unmounted by hand, or mounting was never finished",
                    record.publication, record.volume
                ),
                "mount the volume again, or unmount it with `hawser unmount`; `--fix` forgets the mount and removes the folder if it was made for it",
            );
            if !self.is_ours(record) {
                findings.push(found);
                continue;
            }
            let result = match fix {
                true => Some(self.forget_mount(record, &target).await),
                false => None,
            };
            findings.push(repaired(found, result));
        }
        Ok(findings)
    }

    async fn survey_device(&self, record: &AttachRecord) -> Option<Finding> {
        let attached = record.attached.as_ref()?;
        let recorded = attached.path();
        let without = |why: String| {
            Some(finding(
                FindingCode::RecordWithoutDevice,
                subject(record),
                format!("volume {} is recorded at {}, {why}", name_of(record), recorded.display()),
                "attach the volume again to bring it back, or detach it to forget it",
            ))
        };
        match self.lookup(record).await {
            Ok(None) => without("and is not there: it was taken away by hand".into()),
            Err(error) => without(unchecked(&error)),
            Ok(Some(found)) => {
                let (id, path) = (found.identity(), found.path());
                match check_identity(expected(record), id, path, Unknown::Refused) {
                    Err(wrong) => Some(finding(
                        FindingCode::IdentityMismatch,
                        path.display(),
                        format!("volume {} is expected here: {wrong}", name_of(record)),
                        "nothing is mounted, formatted, grown or detached there; find out what the device is, and remove it or detach the volume with the tools of its protocol",
                    )),
                    Ok(()) if path != recorded => {
                        without(format!("and is at {} now", path.display()))
                    }
                    Ok(()) => None,
                }
            }
        }
    }
}

/// What a finding about a whole record is filed under.
fn subject(record: &AttachRecord) -> String {
    match is_of_library(record) {
        true => name_of(record),
        false => record.publication.to_string(),
    }
}

fn half_made_by_library(record: &AttachRecord) -> Finding {
    let name = name_of(record);
    finding(
        FindingCode::HalfMadeAttachment,
        &name,
        format!(
            "{}: volume {name} over {}, by a program that used the host library; it was stopped or got no answer",
            in_words(record.state),
            record.info.protocol
        ),
        format!(
            "repeat `hawser connect` to have it, or `hawser disconnect --volume {name}` to be rid of it, which is what `--fix` does"
        ),
    )
}

fn unchecked(error: &Error) -> String {
    format!("and whether it is there cannot be told: {}", error.sentence())
}

fn restarted(record: &AttachRecord) -> Finding {
    finding(
        FindingCode::RecordWithoutDevice,
        subject(record),
        format!(
            "volume {} was attached before the host restarted, and nobody has attached it since",
            name_of(record)
        ),
        "attach the volume again to bring it back, or detach it to forget it",
    )
}

fn unrecorded(record: &AttachRecord, attached: &Attached, target: &std::path::Path) -> Finding {
    finding(
        FindingCode::MountWithoutRecord,
        target.display(),
        format!(
            "{} of volume {} is mounted here, and Hawser did not do it: a container or a person may use it; the volume cannot be detached while it is",
            attached.path().display(),
            record.volume
        ),
        format!("`umount {}` when nobody needs it; `--fix` does not do this", target.display()),
    )
}
