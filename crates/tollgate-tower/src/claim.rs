//! A reservation that the store has not answered yet.

use std::sync::Arc;

use tollgate_limiter::{ENTRIES_MAX, ExactAmount, Held, Plan, ReservationId, TimestampMs, Verdict};
use tollgate_store::{StoreError, StoreFuture};

use crate::{
    Refused, Rejection, Reservation,
    desk::{Asking, Desk},
};

/// What is asked for. Dropped before there is an answer, it is released: the store may have charged.
pub(crate) struct Claim {
    desk: Arc<Desk>,
    held: Held,
    may_be_charged: bool,
}

impl Claim {
    pub(crate) fn new(desk: Arc<Desk>, plan: Arc<Plan>) -> Self {
        let id = ReservationId::new(rand::random());
        // Without an admission only nothing is ever settled, and nothing has no moment.
        let held = Held { id, plan, at: TimestampMs::EPOCH };
        Self { desk, held, may_be_charged: true }
    }

    /// Asks the store.
    pub(crate) fn reserve(&self) -> StoreFuture<'_, Verdict> {
        self.desk.reserve(&self.held)
    }

    /// Asks the store, in a future that owns what it needs.
    pub(crate) fn reserve_apart(&self) -> Asking {
        let (desk, held) = (Arc::clone(&self.desk), self.held.clone());
        Box::pin(async move { desk.reserve(&held).await })
    }

    /// Takes the store's answer: what is held now, or why nothing is.
    pub(crate) fn answered(mut self, verdict: Result<Verdict, StoreError>) -> Result<Reservation, Rejection> {
        match verdict {
            Ok(Verdict::Admitted(admission)) => {
                self.may_be_charged = false;
                let held = Held { at: admission.at, ..self.held.clone() };
                Ok(Reservation::new(Arc::clone(&self.desk), held, admission))
            }
            Ok(Verdict::Refused(refusal)) => {
                self.may_be_charged = false;
                Err(Rejection::Refused(Refused::new(refusal, Arc::clone(&self.held.plan))))
            }
            Err(error) => {
                self.may_be_charged = error.may_have_applied();
                Err(Rejection::Unavailable(error))
            }
        }
    }

    /// The store was not asked after all.
    pub(crate) fn forget(mut self) {
        self.may_be_charged = false;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.may_be_charged {
            let nothing = [ExactAmount::ZERO; ENTRIES_MAX];
            let entries = self.held.plan.entries().len();
            self.desk.settle(self.held.clone(), nothing.get(..entries).unwrap_or_default());
        }
    }
}
