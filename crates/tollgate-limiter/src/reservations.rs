//! Reservations by id, open and lately ended.

use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec::Vec,
};
use core::mem;

use crate::{
    Amount, Attempt, Counters, ExactAmount, Held, LedgerError, Plan, Record, ReservationId, Settled,
    TimestampMs, Verdict,
};

/// Records by id: a map, ordered or hashed.
pub trait Records {
    /// How many there are.
    fn len(&self) -> usize;

    /// The record under an id.
    fn get_mut(&mut self, id: ReservationId) -> Option<&mut Record>;

    /// Adds a record under an id that has none.
    fn insert(&mut self, id: ReservationId, record: Record);

    /// Takes out the record under an id.
    fn remove(&mut self, id: ReservationId) -> Option<Record>;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Records for BTreeMap<ReservationId, Record> {
    fn len(&self) -> usize {
        self.len()
    }

    fn get_mut(&mut self, id: ReservationId) -> Option<&mut Record> {
        self.get_mut(&id)
    }

    fn insert(&mut self, id: ReservationId, record: Record) {
        self.insert(id, record);
    }

    fn remove(&mut self, id: ReservationId) -> Option<Record> {
        self.remove(&id)
    }
}

/// The reservations of a ledger, apart from its counters: for a store that keeps counters its own
/// way. [`Ledger`](crate::Ledger) says what each call does.
#[derive(Debug)]
pub struct Reservations<R = BTreeMap<ReservationId, Record>> {
    by_id: R,
    /// Ids of the records that are not held, the oldest first.
    finished: VecDeque<ReservationId>,
    finished_max: usize,
    /// What a forgotten record has left for the next one's amounts.
    room: Vec<ExactAmount>,
}

impl<R: Records> Reservations<R> {
    /// No reservations, in an empty map; of the ended ones, `finished_max` will be remembered.
    pub const fn new(by_id: R, finished_max: usize) -> Self {
        Self { by_id, finished: VecDeque::new(), finished_max, room: Vec::new() }
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.by_id.len().saturating_sub(self.finished.len())
    }

    /// See [`Ledger::reserve`](crate::Ledger::reserve).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reserve(
        &mut self,
        counters: &mut impl Counters,
        now: TimestampMs,
        id: ReservationId,
        plan: Arc<Plan>,
        attempt: Attempt,
    ) -> Result<Verdict, LedgerError> {
        if let Some(record) = self.by_id.get_mut(id) {
            return record.answer(&plan);
        }
        let (verdict, record) = Record::open(counters, now, plan, attempt == Attempt::Retry);
        if let Some(record) = record {
            self.insert(id, record);
        }
        Ok(verdict)
    }

    /// See [`Ledger::extend`](crate::Ledger::extend).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(
        &mut self,
        counters: &mut impl Counters,
        now: TimestampMs,
        held: &Held,
        step: u32,
        charges: &[Amount],
    ) -> Result<Verdict, LedgerError> {
        let record = self.by_id.get_mut(held.id).ok_or(LedgerError::NotHeld)?;
        record.extend(counters, now, held, step, charges)
    }

    /// See [`Ledger::settle`](crate::Ledger::settle).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn settle(
        &mut self,
        counters: &mut impl Counters,
        now: TimestampMs,
        held: &Held,
        actuals: &[ExactAmount],
    ) -> Result<Settled, LedgerError> {
        let Some(record) = self.by_id.get_mut(held.id) else {
            self.insert(held.id, Record::unseen(counters, now, held, actuals)?);
            return Ok(Settled::WithoutReservation);
        };
        let was_held = record.is_held();
        let settled = record.settle(counters, now, held, actuals, mem::take(&mut self.room))?;
        if was_held {
            self.remember(held.id);
        }
        Ok(settled)
    }

    /// As [`settle`](Self::settle), but only what was reserved is settled: of an id that is not known nothing is charged.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn settle_held(
        &mut self,
        counters: &mut impl Counters,
        now: TimestampMs,
        held: &Held,
        actuals: &[ExactAmount],
    ) -> Result<Settled, LedgerError> {
        match self.by_id.get_mut(held.id) {
            Some(record) if record.is_held() => self.settle(counters, now, held, actuals),
            _ => Ok(Settled::Already),
        }
    }

    fn insert(&mut self, id: ReservationId, record: Record) {
        let is_held = record.is_held();
        self.by_id.insert(id, record);
        if !is_held {
            self.remember(id);
        }
    }

    /// Notes that a record is finished, and forgets the oldest of those if they are too many.
    fn remember(&mut self, id: ReservationId) {
        self.finished.push_back(id);
        if self.finished.len() > self.finished_max
            && let Some(oldest) = self.finished.pop_front()
        {
            self.room = self.by_id.remove(oldest).map(Record::into_room).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, Records, ReservationId};

    /// As many records as it says.
    struct Counted(usize);

    impl Records for Counted {
        fn len(&self) -> usize {
            self.0
        }

        fn get_mut(&mut self, _id: ReservationId) -> Option<&mut Record> {
            None
        }

        fn insert(&mut self, _id: ReservationId, _record: Record) {}

        fn remove(&mut self, _id: ReservationId) -> Option<Record> {
            None
        }
    }

    #[test]
    fn a_map_is_empty_that_has_no_record() {
        assert!(Counted(0).is_empty() && !Counted(1).is_empty() && !Counted(usize::MAX).is_empty());
    }
}
