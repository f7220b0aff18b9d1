//! Claims that had a volume, or name one.

use std::time::Duration;

use serde_json::{Value, json};

use super::{bound, phase, volume_of, warnings};
use crate::kubernetes::tests::rig::{DRIVER, Rig};

/// What the controller-manager makes of a claim whose volume is gone, or another's.
fn lose(rig: &Rig) {
    rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["status"] = json!({ "phase": "Lost" });
    });
}

/// A bound claim; answers where its volume is.
async fn had(rig: &Rig) -> String {
    rig.class("gold", DRIVER);
    let path = volume_of(&rig.claim("data", "gold", DRIVER));
    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    path
}

/// With another volume of that name, the application would find an empty disk, or the claim would take
/// the kept one with it.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_is_gone_gets_no_other_one() {
    for kept in [true, false] {
        let mut rig = Rig::running();
        let path = had(&rig).await;
        rig.api.update(&path, |volume| {
            volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        });
        let free =
            |volume: &Value| volume["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        let volume = rig.api.wait(&path, free).await;
        rig.api.delete(&path);
        if !kept {
            let handle = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap();
            rig.control.lose(handle);
        }

        lose(&rig);
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Nor does whoever comes next make one.
        rig.stop().await;
        rig.start();
        tokio::time::sleep(Duration::from_millis(500)).await;

        assert!(rig.api.object(&path).is_none());
        assert_eq!(rig.control.count(), usize::from(kept));
        let claim = rig.api.object("persistentvolumeclaims/shop/data").unwrap();
        assert_eq!(phase(&claim), "Lost");
        rig.api.delete("persistentvolumeclaims/shop/data");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(rig.control.count(), usize::from(kept));
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_cut_off_when_it_had_named_its_volume_gets_it() {
    let mut rig = Rig::new();
    rig.class("gold", DRIVER);
    let path = volume_of(&rig.claim("data", "gold", DRIVER));
    rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] = json!("yes");
        claim["spec"]["volumeName"] = json!(path.strip_prefix("persistentvolumes/").unwrap());
    });

    rig.start();

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.api.wait(&path, bound).await;
    rig.stop().await;
}

/// Whoever fills volumes has one made for a claim of its own, and gives it to the claim that waits.
#[tokio::test(start_paused = true)]
async fn a_volume_that_was_given_to_another_claim_is_no_trouble_of_the_first() {
    let mut rig = Rig::running();
    let path = had(&rig).await;
    rig.api.update(&path, |volume| {
        volume["spec"]["claimRef"]["name"] = json!("filled");
        volume["spec"]["claimRef"]["uid"] = json!("of-another");
    });
    rig.api.forget();

    lose(&rig);
    tokio::time::sleep(Duration::from_secs(2)).await;

    rig.stop().await;
    assert!(warnings(&rig.api).is_empty(), "{:?}", warnings(&rig.api));
    assert!(rig.api.writes().is_empty(), "{:?}", rig.api.writes());
}

/// The kubelet makes the file system grow when the claim is smaller than its volume.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_bound_again_has_the_size_from_before_its_volume_grew() {
    let mut rig = Rig::running();
    let path = had(&rig).await;
    rig.api.update(&path, |volume| {
        volume["spec"]["capacity"]["storage"] = json!("2Gi");
        volume["metadata"]["annotations"]["volume.alpha.kubernetes.io/pre-resize-capacity"] =
            json!("1Gi");
    });

    lose(&rig);

    let claim = rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    assert_eq!(claim["status"]["capacity"]["storage"], "1Gi");
    rig.stop().await;
}
