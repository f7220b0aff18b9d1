use hawser_testkit::fake_host::FakeHost;

use super::*;

/// The properties of a machine that a fixture describes.
async fn of(machine: &str, fixture: &str, wanted: PropertiesRequest) -> Result<Value> {
    let host = FakeHost::new();
    host.set_machine(machine);
    host.kernel().load(fixture);
    Ok(Value::Object(read(&host, &wanted, vec!["FIBRE_CHANNEL"]).await?))
}

const S390X: &str = include_str!("../../testdata/s390x.txt");
const PPC64LE: &str = include_str!("../../testdata/ppc64le.txt");

#[tokio::test]
async fn a_guest_of_ibm_z_tells_its_virtual_ports_and_its_own_uuid() {
    let all = of("s390x", S390X, PropertiesRequest::default()).await.unwrap();

    assert_eq!((&all["platform"], &all["machine"]), (&json!("S390"), &json!("s390x")));
    assert_eq!(all["os_type"], json!("LINUX"));
    assert_eq!(all["wwpns"], json!(["c05076ffe5005611", "c05076ffe5005711"]), "those online");
    assert_eq!(all["wwnns"], json!(["5005076400c7ec87"]));
    let uuid = "d2c5fe7d-0b5c-4a2f-9c1e-7f0a51d3b6e9";
    assert_eq!((&all["system uuid"], &all["system_uuid"]), (&json!(uuid), &json!(uuid)));
    assert_eq!(all["nqn"], json!(format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}")));
    assert_eq!(all["initiator"], json!("iqn.1994-05.com.example:z7"));
}

#[tokio::test]
async fn a_partition_of_power_tells_the_port_that_is_mapped_and_its_uuid() {
    let all = of("ppc64le", PPC64LE, PropertiesRequest::default()).await.unwrap();

    assert_eq!((&all["platform"], &all["machine"]), (&json!("PPC64"), &json!("ppc64le")));
    assert_eq!(all["wwpns"], json!(["c0507601d8120000"]));
    assert_eq!(all["system uuid"], json!("b8a5b9e2-6c3d-4f4e-8d0f-0c9a7f5e1d2c"));
    assert_eq!(all.get("initiator"), None);
}

#[tokio::test]
async fn the_other_spelling_says_the_same_on_every_machine() {
    for (machine, fixture, platform) in [("s390x", S390X, "S390"), ("ppc64", PPC64LE, "PPC64")] {
        let wanted = PropertiesRequest {
            camel_case: true,
            multipath: true,
            do_local_attach: true,
            platform: Some(platform.into()),
            os_type: Some("LINUX".into()),
            ..PropertiesRequest::default()
        };
        let all = of(machine, fixture, wanted).await.unwrap();

        assert_eq!((&all["platform"], &all["osType"]), (&json!(platform), &json!("LINUX")));
        assert_eq!((&all["doLocalAttach"], &all["multipath"]), (&json!(true), &json!(true)));
        assert!(all["wwpns"].is_array() && all.get("os_type").is_none(), "{all}");

        let wanted =
            PropertiesRequest { os_type: Some("WIN".into()), ..PropertiesRequest::default() };
        let error = of(machine, fixture, wanted).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::UnsupportedProtocol), "{error:?}");
        assert!(error.sentence().contains("WIN is not supported"), "{error:?}");
    }
}

#[test]
fn another_platform_and_another_system_are_refused_by_name() {
    let ask = |platform: Option<&str>, os: Option<&str>| {
        let wanted = PropertiesRequest {
            platform: platform.map(Into::into),
            os_type: os.map(Into::into),
            ..PropertiesRequest::default()
        };
        check(&wanted, Platform::S390).map_err(|error| error.sentence())
    };

    assert!(ask(None, None).is_ok());
    assert!(ask(Some("s390"), Some("linux")).is_ok());
    assert!(ask(Some("ALL"), Some("ALL")).is_ok());
    assert!(ask(Some("X86"), None).unwrap_err().contains("this host is S390, not X86"));
    assert!(ask(Some("VAX"), None).unwrap_err().contains("VAX"));
    assert!(ask(None, Some("WIN")).unwrap_err().contains("WIN is not supported"));
}

#[test]
fn keys_become_camel_case_but_for_the_one_with_a_blank() {
    let all = Map::from_iter([("os_type".to_owned(), json!(1)), ("system uuid".into(), json!(2))]);

    let keys: Vec<_> = camel(all).into_iter().map(|(key, _)| key).collect();

    assert_eq!(keys, ["osType", "system uuid"]);
}

hawser_testkit::fuzz_corpus!(corpus, "initiatorname", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    if let Some(name) = initiator_name(&text) {
        assert!(!name.contains('\n') && text.contains(name), "{name:?} was made up");
    }
});
