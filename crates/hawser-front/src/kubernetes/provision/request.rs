//! What a claim asks of the driver.

use std::collections::BTreeMap;
use std::sync::Arc;

use hawser_api::csi::v1::{CapacityRange, CreateVolumeRequest, TopologyRequirement};

use crate::kubernetes::capability::Use;
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::names::{RESERVED, SELECTED_NODE};
use crate::kubernetes::objects::{Claim, CsiSource, Key, Object, SecretRef, StorageClass};
use crate::kubernetes::office::Office;
use crate::kubernetes::secrets::{self, Purpose};
use crate::kubernetes::{quantity, topology};

/// The parameters of a class that are for whoever makes the request, not for the driver.
const TAKEN: [&str; 17] = [
    "fstype",
    "secret-name",
    "secret-namespace",
    "provisioner-secret-name",
    "provisioner-secret-namespace",
    "controller-publish-secret-name",
    "controller-publish-secret-namespace",
    "node-stage-secret-name",
    "node-stage-secret-namespace",
    "node-publish-secret-name",
    "node-publish-secret-namespace",
    "controller-expand-secret-name",
    "controller-expand-secret-namespace",
    "node-expand-secret-name",
    "node-expand-secret-namespace",
    "controller-modify-secret-name",
    "controller-modify-secret-namespace",
];

/// A request, and what of the volume's object is known before the volume is.
pub(super) struct Wanted {
    pub(super) request: Arc<CreateVolumeRequest>,
    pub(super) csi: CsiSource,
    pub(super) deletion_secret: Option<SecretRef>,
    pub(super) modify_secret: Option<SecretRef>,
}

/// What the volume of a claim is called, here and at the driver.
pub(super) fn volume_name(claim: &Claim) -> String {
    format!("pvc-{}", claim.uid())
}

impl Wanted {
    /// Reads all that a request takes, in the order in which users can mend it.
    pub(super) async fn of(
        office: &Office,
        driver: &str,
        claim: &Claim,
        class: &StorageClass,
    ) -> Result<Self, ClusterError> {
        if claim.spec.selector.is_some() {
            let why =
                "a claim with a selector waits for a volume that is there; none is made for it";
            return Err(ClusterError::Wrong(why.into()));
        }
        let name = volume_name(claim);
        let requested = claim.requested().unwrap_or_default();
        let required = quantity::bytes(requested)
            .and_then(|bytes| i64::try_from(bytes).ok())
            .ok_or_else(|| ClusterError::Wrong(format!("{requested:?} is no size")))?;
        let used = Use {
            block: claim.is_block(),
            fs_type: fs_type(class)?,
            mount_flags: class.mount_options.clone(),
        };
        let secret = |purpose| secrets::of(class, purpose, &name, claim);
        let deletion_secret = secret(Purpose::Provision)?;
        let csi = CsiSource {
            driver: driver.to_owned(),
            fs_type: Some(used.fs_type.clone()).filter(|kind| !used.block && !kind.is_empty()),
            controller_publish_secret_ref: secret(Purpose::ControllerPublish)?,
            node_stage_secret_ref: secret(Purpose::NodeStage)?,
            node_publish_secret_ref: secret(Purpose::NodePublish)?,
            controller_expand_secret_ref: secret(Purpose::ControllerExpand)?,
            node_expand_secret_ref: secret(Purpose::NodeExpand)?,
            ..CsiSource::default()
        };
        let request = CreateVolumeRequest {
            volume_capabilities: used.each(&claim.spec.access_modes)?,
            capacity_range: Some(CapacityRange { required_bytes: required, limit_bytes: 0 }),
            parameters: parameters(class, claim, &name)?,
            mutable_parameters: attributes(office, driver, claim).await?,
            volume_content_source: super::source::of(office, driver, claim, required).await?,
            accessibility_requirements: places(office, driver, claim, class)?,
            secrets: office.secret(deletion_secret.as_ref()).await?,
            name: name.clone(),
        };
        Ok(Self {
            request: Arc::new(request),
            csi,
            deletion_secret,
            modify_secret: secret(Purpose::ControllerModify)?,
        })
    }
}

/// The file system that a class asks for; empty for whatever the driver makes.
fn fs_type(class: &StorageClass) -> Result<String, ClusterError> {
    let plain = class.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case("fstype"));
    let long = class.parameters.get(&format!("{RESERVED}fstype"));
    match (plain, long) {
        (Some(_), Some(_)) => {
            Err(ClusterError::Wrong(format!("class {} names its file system twice", class.name())))
        }
        (Some((_, kind)), None) | (None, Some(kind)) => Ok(kind.clone()),
        (None, None) => Ok(String::new()),
    }
}

/// The parameters for the driver, with who asks.
fn parameters(
    class: &StorageClass,
    claim: &Claim,
    volume: &str,
) -> Result<BTreeMap<String, String>, ClusterError> {
    let mut parameters = BTreeMap::new();
    for (key, value) in &class.parameters {
        match key.strip_prefix(RESERVED) {
            Some(word) if TAKEN.contains(&word) => {}
            Some(_) => {
                let message = format!("class {} has the unknown parameter {key}", class.name());
                return Err(ClusterError::Wrong(message));
            }
            None if key.eq_ignore_ascii_case("fstype") => {}
            None => {
                parameters.insert(key.clone(), value.clone());
            }
        }
    }
    let Key { namespace, name } = claim.key();
    for (key, value) in
        [("pvc/name", name), ("pvc/namespace", namespace), ("pv/name", volume.to_owned())]
    {
        parameters.insert(format!("{RESERVED}{key}"), value);
    }
    Ok(parameters)
}

/// The parameters that can be changed later.
async fn attributes(
    office: &Office,
    driver: &str,
    claim: &Claim,
) -> Result<BTreeMap<String, String>, ClusterError> {
    let Some(name) = claim.wanted_attributes() else { return Ok(BTreeMap::new()) };
    let Some(class) = office.attributes_class(name).await? else {
        return Err(ClusterError::NotYet(format!("there is no VolumeAttributesClass {name}")));
    };
    if class.driver_name != driver {
        let message = format!("VolumeAttributesClass {name} is for driver {}", class.driver_name);
        return Err(ClusterError::Wrong(message));
    }
    Ok(class.parameters.clone())
}

/// Where the volume must be reached from.
fn places(
    office: &Office,
    driver: &str,
    claim: &Claim,
    class: &StorageClass,
) -> Result<Option<TopologyRequirement>, ClusterError> {
    let tables = &office.tables;
    let Some(name) = claim.annotation(SELECTED_NODE) else {
        return topology::requirements(driver, class, None, claim.name());
    };
    let Some(node) = tables.nodes.named(name) else {
        // A claim names its volume when that was made, so it is somewhere, and no other node can be
        // chosen any more.
        if claim.volume_name().is_some() {
            return Ok(None);
        }
        return Err(ClusterError::NoNode(format!("node {name}, which was chosen, is gone")));
    };
    let silent = || ClusterError::NotYet(format!("node {name} lists no CSI driver yet"));
    let drivers = tables.csi_nodes.named(name).ok_or_else(silent)?;
    topology::requirements(driver, class, Some((&drivers, &node)), claim.name())
}
