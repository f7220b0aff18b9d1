//! Every step at every failure point and at every place where a caller may go away.

use std::fs;
use std::os::unix::fs::MetadataExt;

use hawser_core::attach::{AttachState, Detach};
use hawser_core::filesystem::FormatState;
use hawser_core::port::Node;
use hawser_core::port::node::MountWork;
use hawser_core::{ByteSize, Result};
use hawser_testkit::fake_host::{HostState, When};

use super::rig::{Rig, drop_after};
use crate::node::NodeHalf;

/// One step in the life of a volume on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Attach,
    Format,
    Mount,
    Freeze,
    Thaw,
    Extend,
    Unmount,
    Detach,
}

/// What a volume is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// A file system, given to a group.
    Files,
    /// A device.
    Device,
    /// A device that is only read, although it may be written.
    Read,
}

const LIVES: [Life; 3] = [Life::Files, Life::Device, Life::Read];

impl Life {
    fn steps(self) -> impl Iterator<Item = Step> {
        let all = [
            Step::Attach,
            Step::Format,
            Step::Mount,
            Step::Freeze,
            Step::Thaw,
            Step::Extend,
            Step::Unmount,
            Step::Detach,
        ];
        // What its user puts on a device is not ours to make.
        all.into_iter().filter(move |step| self == Self::Files || *step != Step::Format)
    }

    fn work(self, rig: &Rig) -> MountWork {
        match self {
            Self::Files => MountWork { group: Some(own_group(rig)), ..rig.mount_work() },
            Self::Device => rig.raw_work(false),
            Self::Read => rig.raw_work(true),
        }
    }
}

/// One that this process may give something to.
fn own_group(rig: &Rig) -> u32 {
    fs::metadata(&rig.image).unwrap().gid()
}

const LARGER: ByteSize = ByteSize::mib(32);

async fn take(rig: &Rig, node: &NodeHalf, life: Life, step: Step) -> Result<()> {
    let id = &rig.publication;
    match step {
        Step::Attach => node.attach(&rig.attach_work()).await.map(|_| ()),
        // A repeated format is always one that the record says was started.
        Step::Format => node.format(&rig.format_work(FormatState::Started)).await.map(|_| ()),
        Step::Mount => node.mount(&life.work(rig)).await.map(|_| ()),
        Step::Freeze => node.freeze(id).await.map(|_| ()),
        Step::Thaw => node.thaw(id).await.map(|_| ()),
        Step::Extend => node.extend(id, LARGER).await.map(|_| ()),
        Step::Unmount => node.unmount(id, &rig.target()).await.map(|_| ()),
        Step::Detach => node.detach(id, &Detach::default()).await.map(|_| ()),
    }
}

/// A host just before a step, and what it held before the first.
async fn before(life: Life, step: Step) -> (Rig, HostState) {
    let rig = Rig::new();
    rig.grow_image(if step == Step::Extend { super::rig::SIZE } else { LARGER });
    let mut start = rig.host.snapshot();
    for earlier in life.steps().take_while(|earlier| *earlier != step) {
        take(&rig, &rig.node, life, earlier).await.unwrap_or_else(|e| panic!("{earlier:?}: {e:?}"));
    }
    if step == Step::Extend {
        rig.grow_image(LARGER);
        start.files.insert(rig.image.clone(), Some(LARGER.get()));
    }
    (rig, start)
}

/// What must hold after a step that is through.
fn check_done(rig: &Rig, life: Life, step: Step) {
    let state = rig.host.snapshot();
    let is_shown = !matches!(step, Step::Attach | Step::Format | Step::Unmount | Step::Detach);
    assert_eq!(!state.marked.is_empty(), life == Life::Read && is_shown, "{life:?} {step:?}");
    match step {
        Step::Attach => assert_eq!(rig.record().unwrap().state, AttachState::Attached),
        Step::Format | Step::Extend => {}
        Step::Mount => assert!(rig.is_mounted() && rig.record().unwrap().mounts[0].ready),
        Step::Freeze => assert_eq!(!state.frozen.is_empty(), life == Life::Files),
        Step::Thaw => {
            assert!(state.frozen.is_empty() && rig.record().unwrap().frozen.is_none());
        }
        Step::Unmount => {
            assert!(!rig.is_mounted() && rig.record().unwrap().mounts.is_empty());
        }
        Step::Detach => assert!(rig.record().is_none() && state.loops.is_empty()),
    }
}

/// Repeats the step with a node half, lives the rest of the life, and finds everything as it was.
async fn live_on(rig: &Rig, life: Life, step: Step, start: &HostState, at: &str) {
    let node = &rig.node;
    rig.check_journal();
    for next in life.steps().skip_while(|earlier| *earlier != step) {
        let taken = take(rig, node, life, next).await;
        taken.unwrap_or_else(|error| panic!("{at}, {next:?}: {error:?}"));
        check_done(rig, life, next);
        rig.check_journal();
    }
    assert_eq!(rig.host.snapshot(), *start, "{at}");
    assert!(rig.registry.records.lock().unwrap().is_empty(), "{at}");
    assert_eq!(node.survey(false).await.unwrap(), [], "{at}");
    assert_eq!(rig.node.gates.count(), 0, "{at}");
}

/// Every step of every life.
fn all_steps() -> impl Iterator<Item = (Life, Step)> {
    LIVES.into_iter().flat_map(|life| life.steps().map(move |step| (life, step)))
}

#[tokio::test]
async fn every_step_is_repeated_safely_after_any_host_call_failed() {
    let mut points = 0;
    for (life, step) in all_steps() {
        for when in [When::Before, When::After] {
            for nth in 0.. {
                let (rig, start) = before(life, step).await;
                rig.host.fail_call(nth, when);
                let result = take(&rig, &rig.node, life, step).await;
                let struck = rig.host.struck() > 0;
                rig.host.heal();
                if !struck {
                    result.unwrap();
                    break;
                }
                points += 1;
                let at = format!("{life:?} {step:?} with host call {nth} failing {when:?}");
                live_on(&rig, life, step, &start, &at).await;
            }
        }
    }
    assert!(points > 180, "only {points} failure points were met");
}

#[tokio::test]
async fn every_step_is_repeated_safely_after_the_host_broke_down() {
    for (life, step) in all_steps() {
        for nth in 0.. {
            let (rig, start) = before(life, step).await;
            rig.host.fail_from(nth, When::Before);
            let result = take(&rig, &rig.node, life, step).await;
            let struck = rig.host.struck() > 0;
            rig.host.heal();
            if !struck {
                result.unwrap();
                break;
            }
            let at = format!("{life:?} {step:?} with host calls failing from {nth}");
            live_on(&rig, life, step, &start, &at).await;
        }
    }
}

#[tokio::test]
async fn every_step_is_repeated_safely_after_any_registry_call_failed() {
    let mut points = 0;
    for (life, step) in all_steps() {
        for when in [When::Before, When::After] {
            for nth in 0.. {
                let (rig, start) = before(life, step).await;
                rig.registry.fail_call(nth, when);
                let result = take(&rig, &rig.node, life, step).await;
                if !rig.registry.heal() {
                    result.unwrap();
                    break;
                }
                points += 1;
                let at = format!("{life:?} {step:?} with registry call {nth} failing {when:?}");
                live_on(&rig, life, step, &start, &at).await;
            }
        }
    }
    assert!(points > 100, "only {points} failure points were met");
}

/// The caller goes away at every poll; then the same process goes on, or another one after a crash.
async fn drop_everywhere(crash: bool) {
    let mut places = 0;
    for (life, step) in all_steps() {
        for polls in 0.. {
            let (mut rig, start) = before(life, step).await;
            let done = drop_after(polls, take(&rig, &rig.node, life, step)).await;
            if let Some(result) = done {
                result.unwrap();
                break;
            }
            places += 1;
            rig.check_journal();
            let at = format!("{life:?} {step:?} dropped after {polls} polls, crash {crash}");
            if crash {
                rig.node = rig.restarted();
                rig.node.recover().await.unwrap();
                // What was frozen is thawed by now, so the repeated thaw finds nothing to do.
                assert!(rig.host.snapshot().frozen.is_empty(), "{at}");
            }
            live_on(&rig, life, step, &start, &at).await;
        }
    }
    assert!(places > 300, "only {places} places to be dropped at");
}

#[tokio::test]
async fn a_caller_may_go_away_at_any_moment() {
    drop_everywhere(false).await;
}

#[tokio::test]
async fn a_process_may_die_at_any_moment() {
    drop_everywhere(true).await;
}

#[tokio::test]
async fn what_a_dropped_attach_or_mount_left_is_taken_away_by_detach_and_doctor() {
    let steps = |(_, step): &(Life, Step)| matches!(step, Step::Attach | Step::Mount);
    for (life, step) in all_steps().filter(steps) {
        for polls in 0.. {
            let (rig, start) = before(life, step).await;
            if drop_after(polls, take(&rig, &rig.node, life, step)).await.is_some() {
                break;
            }

            rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();
            rig.node.detach(&rig.publication, &Detach::default()).await.unwrap();

            assert_eq!(rig.host.snapshot(), start, "{life:?} {step:?} after {polls} polls");
            assert!(rig.record().is_none());
        }
    }
}

#[tokio::test]
async fn what_a_dropped_attach_left_is_taken_away_by_the_doctor_alone() {
    for polls in 0.. {
        let (rig, start) = before(Life::Files, Step::Attach).await;
        if drop_after(polls, take(&rig, &rig.node, Life::Files, Step::Attach)).await.is_some() {
            break;
        }
        let was_attached = rig.record().is_some_and(|r| r.state == AttachState::Attached);

        rig.node.survey(true).await.unwrap();

        if !was_attached {
            assert_eq!(rig.host.snapshot(), start, "dropped after {polls} polls");
            assert!(rig.record().is_none());
        }
    }
}

#[tokio::test]
async fn what_a_dropped_mount_left_unfinished_is_taken_away_by_the_doctor_alone() {
    for life in LIVES {
        for polls in 0.. {
            let (rig, _) = before(life, Step::Mount).await;
            if drop_after(polls, take(&rig, &rig.node, life, Step::Mount)).await.is_some() {
                break;
            }

            rig.node.survey(true).await.unwrap();

            if !rig.is_mounted() {
                let state = rig.host.snapshot();
                assert!(state.marked.is_empty(), "{life:?} dropped after {polls} polls");
                assert!(!rig.target().exists() && rig.record().unwrap().mounts.is_empty());
            }
        }
    }
}
