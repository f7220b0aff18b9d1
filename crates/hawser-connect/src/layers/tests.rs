use std::path::Path;

use hawser_core::attach::SingleWriter;
use hawser_core::{ByteSize, Change, Reason};
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{DiskSpec, Lun};

use super::reserve;

/// Two hosts that see one volume as `/dev/sdb`.
fn two_hosts() -> (FakeHost, FakeHost) {
    let volume = Lun::scsi("6001405aaaaaaaaaaaaaaaaaaaaaaaaa", ByteSize::mib(8));
    let host = |name: &str| {
        let host = FakeHost::new();
        host.kernel().set_initiator(name);
        host.kernel().disk(DiskSpec::new("sdb", &volume));
        host
    };
    (host("a"), host("b"))
}

fn disk() -> &'static Path {
    Path::new("/dev/sdb")
}

fn writer(key: u64, preempt: bool) -> SingleWriter {
    SingleWriter { key, preempt }
}

#[tokio::test]
async fn the_second_host_is_refused_until_the_first_gives_it_back() {
    let (a, b) = two_hosts();

    assert_eq!(reserve::take(&a, disk(), writer(1, false)).await.unwrap(), Change::Made(()));
    assert_eq!(reserve::take(&a, disk(), writer(1, false)).await.unwrap(), Change::Already(()));
    let refused = reserve::take(&b, disk(), writer(2, false)).await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::Reserved));
    assert_eq!(reserve::give_back(&a, disk(), 1).await.unwrap(), Change::Made(()));
    assert_eq!(reserve::give_back(&a, disk(), 1).await.unwrap(), Change::Already(()));
    assert_eq!(reserve::take(&b, disk(), writer(2, false)).await.unwrap(), Change::Made(()));
}

#[tokio::test]
async fn a_host_that_was_thrown_out_is_told_so() {
    let (a, b) = two_hosts();
    reserve::take(&a, disk(), writer(1, false)).await.unwrap();
    assert_eq!(reserve::problem(&a, disk(), 1).await.unwrap(), None);

    reserve::take(&b, disk(), writer(2, true)).await.unwrap();

    let problem = reserve::problem(&a, disk(), 1).await.unwrap().unwrap();
    assert!(problem.contains("0x2"), "{problem}");
    assert_eq!(reserve::problem(&b, disk(), 2).await.unwrap(), None);
    assert_eq!(reserve::give_back(&a, disk(), 1).await.unwrap(), Change::Already(()));
}

#[tokio::test]
async fn zero_is_no_key() {
    let (a, _) = two_hosts();

    let refused = reserve::take(&a, disk(), writer(0, false)).await.unwrap_err();

    assert_eq!(refused.reason(), Some(Reason::InvalidParameters));
}
