//! Changes that take long.

use hawser_core::operation::{Failure, OperationState};
use hawser_core::{Kind, Outcome};

use super::fake::*;
use crate::cli::{Exit, Interrupt};

fn slow() -> std::sync::Arc<FakeControl> {
    let control = FakeControl::new();
    control.steps.lock().unwrap().extend([
        operation(OperationState::Running, "copying", 0, 100),
        operation(OperationState::Running, "copying", 4, 100),
        operation(OperationState::Running, "copying", 57, 100),
        operation(OperationState::Waiting, "", 0, 0),
    ]);
    control
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_in_lines_where_nobody_watches() {
    let control = slow();
    control.steps.lock().unwrap().push_back(operation(OperationState::Succeeded, "", 0, 0));

    let ran = hawser(&control, "hawser volume create data --size 2GiB").await;

    assert_eq!(ran.exit, Exit::Done);
    assert_eq!(
        ran.err,
        "create volume data: copying: 0%\n\
         create volume data: copying: 50%\n\
         create volume data: the outcome is not known yet, trying again\n"
    );
    assert_eq!(ran.out, "volume data created: 2GiB ext4 in class default\n");
    assert_eq!(control.asked.lock().unwrap().len(), 1, "the request is not sent again");
}

#[tokio::test(start_paused = true)]
async fn a_failed_operation_is_the_commands_failure() {
    let control = slow();
    control.steps.lock().unwrap().push_back(failed(Failure {
        kind: Kind::NoSpace,
        outcome: Outcome::RolledBack,
        messages: vec!["creating volume data".into(), "the pool is full".into()],
        reason: None,
    }));

    let ran = hawser(&control, "hawser volume create data --size 2GiB -o json").await;

    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Failed, ""));
    let value: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(value["error"]["outcome"], "rolled_back");
    assert_eq!(value["error"]["message"], "creating volume data: the pool is full");
}

#[tokio::test(start_paused = true)]
async fn not_waiting_prints_the_operation() {
    let ran = hawser(&slow(), "hawser volume create data --size 2GiB --no-wait").await;
    assert_eq!(ran.exit, Exit::Done);
    assert!(ran.out.contains("operation wait op-01k5zzzzzzzzzzzzzzzzzzzzzz"), "{}", ran.out);
    let json = hawser(&slow(), "hawser volume delete data --no-wait -o json").await;
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(value["state"], "running");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_passes_leaves_the_operation_running() {
    let control = slow();
    control.steps.lock().unwrap().truncate(1);
    let ran = hawser(&control, "hawser volume create data --size 2GiB --wait 0s").await;
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("is not done yet; it goes on"), "{}", ran.err);
    assert!(ran.err.contains("hawser operation wait op-01k5"), "{}", ran.err);
}

fn soon() -> Interrupt {
    Box::pin(tokio::time::sleep(std::time::Duration::from_secs(60)))
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_says_that_the_operation_goes_on_and_how_to_look_at_it() {
    let ran = hawser_with(&slow(), "hawser volume create data --size 2GiB", soon).await;
    assert_eq!(ran.exit, Exit::Failed);
    assert!(
        ran.err.contains("operation op-01k5zzzzzzzzzzzzzzzzzzzzzz goes on: look with `hawser operation show op-01k5"),
        "{}",
        ran.err
    );

    let events = hawser_with(&FakeControl::new(), "hawser events --follow", soon).await;
    assert_eq!((events.exit, events.err.as_str()), (Exit::Done, ""));
}

#[tokio::test(start_paused = true)]
async fn an_operation_can_be_waited_for_shown_and_cancelled() {
    let control = slow();
    control.steps.lock().unwrap().push_back(operation(OperationState::Succeeded, "", 0, 0));
    let id = "op-01k5zzzzzzzzzzzzzzzzzzzzzz";

    let waited = hawser(&control, &format!("hawser operation wait {id}")).await;
    let shown = hawser(&FakeControl::new(), &format!("hawser operation show {id}")).await;
    let cancelled = hawser(&FakeControl::new(), &format!("hawser operation cancel {id}")).await;

    assert!(waited.out.contains("state:    succeeded"), "{}", waited.out);
    assert!(shown.out.contains("progress: copying 45%"), "{}", shown.out);
    assert!(cancelled.out.contains("progress: taking back"), "{}", cancelled.out);
}
