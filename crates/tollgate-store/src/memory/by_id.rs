//! Reservation records in a hashed map.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tollgate_limiter::{Record, Records, ReservationId};

/// Room that stays when most reservations are over.
const CAPACITY_KEPT: usize = 64;

/// The records of one shard. Their ids are random: any hash spreads them.
#[derive(Debug, Default)]
pub(super) struct ById(HashMap<ReservationId, Record, RandomState>);

impl Records for ById {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get_mut(&mut self, id: ReservationId) -> Option<&mut Record> {
        self.0.get_mut(&id)
    }

    fn insert(&mut self, id: ReservationId, record: Record) {
        self.0.insert(id, record);
    }

    fn remove(&mut self, id: ReservationId) -> Option<Record> {
        let record = self.0.remove(&id);
        // A record is some 200 bytes: a burst of them is not kept for ever.
        if self.0.capacity() > CAPACITY_KEPT.max(self.0.len().saturating_mul(8)) {
            self.0.shrink_to(CAPACITY_KEPT.max(self.0.len().saturating_mul(2)));
        }
        record
    }
}
