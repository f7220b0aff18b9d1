use hawser_core::error::Kind;
use hawser_core::publication::PublishRequest;
use hawser_core::volume::Sharing;

use super::super::access_begin::add_publication;
use super::records::record;

fn wanted(node: &str, read_only: bool) -> PublishRequest {
    PublishRequest::new(node.parse().unwrap(), read_only)
}

#[test]
fn a_second_node_does_not_get_a_volume_with_one_writer() {
    let mut volume = record().volume;
    assert!(add_publication(&mut volume, &wanted("a", false)).unwrap());

    for read_only in [false, true] {
        let error = add_publication(&mut volume, &wanted("b", read_only)).unwrap_err();

        assert_eq!(error.kind(), Kind::Precondition);
        assert!(error.sentence().contains("node a"), "{}", error.sentence());
    }
    assert_eq!(volume.publications.len(), 1);
}

#[test]
fn readers_are_many_and_do_not_write() {
    let mut volume = record().volume;
    volume.sharing = Sharing::ManyReaders;

    assert!(add_publication(&mut volume, &wanted("a", true)).unwrap());
    assert!(add_publication(&mut volume, &wanted("b", true)).unwrap());
    let writer = add_publication(&mut volume, &wanted("c", false)).unwrap_err();

    assert_eq!(writer.kind(), Kind::Precondition);
}

#[test]
fn the_same_right_again_is_there_and_another_one_is_refused_with_both() {
    let mut volume = record().volume;
    add_publication(&mut volume, &wanted("a", false)).unwrap();

    assert!(!add_publication(&mut volume, &wanted("a", false)).unwrap());
    let error = add_publication(&mut volume, &wanted("a", true)).unwrap_err();

    assert_eq!(error.kind(), Kind::Exists);
    let message = error.sentence();
    assert!(message.contains("for writing") && message.contains("read-only"), "{message}");
}

#[test]
fn who_asks_for_one_node_alone_shares_with_no_other() {
    let alone = |node| PublishRequest { single_node: true, ..wanted(node, false) };
    let mut volume = record().volume;
    volume.sharing = Sharing::ManyWriters;
    assert!(add_publication(&mut volume, &alone("a")).unwrap());
    assert!(!add_publication(&mut volume, &alone("a")).unwrap());

    for other in [alone("b"), wanted("b", false), wanted("b", true)] {
        let error = add_publication(&mut volume, &other).unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition);
        assert!(error.sentence().contains("node a"), "{}", error.sentence());
    }

    volume.publications.clear();
    assert!(add_publication(&mut volume, &wanted("a", false)).unwrap());
    assert!(add_publication(&mut volume, &wanted("b", false)).unwrap());
    assert_eq!(add_publication(&mut volume, &alone("c")).unwrap_err().kind(), Kind::Precondition);
}
