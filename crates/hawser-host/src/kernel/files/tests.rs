use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use hawser_core::{Classify, Kind, Outcome};

use super::*;

const SOON: Duration = Duration::from_secs(10);

fn files(run_dir: &Path) -> LinuxFiles {
    LinuxFiles::new(Workers::new(4), SOON, run_dir.into())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn files_of_the_kernel_are_read_and_listed() {
    let files = files(Path::new("/run"));

    let kernel = files.read_text(Path::new("/proc/sys/kernel/ostype")).unwrap();
    let names = files.list(Path::new("/proc/self")).unwrap();
    let device = files.device_number(Path::new("/dev/null")).unwrap();

    assert_eq!(kernel.as_deref(), Some("Linux"));
    assert!(names.contains(&"status".into()) && names.is_sorted(), "{names:?}");
    assert_eq!(device, None, "not a block device");
    assert_eq!(files.run_dir(), Path::new("/run"));
}

#[test]
fn what_is_not_there_is_none_and_no_error() {
    let files = files(Path::new("/run"));

    for path in ["/sys/no/such/file", "/proc/version/below-a-file"] {
        let path = Path::new(path);
        assert_eq!(files.read(path).unwrap(), None);
        assert!(files.list(path).unwrap().is_empty());
        assert_eq!(files.resolve(path).unwrap(), None);
        assert_eq!(files.device_number(path).unwrap(), None);
    }
}

#[test]
fn what_cannot_be_read_is_an_error_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let (large, looping) = (dir.path().join("large"), dir.path().join("loop"));
    fs::write(&large, vec![b'x'; (1 << 20) + 1]).unwrap();
    symlink(&looping, &looping).unwrap();
    let files = files(dir.path());

    assert!(files.read(&large).unwrap_err().to_string().contains("larger"));
    fs::write(&large, vec![b'x'; 1 << 20]).unwrap();
    assert_eq!(files.read(&large).unwrap().unwrap().len(), 1 << 20);
    let errno = |result: Result<_, KernelError>| result.unwrap_err().errno();
    assert_eq!(errno(files.read(dir.path()).map(drop)), Some(Errno::ISDIR.raw_os_error()));
    assert_eq!(errno(files.resolve(&looping).map(drop)), Some(Errno::LOOP.raw_os_error()));
    assert_eq!(errno(files.read(Path::new("x")).map(drop)), Some(Errno::INVAL.raw_os_error()));
}

#[test]
fn a_pipe_without_a_writer_does_not_hold_up_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();

    assert_eq!(files(dir.path()).read(&pipe).unwrap(), Some(Vec::new()));
}

#[tokio::test]
async fn a_write_is_whole_in_place_and_never_makes_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (there, absent) = (dir.path().join("there"), dir.path().join("absent"));
    fs::write(&there, "0123456789").unwrap();
    let files = files(dir.path());

    files.write(&there, b"abc", SOON).await.unwrap();
    let missing = files.write(&absent, b"abc", SOON).await.unwrap_err();

    assert_eq!(fs::read_to_string(&there).unwrap(), "abc3456789");
    assert_eq!((missing.kind(), missing.errno()), (Kind::NotFound, Some(2)));
    assert!(!absent.exists());
}

#[tokio::test]
async fn an_answer_is_read_through_the_descriptor_that_asked() {
    // The kernel answers a thread's new name only to who opens the file of that thread.
    let file = Path::new("/proc/thread-self/comm");

    let answer = files(Path::new("/run")).exchange(file, b"hawser-asks", SOON).await.unwrap();

    assert_eq!(answer, b"hawser-asks\n");
}

#[tokio::test]
async fn what_is_written_is_in_no_error() {
    let files = files(Path::new("/run"));

    let error = files.write(Path::new("/proc/version"), b"hunter2", SOON).await.unwrap_err();

    let sentence = hawser_core::Error::from(error).sentence();
    assert!(sentence.starts_with("writing to /proc/version"), "{sentence}");
    assert!(!sentence.contains("hunter2"));
}

#[tokio::test]
async fn a_write_that_hangs_is_answered_as_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();

    let late = files(dir.path()).write(&pipe, b"x", Duration::from_millis(50)).await.unwrap_err();

    assert_eq!((late.kind(), late.outcome()), (Kind::Timeout, Outcome::Unknown));
    // Lets the thread go.
    drop(fs::File::open(&pipe).unwrap());
}

#[tokio::test]
async fn a_control_request_answers_what_the_driver_filled_in() {
    let files = files(Path::new("/run"));
    // `RNDGETENTCNT`
    let answer =
        files.control(Path::new("/dev/urandom"), 0x8004_5200, vec![0xff; 4], SOON).await.unwrap();

    assert_ne!(answer, [0xff; 4]);
    let refused = files.control(Path::new("/dev/null"), 0x8004_5200, vec![0; 4], SOON).await;
    assert_eq!(refused.unwrap_err().errno(), Some(Errno::NOTTY.raw_os_error()));
}

#[tokio::test]
async fn a_settings_file_is_replaced_as_a_whole_with_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (file, open) = (dir.path().join("a/b/file"), dir.path().join("c/file"));
    let files = files(dir.path());

    files.store(&file, b"one", 0o600).await.unwrap();
    files.store(&file, b"two", 0o600).await.unwrap();
    files.store(&open, b"all may read", 0o644).await.unwrap();

    assert_eq!(fs::read(&file).unwrap(), b"two");
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_eq!((mode(&open), mode(open.parent().unwrap()) & 0o700), (0o644, 0o700));
    assert_eq!(files.list(file.parent().unwrap()).unwrap(), ["file"], "a draft is left");
}

#[tokio::test]
async fn a_link_is_replaced_and_what_it_leads_to_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (link, other) = (dir.path().join("link"), dir.path().join("other"));
    fs::write(&other, "other").unwrap();
    symlink(&other, &link).unwrap();

    files(dir.path()).store(&link, b"new", 0o600).await.unwrap();

    assert_eq!(fs::read(&other).unwrap(), b"other");
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
}

#[tokio::test]
async fn a_failed_store_leaves_the_old_file_and_no_draft() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir_all(folder.join("inner")).unwrap();
    let files = files(dir.path());

    assert!(files.store(&folder, b"x", 0o600).await.is_err(), "a folder is no file");

    assert_eq!(files.list(dir.path()).unwrap(), ["folder"]);
}

#[tokio::test]
async fn what_a_process_that_died_was_writing_is_removed_and_what_another_writes_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("inner")).unwrap();
    let drafts = [".hawser.7.0.new", ".hawser.8.0.new", "inner/.hawser.7.1.new"];
    for name in drafts.into_iter().chain([".hawser.conf", "record"]) {
        fs::write(path(name), "x").unwrap();
    }
    let writing = fs::File::open(path(".hawser.8.0.new")).unwrap();
    rustix::fs::flock(&writing, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let files = files(dir.path());

    files.settled(dir.path()).await.unwrap();

    let left = files.list(dir.path()).unwrap();
    assert_eq!(left, [".hawser.8.0.new", ".hawser.conf", "inner", "record"]);
    assert!(files.list(&path("inner")).unwrap().is_empty());
    files.settled(&path("no/such/folder")).await.unwrap();
}

#[tokio::test]
async fn racing_makers_make_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new/file");
    let files = Arc::new(files(dir.path()));
    let racers: Vec<_> = (0..8_u8)
        .map(|number| {
            let (files, file) = (Arc::clone(&files), file.clone());
            tokio::spawn(async move { files.create(&file, &[number; 100], 0o640).await.unwrap() })
        })
        .collect();

    let mut made = 0;
    for racer in racers {
        made += usize::from(racer.await.unwrap());
    }

    assert_eq!(made, 1);
    let content = fs::read(&file).unwrap();
    assert!(content.len() == 100 && content.iter().all(|byte| *byte == content[0]));
    assert_eq!(mode(&file), 0o640);
    assert_eq!(files.list(file.parent().unwrap()).unwrap(), ["file"]);
}

#[tokio::test]
async fn files_links_and_empty_folders_are_removed_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("file"), "x").unwrap();
    fs::create_dir(path("empty")).unwrap();
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/file"), "x").unwrap();
    symlink(path("full"), path("link")).unwrap();
    let files = files(dir.path());

    for name in ["file", "empty", "link"] {
        assert!(files.remove(&path(name)).await.unwrap(), "{name}");
        assert!(!files.remove(&path(name)).await.unwrap(), "{name} twice");
    }
    let full = files.remove(&path("full")).await.unwrap_err();

    assert_eq!(full.errno(), Some(Errno::NOTEMPTY.raw_os_error()));
    assert!(path("full/file").exists());
}

#[tokio::test]
async fn a_removal_whose_caller_is_gone_takes_nothing_away_that_was_written_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("note");
    let files = files(dir.path());
    for round in 0..200 {
        files.store(&file, b"old", 0o600).await.unwrap();
        {
            let mut removal = std::pin::pin!(files.remove(&file));
            // Once: it has been handed to a worker and nobody waits for it.
            let _ = std::future::poll_fn(|context| {
                std::task::Poll::Ready(removal.as_mut().poll(context).is_ready())
            })
            .await;
        }
        files.store(&file, b"new", 0o600).await.unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new", "round {round}");
    }
}

#[tokio::test]
async fn a_file_whose_writer_gave_up_waiting_is_there_once_it_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    for round in 0..50 {
        let file = dir.path().join(format!("of/note{round}"));
        {
            let mut writing = std::pin::pin!(files.store(&file, b"new", 0o600));
            // Once: it has been handed to a worker and nobody waits for it.
            let _ = std::future::poll_fn(|context| {
                std::task::Poll::Ready(writing.as_mut().poll(context).is_ready())
            })
            .await;
        }
        files.settled(dir.path()).await.unwrap();
        assert!(file.exists(), "round {round}");
    }
}
