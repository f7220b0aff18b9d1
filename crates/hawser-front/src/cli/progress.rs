//! Waiting for an operation, and showing how far it is.

use std::time::Duration;

use hawser_core::id::OperationId;
use hawser_core::operation::{Operation, OperationState};
use hawser_core::port::Control;
use hawser_core::port::control::Reply;
use hawser_core::{Change, Error, Kind, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::context::{Context, Underway, WaitFor};
use super::error::CliError;
use super::human::plain;
use super::output::Format;

/// How long a change may take before its progress is shown.
const FIRST_LOOK: Duration = Duration::from_millis(400);
/// How often a bar moves.
const BAR_LOOK: Duration = Duration::from_millis(250);
/// How often a log is told.
const LINE_LOOK: Duration = Duration::from_secs(2);
/// How long one request may stay open when nobody looks.
const QUIET_LOOK: Duration = Duration::from_secs(30);

/// What became of a change.
pub(super) enum Settled<T> {
    /// It is done.
    Done(Change<T>),
    /// It has begun, and that is all that was asked for.
    Begun(Box<Operation>),
}

impl Context<'_> {
    /// The wait of the first request of a change.
    pub(super) fn first_wait(&self) -> Duration {
        *self.underway.borrow_mut() = Underway::Sent;
        match self.wait {
            WaitFor::Nothing => Duration::ZERO,
            WaitFor::AtMost(limit) => limit.min(FIRST_LOOK),
            WaitFor::Done => FIRST_LOOK,
        }
    }

    /// Waits for a change as long as was asked for; `fetch` reads the object once it is done.
    pub(super) async fn settle<T>(
        &self,
        control: &dyn Control,
        reply: Reply<T>,
        fetch: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<Settled<T>, CliError> {
        let operation = match reply {
            Reply::Done(change) => return Ok(Settled::Done(change)),
            Reply::Pending(operation) => operation,
        };
        if self.wait == WaitFor::Nothing {
            return Ok(Settled::Begun(Box::new(operation)));
        }
        self.follow(control, operation).await?;
        Ok(Settled::Done(Change::Made(fetch().await?)))
    }

    /// Follows an operation to its end and shows how far it is; its failure is this call's.
    pub(super) async fn follow(
        &self,
        control: &dyn Control,
        mut operation: Operation,
    ) -> Result<Operation, CliError> {
        *self.underway.borrow_mut() = Underway::Operation(operation.id.clone());
        let until = match self.wait {
            WaitFor::AtMost(limit) => Some(Instant::now() + limit),
            WaitFor::Done | WaitFor::Nothing => None,
        };
        let mut display = Display::new(self);
        while !operation.state.is_final() {
            display.show(&operation);
            let left = until.map_or(Duration::MAX, |until| until - Instant::now());
            if left.is_zero() {
                display.clear();
                return Err(CliError::StillRunning(operation.id));
            }
            operation = look(control, &operation.id, display.look().min(left)).await?;
        }
        display.clear();
        *self.underway.borrow_mut() = Underway::Nothing;
        match operation.error.clone() {
            Some(failure) if operation.state == OperationState::Failed => {
                Err(Error::from(failure).into())
            }
            Some(_) | None if operation.state == OperationState::Failed => {
                let what = format!("operation {} failed without a reason", operation.id);
                Err(Error::new(Kind::Internal, what).into())
            }
            Some(_) | None => Ok(operation),
        }
    }
}

async fn look(control: &dyn Control, id: &OperationId, wait: Duration) -> Result<Operation> {
    control.get_operation(id, wait).await
}

/// A bar for people, lines for logs, nothing for programs.
enum Display<'a, 'b> {
    Bar(ProgressBar),
    Lines { context: &'a Context<'b>, said: String },
    Nothing,
}

impl<'a, 'b> Display<'a, 'b> {
    fn new(context: &'a Context<'b>) -> Self {
        if context.quiet || context.format != Format::Table {
            return Self::Nothing;
        }
        if context.terminal.stderr {
            return Self::Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
        }
        Self::Lines { context, said: String::new() }
    }

    fn look(&self) -> Duration {
        match self {
            Self::Bar(_) => BAR_LOOK,
            Self::Lines { .. } => LINE_LOOK,
            Self::Nothing => QUIET_LOOK,
        }
    }

    fn show(&mut self, operation: &Operation) {
        let progress = &operation.progress;
        let message = sentence(operation);
        match self {
            Self::Bar(bar) => {
                let template = if progress.total == 0 {
                    "{spinner} {msg} ({elapsed})"
                } else {
                    "{spinner} {msg} [{bar:30}] {percent}% ({elapsed})"
                };
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.set_length(progress.total.max(1));
                bar.set_position(progress.done.min(progress.total));
                bar.set_message(message);
                bar.tick();
            }
            Self::Lines { context, said } => {
                let line = match percent(operation) {
                    // Tens are enough for a log.
                    Some(percent) => format!("{message}: {}%", percent / 10 * 10),
                    None => message,
                };
                if *said != line {
                    context.note(&line);
                    *said = line;
                }
            }
            Self::Nothing => {}
        }
    }

    fn clear(&self) {
        match self {
            Self::Bar(bar) => bar.finish_and_clear(),
            Self::Lines { .. } | Self::Nothing => {}
        }
    }
}

/// How much is done, where that can be said.
pub(super) fn percent(operation: &Operation) -> Option<u64> {
    let (done, total) = (operation.progress.done, operation.progress.total);
    (total > 0).then(|| (u128::from(done.min(total)) * 100 / u128::from(total)) as u64)
}

fn sentence(operation: &Operation) -> String {
    let what = operation.kind.as_str().replace('_', " ");
    let step = match operation.state {
        OperationState::Waiting => "the outcome is not known yet, trying again",
        OperationState::Running | OperationState::Succeeded | OperationState::Failed => {
            operation.progress.step.as_str()
        }
    };
    let line = format!("{what} {}", operation.subject_name);
    plain(&if step.is_empty() { line } else { format!("{line}: {step}") })
}
