//! Storage on this host, for a control half elsewhere.

use async_trait::async_trait;
use hawser_core::name::ClassName;
use hawser_core::port::Pools;
use hawser_core::port::pools::{PoolAnswer, PoolCall};
use hawser_core::{Classify, Kind, Result};

use super::NodeHalf;

/// Why a call on storage of this host is refused.
#[derive(Debug, thiserror::Error)]
enum PoolsError {
    #[error("node {node} has no class {class}: it has {known}")]
    NoClass { node: String, class: ClassName, known: String },
}

impl Classify for PoolsError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoClass { .. } => Kind::Precondition,
        }
    }
}

#[async_trait]
impl Pools for NodeHalf {
    async fn call(&self, class: &ClassName, call: PoolCall) -> Result<PoolAnswer> {
        let Some(provider) = self.pools.get(class) else {
            let known: Vec<_> = self.pools.keys().map(ClassName::as_str).collect();
            let (node, class, known) = (self.id.to_string(), class.clone(), known.join(", "));
            return Err(PoolsError::NoClass { node, class, known }.into());
        };
        call.run(provider.as_ref()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hawser_core::attach::Health;
    use hawser_core::connection::ConnectionInfo;
    use hawser_core::id::{InstanceId, VolumeId};
    use hawser_core::node::NodeRecord;
    use hawser_core::port::connector::Maturity;
    use hawser_core::port::provider::{ProviderInfo, Provision, Provisioned, VolumeAtProvider};
    use hawser_core::port::{Node, Progress, Provider};
    use hawser_core::volume::Access;
    use hawser_core::{ByteSize, Change};
    use hawser_testkit::fake_host::FakeHost;

    use super::*;
    use crate::FileRegistry;
    use crate::node::NodeParts;

    /// Makes nothing, and has no ability.
    struct Plain;

    static INFO: ProviderInfo =
        ProviderInfo { name: "plain", maturity: Maturity::Preview, summary: "for tests" };

    #[async_trait]
    impl Provider for Plain {
        fn info(&self) -> &'static ProviderInfo {
            &INFO
        }

        fn handle(&self, id: &VolumeId) -> String {
            id.to_string()
        }

        fn default_access(&self) -> Access {
            Access::Block
        }

        async fn check(&self, wanted: &Provision) -> Result<ByteSize> {
            Ok(wanted.size)
        }

        async fn create(
            &self,
            wanted: &Provision,
            _progress: &dyn Progress,
        ) -> Result<Change<Provisioned>> {
            let (handle, size) = (self.handle(&wanted.id), wanted.size);
            Ok(Change::Made(Provisioned { handle, size, identity: None }))
        }

        async fn delete(&self, _volume: &VolumeAtProvider) -> Result<Change<()>> {
            Ok(Change::Already(()))
        }

        async fn publish(
            &self,
            _volume: &VolumeAtProvider,
            _node: &NodeRecord,
            _read_only: bool,
        ) -> Result<ConnectionInfo> {
            Ok(serde_json::from_str(r#"{"driver_volume_type":"plain","data":{}}"#).unwrap())
        }

        async fn unpublish(
            &self,
            _volume: &VolumeAtProvider,
            _node: &NodeRecord,
        ) -> Result<Change<()>> {
            Ok(Change::Already(()))
        }

        async fn health(&self, _volume: &VolumeAtProvider) -> Result<Health> {
            Ok(Health::good())
        }
    }

    fn half(pools: Vec<(ClassName, Arc<dyn Provider>)>) -> NodeHalf {
        let host = Arc::new(FakeHost::new());
        let (run, locks) = (host.dir().join("run"), host.dir().join("locks"));
        NodeHalf::new(NodeParts {
            id: "host-a".parse().unwrap(),
            instance: InstanceId::generate(),
            host,
            connectors: crate::CONNECTORS.into(),
            registry: Arc::new(FileRegistry::open(&run, &locks).unwrap()),
            pools,
        })
    }

    fn class(name: &str) -> ClassName {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn calls_reach_the_storage_of_their_class() {
        let node = half(vec![(class("fast"), Arc::new(Plain))]);
        let wanted = Provision {
            id: VolumeId::generate(),
            size: ByteSize::gib(1),
            access: Access::Block,
            source: None,
            parameters: Default::default(),
            place: None,
        };
        let pools = node.pools().expect("it has a class");

        let checked = pools.call(&class("fast"), PoolCall::Check(wanted.clone())).await.unwrap();
        assert_eq!(checked, PoolAnswer::Size(ByteSize::gib(1)));
        let made = pools.call(&class("fast"), PoolCall::Create(wanted.clone())).await.unwrap();
        let handle = wanted.id.to_string();
        let made_is = Provisioned { handle, size: ByteSize::gib(1), identity: None };
        assert_eq!(made, PoolAnswer::Created(Change::Made(made_is)));
    }

    #[tokio::test]
    async fn another_class_and_a_lacking_ability_are_refused_by_name() {
        let node = half(vec![(class("fast"), Arc::new(Plain))]);
        let pools = node.pools().expect("it has a class");

        let other = pools.call(&class("slow"), PoolCall::Capacity).await.unwrap_err();
        assert_eq!(other.kind(), Kind::Precondition);
        assert!(other.to_string().contains("no class slow: it has fast"), "{other}");
        let survey = PoolCall::Survey { fix: true };
        for call in [PoolCall::Capacity, PoolCall::List, survey, PoolCall::Blanks] {
            let error = pools.call(&class("fast"), call).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            assert!(error.to_string().contains("plain"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_node_without_classes_has_no_pools() {
        assert!(half(Vec::new()).pools().is_none());
    }
}
