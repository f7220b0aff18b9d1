use std::sync::Arc;

use hawser_core::error::Kind;
use hawser_core::port::store::{Cas, Store};
use hawser_testkit::mem_store::MemStore;

use super::super::draft::DRAFT;
use super::super::hold::{Hold, Standing};
use super::super::record::{Record, VolumeRecord};
use super::super::records::Records;
use super::records::record;

struct Begun {
    store: Arc<MemStore>,
    records: Records,
    record: VolumeRecord,
    hold: Hold<VolumeRecord>,
}

fn begin() -> Begun {
    let store = Arc::new(MemStore::new());
    let records = Records::new(store.clone());
    let record = record();
    let draft = records.draft(&record.key(), &record).unwrap().expect("there is none");
    let operation = record.journal().expect("held").id.clone();
    let hold = Hold::draft(records.clone(), operation, record.clone(), draft);
    Begun { store, records, record, hold }
}

impl Begun {
    /// Another server records the same volume.
    async fn others_write(&self, record: &VolumeRecord) {
        let value = serde_json::to_vec(record).unwrap();
        let written = self.store.create(&self.record.key(), value.into()).await.unwrap();
        assert!(matches!(written, Cas::Done(_)));
    }

    async fn stored(&self) -> Option<VolumeRecord> {
        let found = self.store.get(&self.record.key()).await.unwrap()?;
        Some(serde_json::from_slice(&found.value).unwrap())
    }
}

#[tokio::test]
async fn a_draft_is_found_and_not_listed_and_goes_with_its_hold() {
    let Begun { records, record, hold, .. } = begin();
    let key = record.key();

    let (found, revision) = records.get::<VolumeRecord>(&key).await.unwrap().expect("found");
    assert_eq!((found.volume, revision), (record.volume.clone(), DRAFT));
    assert!(records.draft(&key, &record).unwrap().is_none(), "two of one key");
    let page = records.page::<VolumeRecord>(&VolumeRecord::prefix(), None, 10).await.unwrap();
    assert!(page.items.is_empty());
    assert!(records.put(&key, &record, revision).await.unwrap().is_none());
    assert_eq!(hold.reload().await.unwrap(), Standing::Held);

    drop(hold);
    assert!(records.get::<VolumeRecord>(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn the_first_save_creates_the_record_and_the_next_changes_it() {
    let begun = begin();

    assert!(begun.hold.unwritten_for().await.is_some());
    begun.hold.turn_back().await.unwrap();
    assert!(begun.hold.unwritten_for().await.is_none());
    assert!(begun.stored().await.expect("written").journal.expect("held").undoing);
    begun.hold.finish(|_| {}).await.unwrap();

    assert!(begun.stored().await.expect("written").journal.is_none());
    assert_eq!(begun.hold.reload().await.unwrap(), Standing::Ended);
}

#[tokio::test]
async fn what_another_server_recorded_first_is_neither_changed_nor_answered_for() {
    for journal in [None, record().journal] {
        let begun = begin();
        let theirs = VolumeRecord { journal, ..begun.record.clone() };
        begun.others_write(&theirs).await;

        for error in [
            begun.hold.finish(|_| {}).await.unwrap_err(),
            begun.hold.turn_back().await.unwrap_err(),
            begun.hold.remove().await.unwrap_err(),
        ] {
            assert!(error.is_unknown() && error.kind() == Kind::Unavailable, "{error:?}");
        }

        assert_eq!(begun.stored().await.map(|found| found.journal), Some(theirs.journal));
        assert_eq!(begun.hold.reload().await.unwrap(), Standing::TakenOver);
    }
}

#[tokio::test]
async fn a_record_in_the_store_ends_a_draft_for_good() {
    let begun = begin();
    let key = begun.record.key();
    begun.others_write(&begun.record).await;
    let (_, revision) = begun.records.get::<VolumeRecord>(&key).await.unwrap().expect("found");
    assert_ne!(revision, DRAFT);
    begun.records.delete(&key, revision).await.unwrap().expect("removed");

    // Whoever wrote and removed it may have removed the volume as well.
    assert!(begun.records.get::<VolumeRecord>(&key).await.unwrap().is_none());
    assert!(begun.hold.finish(|_| {}).await.is_err());
    assert_eq!(begun.hold.reload().await.unwrap(), Standing::TakenOver);
    assert!(begun.stored().await.is_none());
}
