//! The guard of one call's reservation: settled once, whatever happens to it.

use std::{fmt, sync::Arc};

use tollgate_limiter::{Admission, ENTRIES_MAX, Entry, ExactAmount, Held};

use crate::desk::Desk;

/// What one call holds. Dropped without another word, it is settled as reserved.
///
/// A [`Settle`](crate::Settle) hook gets it by value: it says at once what the call has used, or moves
/// it to where that will be known, such as a response's body. The reservation of a call that is not
/// limited has no entries, and settling it does nothing.
pub struct Reservation(Option<Open>);

struct Open {
    desk: Arc<Desk>,
    held: Held,
    admission: Admission,
}

impl Reservation {
    pub(crate) const fn new(desk: Arc<Desk>, held: Held, admission: Admission) -> Self {
        Self(Some(Open { desk, held, admission }))
    }

    /// The guard of a call that is not limited.
    pub(crate) const fn of_nothing() -> Self {
        Self(None)
    }

    /// What the store said when it admitted the call: the soft limits that are passed, the tightest
    /// rate limit. `None` if the call is not limited.
    pub fn admission(&self) -> Option<&Admission> {
        self.0.as_ref().map(|open| &open.admission)
    }

    /// The limits the call meets, each with what is reserved.
    pub fn entries(&self) -> &[Entry] {
        self.0.as_ref().map_or(&[], |open| open.held.plan.entries())
    }

    /// What names the reservation in the store, to [extend](tollgate_store::Store::extend) it there.
    /// `None` if the call is not limited.
    pub fn held(&self) -> Option<&Held> {
        self.0.as_ref().map(|open| &open.held)
    }

    /// Replaces what is reserved by what was used: of each entry what `used` says of it, in the unit
    /// of its limit.
    pub fn settle(mut self, used: impl FnMut(&Entry) -> ExactAmount) {
        self.end(used);
    }

    /// Gives everything back: the call has used nothing.
    pub fn release(self) {
        self.settle(|_| ExactAmount::ZERO);
    }

    fn end(&mut self, mut used: impl FnMut(&Entry) -> ExactAmount) {
        // As many as a plan may have, so that no call allocates for them.
        let mut amounts = [ExactAmount::ZERO; ENTRIES_MAX];
        let entries = self.entries();
        for (amount, entry) in amounts.iter_mut().zip(entries) {
            *amount = used(entry);
        }
        let actuals = amounts.get(..entries.len()).unwrap_or_default();
        // Only now: if `used` panics, the guard is still there.
        if let Some(open) = self.0.take() {
            open.desk.settle(open.held, actuals);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.end(|entry| ExactAmount::whole(entry.charge.get()));
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reservation").field(&self.held()).finish()
    }
}
