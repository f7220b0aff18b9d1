//! The contract, and what the settings do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hawser_core::ByteSize;
use hawser_core::class::Ability;
use hawser_core::port::Provider;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::Provision;
use hawser_core::volume::Access;
use hawser_core::{Kind, id::VolumeId};
use hawser_testkit::contract::provider::ProviderRig;
use hawser_testkit::fake_host::FakeHost;
use serde_json::{Value, json};

async fn open(settings: Value) -> hawser_core::Result<Arc<dyn Provider>> {
    let deps = crate::Deps::new("null".parse().expect("a legal name"), Arc::new(FakeHost::new()));
    crate::find("null")?.open(settings.as_object().expect("an object").clone(), &deps).await
}

struct NullRig(Arc<dyn Provider>);

async fn rig() -> Option<NullRig> {
    Some(NullRig(open(json!({ "capacity": "1TiB" })).await.expect("valid settings")))
}

#[async_trait]
impl ProviderRig for NullRig {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0)
    }

    fn size(&self) -> ByteSize {
        ByteSize::gib(1)
    }

    fn remembers(&self) -> bool {
        false
    }

    async fn reopen(&mut self) {}
}

mod contract {
    hawser_testkit::provider_contract!(super::rig());
}

#[tokio::test]
async fn unknown_settings_are_refused() {
    let error = open(json!({ "latencyy": 5 })).await.err().expect("a typing error");

    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.sentence().contains("latencyy"), "{error:?}");
}

#[tokio::test]
async fn a_call_takes_as_long_as_the_settings_say() {
    let provider = open(json!({ "latency": 30 })).await.expect("valid settings");
    let wanted = Provision {
        id: VolumeId::generate(),
        size: ByteSize::gib(1),
        access: Access::Block,
        source: None,
        parameters: Default::default(),
        place: None,
    };
    let started = Instant::now();

    provider.create(&wanted, &Silent).await.expect("it always succeeds");

    assert!(started.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn it_can_do_all_that_needs_no_memory() {
    let provider = open(json!({})).await.expect("no settings are needed");

    let can = provider.abilities();

    for ability in
        [Ability::Snapshots, Ability::Clones, Ability::Expand, Ability::Capacity, Ability::Groups]
    {
        assert!(can.contains(&ability), "{ability:?}");
    }
}
