use super::*;

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
