//! The store against an API server in memory. `hawser-live/tests/cluster_store.rs` runs the same
//! contract against a real one.

mod fake;
mod faults;
mod others;

use super::*;
use fake::{FakeApi, Fault, NAMESPACE};
use hawser_testkit::contract::store::StoreRig;

async fn rig() -> StoreRig {
    let fake = FakeApi::new();
    StoreRig::new(CHANGES_KEPT, move || {
        let fake = fake.clone();
        Box::pin(async move { Arc::new(open(&fake).await) as Arc<dyn Store> })
    })
    .await
}

hawser_testkit::store_contract!(rig().await);

async fn open(fake: &FakeApi) -> Kubernetes {
    let opened = Kubernetes::with_client(fake.client(), NAMESPACE.into()).await;
    opened.unwrap_or_else(|error| panic!("{error}"))
}

fn key(text: &str) -> Key {
    text.parse().expect("a legal key")
}

fn done(cas: Result<Cas>) -> Revision {
    match cas.expect("the store answers") {
        Cas::Done(revision) => revision,
        Cas::Conflict => panic!("a conflict where none can be"),
    }
}

async fn next(watch: &mut BoxStream<'static, Result<Watched>>) -> Watched {
    let next = futures_util::StreamExt::next(watch);
    let next = timeout(std::time::Duration::from_secs(10), next).await.expect("it stays silent");
    next.expect("it goes on").expect("it works")
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.items.iter().map(|(key, _)| key.as_str()).collect()
}
