//! PersistentVolumeClaims.

use hawser_core::Timestamp;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::meta::object;
use super::{Amounts, Meta, STORAGE};

/// Somebody's wish for a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Claim {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: ClaimSpec,
    pub(in crate::kubernetes) status: ClaimStatus,
}

/// What is wished for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct ClaimSpec {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) access_modes: Vec<String>,
    pub(in crate::kubernetes) volume_name: Option<String>,
    pub(in crate::kubernetes) storage_class_name: Option<String>,
    pub(in crate::kubernetes) volume_mode: Option<String>,
    pub(in crate::kubernetes) resources: Resources,
    pub(in crate::kubernetes) selector: Option<IgnoredAny>,
    pub(in crate::kubernetes) data_source: Option<DataSource>,
    pub(in crate::kubernetes) data_source_ref: Option<DataSource>,
    pub(in crate::kubernetes) volume_attributes_class_name: Option<String>,
}

/// How much.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Resources {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) requests: Amounts,
}

/// What the volume shall hold when it is new.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct DataSource {
    pub(in crate::kubernetes) api_group: Option<String>,
    pub(in crate::kubernetes) kind: String,
    pub(in crate::kubernetes) name: String,
    pub(in crate::kubernetes) namespace: Option<String>,
}

/// What has become of the wish.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct ClaimStatus {
    pub(in crate::kubernetes) phase: Option<String>,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) capacity: Amounts,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) conditions: Vec<Condition>,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) allocated_resources: Amounts,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) allocated_resource_statuses: Amounts,
    pub(in crate::kubernetes) current_volume_attributes_class_name: Option<String>,
    pub(in crate::kubernetes) modify_volume_status: Option<ModifyStatus>,
}

/// One thing that is true of it, or not.
#[derive(Clone, Debug, Default, Deserialize, serde::Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct Condition {
    #[serde(rename = "type")]
    pub(in crate::kubernetes) kind: String,
    pub(in crate::kubernetes) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) last_transition_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) last_probe_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) reason: Option<String>,
}

impl Condition {
    /// One that is true.
    pub(in crate::kubernetes) fn truth(kind: &str, message: impl Into<String>) -> Self {
        let message = Some(message.into()).filter(|message| !message.is_empty());
        Self { kind: kind.to_owned(), status: "True".to_owned(), message, ..Self::default() }
    }

    /// Conditions without those of some kinds, and with others that replace their likes. What is
    /// as true as it was is so since then.
    pub(in crate::kubernetes) fn merged(
        old: &[Self],
        without: &[&str],
        new: impl IntoIterator<Item = Self>,
    ) -> Vec<Self> {
        let mut all = old.to_vec();
        let new: Vec<_> = new.into_iter().collect();
        let is_new = |kind: &str| new.iter().any(|condition| condition.kind == kind);
        all.retain(|one| !without.contains(&one.kind.as_str()) || is_new(&one.kind));
        for mut condition in new {
            let place = all.iter().position(|one| one.kind == condition.kind);
            let old = place.map(|place| all[place].clone()).unwrap_or_default();
            condition.last_probe_time = old.last_probe_time;
            condition.last_transition_time = old
                .last_transition_time
                .filter(|_| old.status == condition.status && old.reason == condition.reason)
                .or_else(|| Some(Timestamp::now().to_string()));
            match place {
                Some(place) => all[place] = condition,
                None => all.push(condition),
            }
        }
        all
    }
}

/// How far a change of attributes is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct ModifyStatus {
    pub(in crate::kubernetes) target_volume_attributes_class_name: Option<String>,
    pub(in crate::kubernetes) status: String,
}

object!(Claim, "PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", NamespaceResourceScope);

impl Claim {
    /// The volume that it names, or is bound to.
    pub(in crate::kubernetes) fn volume_name(&self) -> Option<&str> {
        self.spec.volume_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The storage class; the old way to name it still works.
    pub(in crate::kubernetes) fn class_name(&self) -> Option<&str> {
        use super::Object;
        self.annotation("volume.beta.kubernetes.io/storage-class")
            .or(self.spec.storage_class_name.as_deref())
            .filter(|name| !name.is_empty())
    }

    /// True when a device is wished for, not a file system.
    pub(in crate::kubernetes) fn is_block(&self) -> bool {
        self.spec.volume_mode.as_deref() == Some("Block")
    }

    /// How much is wished for, as it was written.
    pub(in crate::kubernetes) fn requested(&self) -> Option<&str> {
        self.spec.resources.requests.get(STORAGE).map(String::as_str)
    }

    /// True when it has its volume.
    pub(in crate::kubernetes) fn is_bound(&self) -> bool {
        self.status.phase.as_deref() == Some("Bound")
    }

    /// True when it says this of itself.
    pub(in crate::kubernetes) fn has_condition(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|one| one.kind == kind && one.status == "True")
    }

    /// The class of attributes that is wished for.
    pub(in crate::kubernetes) fn wanted_attributes(&self) -> Option<&str> {
        self.spec.volume_attributes_class_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The class of attributes that its volume has.
    pub(in crate::kubernetes) fn current_attributes(&self) -> Option<&str> {
        let name = self.status.current_volume_attributes_class_name.as_deref();
        name.filter(|name| !name.is_empty())
    }
}
