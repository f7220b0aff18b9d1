//! Dead mounts, silent servers, users, and calls whose end nobody knows.

use super::*;

#[tokio::test]
async fn a_dead_mount_of_ours_is_made_anew() {
    for errno in [107, 116] {
        let bench = Bench::new();
        bench.connect("volume-1").await.unwrap();
        bench.host.set_server(EXPORT, Server::Gone(errno));
        let record = bench.record("volume-1");
        assert!(!PLAIN.health(&bench.host, &record).await.unwrap().healthy);

        let again = bench.connect("volume-1").await.unwrap();

        assert_eq!(again, Change::Made(bench.file("volume-1")));
        assert_eq!(bench.mounts(), [bench.target()]);
        assert!(PLAIN.health(&bench.host, &record).await.unwrap().healthy);
    }
}

#[tokio::test]
async fn a_dead_mount_that_somebody_has_open_or_that_is_not_ours_stays() {
    let bench = Bench::new();
    bench.connect("volume-1").await.unwrap();
    bench.host.set_server(EXPORT, Server::Gone(107));
    bench.host.set_busy(&bench.target(), true);
    assert_eq!(bench.connect("volume-1").await.unwrap_err().kind(), Kind::Busy);

    let other = Bench::new();
    fs::create_dir(other.target()).unwrap();
    other.host.add_remote_mount(&other.target(), elsewhere(EXPORT, &other.share));
    other.host.set_server(EXPORT, Server::Gone(116));
    let error = other.connect("volume-1").await.unwrap_err();

    assert!(error.sentence().contains("Hawser did not make"), "{error:?}");
    assert_eq!(other.mounts(), [other.target()]);
}

#[tokio::test]
async fn a_silent_server_is_told_as_such_and_keeps_its_mount() {
    let bench = Bench::new();
    bench.connect("volume-1").await.unwrap();
    bench.host.set_server(EXPORT, Server::Silent);

    let error = bench.connect("volume-2").await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    let error = bench.disconnect("volume-1").await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    let ignored = Detach { ignore_errors: true, ..Detach::default() };
    assert!(bench.disconnect_with("volume-1", &ignored).await.is_err(), "only with force");
    assert_eq!(bench.mounts(), [bench.target()]);
    let health = PLAIN.health(&bench.host, &bench.record("volume-1")).await.unwrap();
    assert!(health.message.contains("did not answer"), "{health:?}");
}

#[tokio::test]
async fn a_forced_detach_from_a_silent_server_says_that_data_is_lost() {
    for ignore_errors in [false, true] {
        let bench = Bench::new();
        let before = bench.host.snapshot();
        bench.connect("volume-1").await.unwrap();
        bench.host.set_server(EXPORT, Server::Silent);

        let result = bench.disconnect_with("volume-1", &forced(ignore_errors)).await;

        match result {
            Ok(change) => assert!(ignore_errors && change.is_made()),
            Err(error) => {
                assert!(!ignore_errors, "{error:?}");
                assert_eq!(error.reason(), Some(Reason::DataLost), "{error:?}");
            }
        }
        assert_eq!(bench.host.snapshot(), before);
        assert_eq!(bench.disconnect("volume-1").await.unwrap(), Change::Already(()));
    }
}

#[tokio::test]
async fn a_forced_detach_leaves_a_mount_that_others_use() {
    let bench = Bench::new();
    bench.connect("volume-1").await.unwrap();
    bench.connect("volume-2").await.unwrap();
    bench.host.set_server(EXPORT, Server::Silent);

    let error = bench.disconnect_with("volume-1", &forced(false)).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    assert_eq!(bench.mounts(), [bench.target()]);
    assert_eq!(bench.disconnect("volume-1").await.unwrap(), Change::Already(()));
}

#[tokio::test]
async fn a_mount_in_use_is_busy_and_only_force_takes_it_out_of_the_tree() {
    let bench = Bench::new();
    let before = bench.host.snapshot();
    bench.connect("volume-1").await.unwrap();
    bench.host.set_busy(&bench.target(), true);

    let error = bench.disconnect("volume-1").await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    assert_eq!(bench.mounts(), [bench.target()]);
    assert!(!bench.connect("volume-1").await.unwrap().is_made(), "still attached");

    assert_eq!(bench.disconnect_with("volume-1", &forced(false)).await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.snapshot(), before);
}

#[tokio::test]
async fn a_volume_with_a_loop_device_over_it_is_busy_also_by_force() {
    let bench = Bench::new();
    bench.connect("volume-1").await.unwrap();
    // In the fake the file lies in the share; its path below the mount is only a name.
    let path = bench.target().join("volume-1");
    fs::write(&path, "data").unwrap();
    let (file, mark) = (path.clone(), "other".into());
    let request = LoopAttach { file, mark, read_only: false, sector_size: 512 };
    bench.host.attach_loop(&request).await.unwrap();

    for detach in [Detach::default(), forced(true)] {
        let error = bench.disconnect_with("volume-1", &detach).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
        assert!(error.sentence().contains("above it"), "{error:?}");
    }
    assert_eq!(bench.mounts(), [bench.target()]);
}

#[tokio::test]
async fn a_mount_that_may_still_come_stays_in_the_notes_and_is_called_unknown() {
    let bench = Bench::new();
    let before = bench.host.snapshot();
    let late = Error::new(Kind::Timeout, "a mount did not answer").with_outcome(Outcome::Unknown);
    bench.host.fail_next("run", late);

    let error = bench.connect("volume-1").await.unwrap_err();

    assert_eq!(error.outcome(), Outcome::Unknown, "{error:?}");
    // Now it comes.
    bench.host.add_remote_mount(&bench.target(), elsewhere(EXPORT, &bench.share));
    assert_eq!(bench.disconnect("volume-1").await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.snapshot(), before);
}
