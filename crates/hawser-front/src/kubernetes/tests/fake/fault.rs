//! What goes wrong, when tests say so.

use std::io;
use std::time::Duration;

use http::Method;

use super::FakeApi;
use super::answer::Refusal;
use super::call::Call;
use super::state::State;

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It is refused with this code and not begun.
    Refused(u16),
    /// It is refused with this code and not begun, after this time.
    RefusedLate(Duration, u16),
    /// The connection is reset before it is begun.
    Reset,
    /// It is not done, and never answered.
    Hang,
    /// It is begun only after this time.
    Slow(Duration),
    /// It is done, and answered only after this time.
    Late(Duration),
    /// It is done, and the answer has this code.
    DoneBut(u16),
    /// It is done, and the connection is reset instead of an answer.
    Lost,
}

/// How watches end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Each stream ends as it does when its time is over, without a bookmark.
    End,
    /// The connections are reset.
    Reset,
    /// They are told that their revision is gone, and no older one can be watched from.
    Gone,
}

/// For which requests, and how often.
pub(super) struct Rule {
    method: Method,
    part: String,
    left: usize,
    fault: Fault,
}

impl FakeApi {
    /// What goes wrong with the next `times` requests of this method whose path and query, decoded
    /// and as `PATH?QUERY`, have this part. Of several rules the oldest is used up first.
    pub(crate) fn fail(&self, times: usize, method: Method, part: &str, fault: Fault) {
        let rule = Rule { method, part: part.to_owned(), left: times, fault };
        self.lock().faults.push(rule);
    }

    /// Lets requests succeed again.
    pub(crate) fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Ends all watches.
    pub(crate) fn cut(&self, cut: Cut) {
        self.change(|state| {
            if matches!(cut, Cut::Gone) {
                state.compact();
            }
            state.cut = cut;
            state.cuts += 1;
        });
    }

    /// Forgets the history: what is watched from an older revision is gone, and so are the rest of
    /// lists in pages. Watches that are open go on.
    pub(crate) fn compact(&self) {
        self.change(State::compact);
    }

    /// Whether watches deliver nothing for now: what the callers know grows old.
    pub(crate) fn hold(&self, held: bool) {
        self.change(|state| state.held = held);
    }

    /// Sends a bookmark to every watch that takes them.
    pub(crate) fn bookmark(&self) {
        self.change(|state| state.bookmarks += 1);
    }
}

impl State {
    pub(super) fn take_fault(&mut self, call: &Call) -> Option<Fault> {
        let seen = &call.seen;
        let text = format!("{}?{}", seen.path, seen.query);
        let fits = |rule: &&mut Rule| rule.method == seen.method && text.contains(&rule.part);
        let rule = self.faults.iter_mut().find(fits)?;
        rule.left = rule.left.saturating_sub(1);
        let fault = rule.fault;
        self.faults.retain(|rule| rule.left > 0);
        Some(fault)
    }
}

pub(super) fn told(code: u16) -> Refusal {
    Refusal::new(code, "as told")
}

pub(super) fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection is reset")
}
