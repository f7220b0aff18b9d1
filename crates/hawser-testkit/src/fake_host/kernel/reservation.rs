//! Persistent reservations of one volume, as SPC-4 describes them, for the kinds that Hawser uses.
//!
//! A registration belongs to a host here, not to each of its paths: the kernel registers a map over
//! all of its paths, and a single path is all that a host without maps has.

use std::collections::BTreeMap;

use hawser_core::port::kernel::{Register, Reservation, ReservationKind, ReservationStep};

use super::errno::EBADE;

/// Who is registered, and who holds the reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registrations {
    generation: u32,
    keys: BTreeMap<String, u64>,
    held: Option<(String, ReservationKind)>,
}

impl Registrations {
    /// As a host is told.
    pub fn read(&self) -> Reservation {
        let holder = |host: &String| self.held.as_ref().is_some_and(|(by, _)| by == host);
        let register = |(host, key): (&String, &u64)| Register { key: *key, holder: holder(host) };
        Reservation {
            generation: self.generation,
            registered: self.keys.iter().map(register).collect(),
            held: self.held.as_ref().map(|(_, kind)| *kind),
        }
    }

    /// The key of a host, where it is registered.
    pub fn key_of(&self, host: &str) -> Option<u64> {
        self.keys.get(host).copied()
    }

    /// True when nobody is registered.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True when this host may write.
    pub fn may_write(&self, host: &str) -> bool {
        match &self.held {
            None => true,
            Some((holder, ReservationKind::WriteExclusive)) => holder == host,
            Some((_, ReservationKind::WriteExclusiveRegistrants)) => self.keys.contains_key(host),
            Some((holder, ReservationKind::Other(_))) => holder == host,
        }
    }

    /// One step of a host; a conflict is `EBADE`.
    pub fn step(&mut self, host: &str, step: &ReservationStep) -> Result<(), i32> {
        match *step {
            ReservationStep::Register { key: 0 } => {
                if self.keys.remove(host).is_some() {
                    self.generation += 1;
                }
                if self.held.as_ref().is_some_and(|(holder, _)| holder == host) {
                    self.held = None;
                }
                Ok(())
            }
            ReservationStep::Register { key } => {
                self.keys.insert(host.into(), key);
                self.generation += 1;
                Ok(())
            }
            ReservationStep::Reserve { key, kind } => {
                self.check(host, key)?;
                match &self.held {
                    Some((holder, held)) if holder == host && *held == kind => Ok(()),
                    Some(_) => Err(EBADE),
                    None => {
                        self.held = Some((host.into(), kind));
                        Ok(())
                    }
                }
            }
            ReservationStep::Release { key, kind } => {
                self.check(host, key)?;
                match &self.held {
                    Some((holder, held)) if holder == host && *held == kind => self.held = None,
                    Some((holder, _)) if holder == host => return Err(EBADE),
                    // Releasing what one does not hold is no error, and changes nothing.
                    Some(_) | None => {}
                }
                Ok(())
            }
            ReservationStep::PreemptAndAbort { key, other, kind } => {
                self.preempt(host, key, other, kind)
            }
        }
    }

    fn preempt(
        &mut self,
        host: &str,
        key: u64,
        other: u64,
        kind: ReservationKind,
    ) -> Result<(), i32> {
        self.check(host, key)?;
        if !self.keys.values().any(|registered| *registered == other) {
            return Err(EBADE);
        }
        let held_by_other =
            self.held.as_ref().is_some_and(|(holder, _)| self.keys.get(holder) == Some(&other));
        self.keys.retain(|name, registered| name == host || *registered != other);
        if held_by_other {
            self.held = Some((host.into(), kind));
        }
        self.generation += 1;
        Ok(())
    }

    fn check(&self, host: &str, key: u64) -> Result<(), i32> {
        if self.keys.get(host) == Some(&key) { Ok(()) } else { Err(EBADE) }
    }
}
