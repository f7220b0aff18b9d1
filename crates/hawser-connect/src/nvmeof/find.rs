//! Waiting for the namespace behind live controllers, and for the proof that it is the right one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use tokio::time::Instant;

use super::data::Target;
use super::fabrics;
use super::ids::{Ids, Selector};
use super::sight::{self, Sight, Truth};
use super::sysfs::Namespace;
use crate::shared::error::AttachError;
use crate::shared::users::Whole;
use crate::shared::wait::{self, Deadline};

/// How long a live controller may take to show a namespace.
const NAMESPACE_LIMIT: Duration = Duration::from_secs(10);

/// How long the further ways may take once one works.
const WAYS_LIMIT: Duration = Duration::from_secs(3);

/// When controllers that were there before are asked to look again. A namespace whose number was
/// given to another one goes at the first look and comes at the second.
const LOOKS: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(7)];

/// Why the namespace was not taken when it was last looked at.
enum Unfit {
    NotSeen,
    NoWay(String),
    Other(String, Ids),
    Unanswered(AttachError),
}

/// A connect on its way from a subsystem to a namespace of it.
pub(super) struct Find<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) target: &'a Target,
    /// Every way is wanted.
    pub(super) all: bool,
    pub(super) deadline: Deadline,
}

impl Find<'_> {
    fn sight(&self) -> Result<Sight> {
        Sight::of(self.host, &self.target.nqn, &self.target.wanted)
    }

    /// Waits for the namespace, asks the target whether it is the one, and waits a little for the
    /// further ways to it.
    /// Controllers that were there before are asked to look.
    pub(super) async fn run(&self, reused: bool) -> Result<Namespace> {
        let mut events = self.host.events().subscribe();
        let deadline = self.deadline.within(NAMESPACE_LIMIT);
        let began = Instant::now();
        // Until looks again after each event, through shared references alone.
        let state = Mutex::new((usize::from(!reused), Unfit::NotSeen));
        let found = wait::until(&mut *events, deadline, || async {
            let sight = self.sight()?;
            let why = match self.judge(&sight).await? {
                Ok(namespace) => return Ok(Some(namespace)),
                Err(why) => why,
            };
            let due = {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                // What is there instead is still the answer when the kernel has dropped it.
                if !matches!((&state.1, &why), (Unfit::Other(..), Unfit::NotSeen)) {
                    state.1 = why;
                }
                let due = LOOKS.get(state.0).is_some_and(|at| began.elapsed() >= *at);
                state.0 += usize::from(due);
                due
            };
            if due {
                for controller in sight.live() {
                    fabrics::rescan(self.host, controller).await;
                }
            }
            Ok(None)
        })
        .await?;
        let (_, unfit) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(namespace) = found else { return Err(self.unfit(unfit, deadline.limit())) };
        if self.all {
            self.wait_for_ways().await?;
        }
        Ok(namespace)
    }

    /// The namespace, if it can be used and the target says that it is the one.
    async fn judge(&self, sight: &Sight) -> Result<Result<Namespace, Unfit>> {
        let Some(namespace) = sight.usable() else {
            let words = sight.words();
            return Ok(Err(match &sight.instead {
                _ if !words.is_empty() => Unfit::NoWay(words),
                Some(other) => Unfit::Other(other.device.clone(), other.ids.clone()),
                None => Unfit::NotSeen,
            }));
        };
        // Without native multipath each way has a device, and each must be the one.
        for each in sight.found.iter().filter(|each| each.works()) {
            sight::check(self.target, each)?;
            let disk = Whole::new(&each.device);
            if !disk.has_node(self.host.files())? || disk.size(self.host.files())? == 0 {
                return Ok(Err(Unfit::NotSeen));
            }
            match sight::ask(self.host, each).await? {
                Truth::Same => {}
                Truth::Other(ids) => return Ok(Err(Unfit::Other(each.device.clone(), ids))),
                Truth::Unanswered(error) => return Ok(Err(Unfit::Unanswered(error))),
            }
        }
        Ok(Ok(namespace.clone()))
    }

    fn unfit(&self, unfit: Unfit, limit: Duration) -> Error {
        let target = self.target.nqn.clone();
        let volume = self.target.wanted.to_string();
        match unfit {
            Unfit::NotSeen => AttachError::VolumeNotFound { target, volume, limit }.into(),
            Unfit::NoWay(why) => {
                AttachError::Unreachable { target: format!("{volume} of {target}"), why }.into()
            }
            Unfit::Unanswered(error) => error.into(),
            Unfit::Other(device, ids) => match &self.target.wanted.by {
                Selector::Identity(expected) => AttachError::WrongIdentity {
                    device: Whole::new(device).node,
                    expected: expected.clone(),
                    found: ids.words(),
                }
                .into(),
                Selector::Number(_) => AttachError::VolumeNotFound { target, volume, limit }.into(),
            },
        }
    }

    /// Controllers look for namespaces one after the other; some may never show this one.
    async fn wait_for_ways(&self) -> Result<()> {
        let mut events = self.host.events().subscribe();
        wait::until(&mut *events, self.deadline.within(WAYS_LIMIT), async || {
            let sight = self.sight()?;
            let has = |name: &str| {
                sight.found.iter().flat_map(|n| &n.ways).any(|way| way.controller.name == name)
            };
            Ok(sight.live().all(|controller| has(&controller.name)).then_some(()))
        })
        .await?;
        Ok(())
    }
}
