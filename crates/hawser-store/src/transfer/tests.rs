use std::io::{self, Cursor};
use std::sync::{Arc, Mutex};

use hawser_core::{Kind, Outcome};
use hawser_testkit::mem_store::MemStore;
use proptest::prelude::*;

use super::line::LONGEST_LINE;
use super::*;
use crate::LARGEST_VALUE;

/// A writer whose text can be looked at afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

async fn store_with(records: &[(&str, &[u8])]) -> MemStore {
    let store = MemStore::new();
    for (name, value) in records {
        let cas = store.create(&key(name), Bytes::copy_from_slice(value)).await.unwrap();
        assert!(matches!(cas, Cas::Done(_)));
    }
    store
}

async fn exported(store: &dyn Store) -> String {
    let text = Shared::default();
    export(store, text.clone()).await.unwrap();
    String::from_utf8(text.0.lock().unwrap().clone()).unwrap()
}

async fn import_text(store: &dyn Store, text: impl Into<Vec<u8>>) -> Result<Imported> {
    import(store, Cursor::new(text.into())).await
}

async fn contents(store: &dyn Store) -> Vec<(String, Bytes)> {
    let listing = store.list(&Prefix::all(), None, 10_000).await.unwrap();
    listing.items.into_iter().map(|(key, found)| (key.into(), found.value)).collect()
}

const HEADER: &str = "{\"hawser_store_export\":1}\n";

#[tokio::test]
async fn an_export_is_lines_of_json_without_secrets() {
    let store = store_with(&[
        ("blob", b"\0\xff"),
        ("secret/token", b"\"hidden\""),
        ("secretary", b"null"),
        ("volume/v1", b"{\"size\": 10, \"b\":1}"),
    ])
    .await;

    let text = exported(&store).await;

    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("{\"hawser_store_export\":1,"), "{}", lines[0]);
    assert_eq!(
        lines[1..],
        [
            r#"{"key":"blob","base64":"AP8="}"#,
            r#"{"key":"secretary","value":null}"#,
            r#"{"key":"volume/v1","value":{"size": 10, "b":1}}"#,
            r#"{"records":3}"#,
        ]
    );
}

#[tokio::test]
async fn odd_values_come_back_byte_for_byte() {
    let values: [&[u8]; 12] = [
        b"",
        b"null",
        b" 1",
        b"1\n",
        b"{\n  \"a\": 1\n}",
        b"{\"a\":1,\"a\":2}",
        b"123456789012345678901234567890",
        b"1.0e0",
        b"\"\\u0041\"",
        b"not json",
        b"\xff\xfe",
        b"[\r]",
    ];
    let names: Vec<String> = (0..values.len()).map(|n| format!("v/{n:02}")).collect();
    let records: Vec<_> = names.iter().map(String::as_str).zip(values).collect();
    let store = store_with(&records).await;
    let copy = MemStore::new();

    let imported = import_text(&copy, exported(&store).await).await.unwrap();

    assert_eq!(imported, Imported { written: 12, already: 0 });
    assert_eq!(contents(&copy).await, contents(&store).await);
}

#[tokio::test]
async fn more_records_than_a_page_come_over_whole() {
    let store = MemStore::new();
    for n in 0..PAGE * 2 + 7 {
        let _ = store.create(&key(&format!("v/{n}")), n.to_string().into()).await.unwrap();
    }
    let copy = MemStore::new();

    import_text(&copy, exported(&store).await).await.unwrap();

    assert_eq!(contents(&copy).await, contents(&store).await);
}

#[tokio::test]
async fn importing_again_completes_what_is_missing() {
    let text = exported(&store_with(&[("a", b"1"), ("b", b"2"), ("c", b"3")]).await).await;
    let store = store_with(&[("b", b"2"), ("secret/own", b"kept")]).await;

    let first = import_text(&store, text.clone()).await.unwrap();
    let second = import_text(&store, text).await.unwrap();

    assert_eq!(first, Imported { written: 2, already: 1 });
    assert_eq!(second, Imported { written: 0, already: 3 });
    assert_eq!(contents(&store).await.len(), 4);
}

#[tokio::test]
async fn a_store_with_something_else_is_refused_and_stays_as_it_is() {
    let text = exported(&store_with(&[("a", b"1"), ("b", b"2")]).await).await;
    for (name, value, hint) in [("b", "other", "another value"), ("z", "1", "not in the export")] {
        let store = store_with(&[(name, value.as_bytes())]).await;

        let error = import_text(&store, text.clone()).await.unwrap_err();

        assert_eq!((error.kind(), error.outcome()), (Kind::Precondition, Outcome::Nothing));
        assert!(error.sentence().contains(hint), "{error:?}");
        assert_eq!(contents(&store).await, [(name.into(), value.into())]);
    }
}

#[tokio::test]
async fn a_faulty_file_is_refused_with_its_line_and_writes_nothing() {
    let record = "{\"key\":\"a\",\"value\":1}\n";
    let huge = format!("{{\"key\":\"b\",\"value\":\"{}\"}}\n", "x".repeat(LONGEST_LINE));
    let large = format!("{{\"key\":\"b\",\"value\":\"{}\"}}\n", "x".repeat(LARGEST_VALUE));
    let long_key = format!("{{\"key\":\"{}\",\"value\":1}}\n", "x".repeat(513));
    let samples: Vec<(String, u64, &str)> = vec![
        (String::new(), 1, "not the header"),
        ("\n".into(), 1, "not the header"),
        (record.into(), 1, "not the header"),
        ("{\"hawser_store_export\":2}\n".into(), 1, "version 2"),
        (HEADER.into(), 2, "records are missing"),
        (format!("{HEADER}{record}"), 3, "records are missing"),
        (format!("{HEADER}{record}{{\"key\":\"b\",\"va"), 3, "no record"),
        (format!("{HEADER}{record}garbage\n"), 3, "no record"),
        (format!("{HEADER}{record}\n"), 3, "no record"),
        (format!("{HEADER}{record}{{\"key\":\"b\"}}\n"), 3, "needs a key"),
        (format!("{HEADER}{record}{{\"value\":1}}\n"), 3, "needs a key"),
        (
            format!("{HEADER}{record}{{\"key\":\"b\",\"value\":1,\"base64\":\"\"}}\n"),
            3,
            "needs a key",
        ),
        (format!("{HEADER}{record}{{\"key\":\"b\",\"value\":1,\"more\":1}}\n"), 3, "no record"),
        (format!("{HEADER}{record}{{\"key\":\"b\",\"base64\":\"?\"}}\n"), 3, "no base64"),
        (format!("{HEADER}{record}{{\"key\":\"../b\\u0000\",\"value\":1}}\n"), 3, "no usable key"),
        (format!("{HEADER}{record}{long_key}"), 3, "no usable key"),
        (format!("{HEADER}{record}{{\"key\":\"secret/b\",\"value\":1}}\n"), 3, "secret"),
        (format!("{HEADER}{record}{record}{{\"records\":2}}\n"), 3, "twice"),
        (format!("{HEADER}{record}{{\"records\":2}}\n"), 3, "counts 2 records"),
        (format!("{HEADER}{record}{{\"records\":1}}\n{record}"), 4, "follows the last line"),
        (format!("{HEADER}{record}{{\"records\":1}}\n{{\"records\":1}}\n"), 4, "follows the last"),
        (format!("{HEADER}{record}{huge}"), 3, "longer than"),
        (format!("{HEADER}{record}{large}"), 3, "larger than"),
    ];
    for (text, line, hint) in samples {
        let store = MemStore::new();
        let start: String = text.chars().take(200).collect();

        let error = import_text(&store, text).await.unwrap_err();

        let sentence = error.sentence();
        assert!(sentence.starts_with(&format!("line {line} ")), "{start}: {sentence}");
        assert!(sentence.contains(hint), "{start}: {sentence}");
        assert!(matches!(error.kind(), Kind::Invalid | Kind::Precondition), "{error:?}");
        assert_eq!(error.outcome(), Outcome::Nothing);
        assert!(contents(&store).await.is_empty(), "{start} left something");
    }
}

#[tokio::test]
async fn a_last_line_without_a_line_end_is_enough() {
    let store = MemStore::new();
    let text = format!("{HEADER}{{\"key\":\"a\",\"value\":1}}\n{{\"records\":1}}");

    assert_eq!(import_text(&store, text).await.unwrap().written, 1);
}

#[tokio::test]
async fn a_full_disk_is_reported_by_the_export() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let store = store_with(&[("a", b"1")]).await;

    assert_eq!(export(&store, Full).await.unwrap_err().kind(), Kind::NoSpace);
}

#[tokio::test]
async fn an_export_of_nothing_is_an_import_of_nothing() {
    let copy = MemStore::new();

    let imported = import_text(&copy, exported(&MemStore::new()).await).await.unwrap();

    assert_eq!(imported, Imported::default());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_or_imported_but_never_crash(
        text in proptest::collection::vec(any::<u8>(), 0..300),
        headed in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut whole = if headed { HEADER.as_bytes().to_vec() } else { Vec::new() };
        whole.extend(text);

        let store = MemStore::new();
        if runtime.block_on(import_text(&store, whole)).is_err() {
            prop_assert!(runtime.block_on(contents(&store)).is_empty());
        }
    }

    #[test]
    fn an_export_cut_anywhere_is_refused(cut in 0.0..1.0_f64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let text = exported(&store_with(&[("a", b"1"), ("b", b"\0"), ("c/d", b"{}")]).await).await;
            // The line end of the last line is the one byte that may be missing.
            let kept = ((text.len() - 1) as f64 * cut) as usize;
            let store = MemStore::new();
            assert!(import_text(&store, &text.as_bytes()[..kept]).await.is_err(), "{kept}");
            assert!(contents(&store).await.is_empty());
        });
    }

    #[test]
    fn any_value_comes_back(values in proptest::collection::vec(
        prop_oneof![proptest::collection::vec(any::<u8>(), 0..50), "[ \\[\\]{}\",:0-9a-z\\n]{0,30}".prop_map(String::into_bytes)],
        0..20,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let names: Vec<String> = (0..values.len()).map(|n| format!("v/{n}")).collect();
            let records: Vec<_> =
                names.iter().map(String::as_str).zip(values.iter().map(Vec::as_slice)).collect();
            let store = store_with(&records).await;
            let copy = MemStore::new();
            import_text(&copy, exported(&store).await).await.unwrap();
            assert_eq!(contents(&copy).await, contents(&store).await);
        });
    }
}
