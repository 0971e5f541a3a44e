//! One admitted call, from its reservation to its settlement: exactly once, whatever happens.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tollgate_limiter::{DurationMs, ExactAmount, ReservationId, TimestampMs, Tokens};
use tollgate_providers::{Metered, Reported, StreamEnd};
use tollgate_store::{Held, Settled, StoreError};
use tollgate_usage::{
    Attributes, Event, FirstReserved, Hold, Outcome, Session, Settlement, UsageEvent, Written,
};

use crate::{
    app::App,
    attributes, estimates,
    once::Named,
    policy::{AppliedLimit, KeyPolicy},
    quote::{Judged, Quote},
    relay::Terms,
    settle::{self, Bill, End},
    unplanned,
};

/// What is known of a call when it is admitted.
pub(crate) struct Admitted {
    pub(crate) request_id: Arc<str>,
    pub(crate) key: Arc<KeyPolicy>,
    /// What the key fixes and the caller has set.
    pub(crate) attributes: Attributes,
    pub(crate) provider: Arc<str>,
    pub(crate) path: Arc<str>,
    pub(crate) session: Option<Session>,
    /// The limits of the plan, in its order.
    pub(crate) limits: Arc<[AppliedLimit]>,
    pub(crate) held: Held,
    pub(crate) quote: Quote,
    /// What was reserved at admission, once more is.
    pub(crate) first_reserved: Option<FirstReserved>,
    /// Held until the call is settled.
    pub(crate) _named: Option<Arc<Named>>,
    /// Whether a stream was asked for.
    pub(crate) stream: bool,
    /// The moment of admission.
    pub(crate) at: TimestampMs,
    /// The request's arrival, on the clock that never steps back.
    pub(crate) arrived: Duration,
}

/// A call from before its reservation is asked for until it is settled.
///
/// Dropping it ends it, whatever the stage: a reservation that may have been made is released while no
/// byte of the call has left for the provider, and settled as it stands afterwards, since the provider
/// may bill what it was asked.
pub(crate) struct Call {
    app: Arc<App>,
    admitted: Option<Box<Admitted>>,
    /// What brings the call back should this process be killed.
    hold: Option<Hold>,
    stage: Stage,
    status: u16,
    stream: bool,
    first_byte: Option<Duration>,
}

/// A call would be forgotten if the process died. The journal has logged why.
#[derive(Debug)]
pub(crate) struct NotWrittenDown;

/// Marks the event of a call that was open when its process was killed.
const RECOVERED: &str = "recovered";

/// How far a call has come.
#[derive(Debug)]
enum Stage {
    /// The store has been asked, or is about to be.
    Asking,
    /// The reservation is held.
    Held,
    /// The request is on its way, and may have reached the provider once the flag is set.
    Sending(Arc<AtomicBool>),
}

impl Call {
    /// A call whose reservation is about to be asked for.
    pub(crate) fn new(app: Arc<App>, admitted: Admitted) -> Self {
        Self {
            app,
            admitted: Some(Box::new(admitted)),
            hold: None,
            stage: Stage::Asking,
            status: 0,
            stream: false,
            first_byte: None,
        }
    }

    pub(crate) const fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// The store has admitted the call, with its charges booked at `at`. It is written down before any of
    /// it can be sent.
    ///
    /// # Errors
    ///
    /// It cannot be written down, and a hard budget must not forget it: it may not be sent.
    pub(crate) async fn admitted(&mut self, at: TimestampMs) -> Result<(), NotWrittenDown> {
        if let Some(admitted) = &mut self.admitted {
            admitted.held.at = at;
            admitted.at = at;
        }
        self.write_down().await?;
        if self.hold.is_some()
            && let Some(synced) = self.app.usage.synced()
            && synced.await.is_err()
            && self.is_under_hard_budget()
        {
            return Err(NotWrittenDown);
        }
        self.stage = Stage::Held;
        self.app.metrics.open.inc();
        Ok(())
    }

    /// Writes down a call that costs something: until it is settled it comes back as one that broke off.
    async fn write_down(&mut self) -> Result<(), NotWrittenDown> {
        let Some(event) = self.broken_off() else { return Ok(()) };
        if let Ok((hold, written)) = self.app.usage.hold(&event) {
            self.hold = Some(hold);
            if written.await.is_err() {
                self.hold.take().into_iter().for_each(|hold| self.app.usage.forget(hold));
            }
        }
        let is_lost = self.hold.is_none() && self.is_under_hard_budget();
        if is_lost { Err(NotWrittenDown) } else { Ok(()) }
    }

    fn is_under_hard_budget(&self) -> bool {
        let limits = self.admitted.as_deref().map_or(&[][..], |admitted| &admitted.limits);
        limits.iter().any(AppliedLimit::is_hard_budget)
    }

    /// The store has refused the call: there is nothing to settle. What it was judged by goes back.
    pub(crate) fn refused(mut self) -> Option<Judged> {
        let Admitted { quote, limits, .. } = *self.admitted.take()?;
        Some(Judged { quote, limits })
    }

    /// What the call is judged by while its answer runs, until it is settled.
    pub(crate) fn terms(&self) -> Option<Terms<'_>> {
        let Admitted { quote, limits, at, .. } = &**self.admitted.as_ref()?;
        Some(Terms { quote, limits, prices: &self.app.policy.prices, at: *at })
    }

    /// What is expected of the call, until it is settled.
    pub(crate) fn quote(&self) -> Option<&Quote> {
        self.admitted.as_ref().map(|admitted| &admitted.quote)
    }

    /// Its reservation, until it is settled.
    pub(crate) fn held(&self) -> Option<&Held> {
        self.admitted.as_ref().map(|admitted| &admitted.held)
    }

    /// Its id, for the log.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.admitted.as_ref().map(|admitted| &*admitted.request_id)
    }

    /// More has been reserved: all of `quote`. After a kill it comes back with all of it.
    pub(crate) fn grow(&mut self, quote: Quote) {
        let Some(admitted) = &mut self.admitted else { return };
        let before = std::mem::replace(&mut admitted.quote, quote).reserved;
        admitted.first_reserved.get_or_insert(FirstReserved {
            cost: before.cost.rounded_up(),
            output: Tokens::new(before.output_tokens),
        });
        if let (Some(event), Some(hold)) = (self.broken_off(), &self.hold) {
            drop(self.app.usage.extend(hold, &event));
        }
    }

    /// What the call comes back as should the process die now; `None`: it costs nothing.
    fn broken_off(&self) -> Option<UsageEvent> {
        let admitted = self.admitted.as_deref().filter(|admitted| admitted.quote.billed)?;
        let bill = settle::bill(&End::NoAnswer, &admitted.quote, &self.app.policy.prices, admitted.at);
        let mut event = self.event(admitted, bill, Outcome::UpstreamBroken);
        event.flags.push(RECOVERED);
        Some(event)
    }

    /// The request is on its way to the provider. `left` is set once any of it has left.
    pub(crate) fn sending(&mut self, left: Arc<AtomicBool>) {
        self.stage = Stage::Sending(left);
        if let Some(admitted) = &self.admitted {
            let overhead = self.app.clock.elapsed().saturating_sub(admitted.arrived);
            self.app.metrics.overhead.observe(overhead.as_secs_f64());
        }
    }

    /// The provider's head has arrived.
    pub(crate) fn answered(&mut self, status: u16, stream: bool) {
        let now = self.app.clock.elapsed();
        self.status = status;
        self.stream = stream;
        self.first_byte = Some(now);
        if let Some(admitted) = &self.admitted {
            self.app.metrics.ttfb.observe(now.saturating_sub(admitted.arrived).as_secs_f64());
        }
    }

    /// The provider answered with an error, or not at all: nothing is charged.
    pub(crate) fn failed(mut self, status: u16) {
        self.status = status;
        drop(self.finish(End::Failed, Outcome::UpstreamError));
    }

    /// The answer has begun and goes no further. What the provider reported last decides what it
    /// costs, if it was its last word; else what it had reported, but not less than the reservation.
    ///
    /// What is left of the answer may leave once that is written down.
    pub(crate) fn ended(mut self, metered: &Metered, outcome: Outcome) -> Option<Written> {
        let whole = match metered.usage {
            // Reported, but not as the last word: more may have been used since.
            Reported::Usage(_) => metered.is_final,
            Reported::Missing => metered.end == StreamEnd::Complete,
        };
        self.finish(if whole { End::Whole(metered) } else { End::Broken(metered) }, outcome)
    }

    /// Settles the call, unless it is settled. What is written down is written when that is dropped.
    fn finish(&mut self, end: End<'_>, outcome: Outcome) -> Option<Written> {
        let admitted = self.admitted.take()?;
        // Who is cut off at the end of a drain has not left.
        let is_cut = outcome == Outcome::ClientGone && self.app.cutting.is_cancelled();
        let outcome = if is_cut { Outcome::CutOff } else { outcome };
        let bill = settle::bill(&end, &admitted.quote, &self.app.policy.prices, admitted.at);
        self.app.metrics.settled(&admitted, &bill, outcome);
        self.app.series(&admitted.key.tenant).into_iter().for_each(|series| series.settled(&bill));
        let (policy, at) = (&self.app.policy, admitted.at);
        let actuals = bill.actuals(&admitted.limits, &admitted.quote, policy, at);
        let tenant = &admitted.key.tenant;
        self.app.alerts.settling(&*self.app.store, tenant, &admitted.limits, &actuals, at);
        let (ended, held) = (self.app.clock.now(), admitted.held.clone());
        let charges = unplanned::charges(&self.app, &admitted, &bill, ended);
        let mut settlements = vec![Settlement { held, actuals, ended }];
        settlements.extend(charges);
        let event = self.event(&admitted, bill, outcome);
        self.app.estimates.learn_from(policy, &admitted.quote, &event);
        // Before the store is asked: it may be away, and this process killed.
        let written = match self.hold.take() {
            Some(hold) => Some(self.app.usage.settle(hold, &event, &settlements)),
            None => {
                self.app.usage.record(&Event::Usage(event));
                None
            }
        };
        for Settlement { held, actuals, .. } in settlements {
            let may_be_held = held.id == admitted.held.id && self.app.store.may_hold(&held);
            let expected = if may_be_held { Settled::Applied } else { Settled::WithoutReservation };
            settle_in_store(&self.app, &held, actuals, expected);
        }
        written
    }

    fn event(&self, admitted: &Admitted, bill: Bill, outcome: Outcome) -> UsageEvent {
        let since_arrival = |moment: Duration| span(moment.saturating_sub(admitted.arrived));
        let caller_attributes =
            attributes::chosen(&admitted.key, &admitted.attributes).map(|(scope, _)| scope.name()).collect();
        let uncorrected_input = estimates::comparable(&self.app.policy, &admitted.quote, &bill, admitted.at);
        UsageEvent {
            ts: admitted.at,
            request_id: admitted.request_id.clone(),
            tenant: admitted.key.tenant.clone(),
            key: admitted.key.key.clone(),
            attributes: admitted.attributes.clone(),
            caller_attributes,
            session: admitted.session.clone(),
            provider: admitted.provider.clone(),
            requested_model: (bill.model != admitted.quote.model).then(|| admitted.quote.model.clone()),
            model: bill.model,
            path: admitted.path.clone(),
            stream: self.stream || admitted.stream,
            status: self.status,
            outcome,
            tokens: bill.tokens,
            usage_estimated: bill.usage_estimated,
            service_tier: bill.service_tier,
            reserved: admitted.quote.reserved.cost.rounded_up(),
            reserved_output: Tokens::new(admitted.quote.reserved.output_tokens),
            first_reserved: admitted.first_reserved.map(Box::new),
            cost: bill.amounts.cost.to_exact(),
            estimated_input: admitted.quote.estimated_input,
            uncorrected_input,
            duration: since_arrival(self.app.clock.elapsed()),
            ttfb: self.first_byte.map(since_arrival),
            flags: bill.flags,
            others: bill.others,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let end = match &self.stage {
            Stage::Asking => {
                // Nobody knows the verdict: should there be a reservation, it is given back.
                if let Some(admitted) = self.admitted.take() {
                    let nothing = vec![ExactAmount::ZERO; admitted.limits.len()];
                    settle_in_store(&self.app, &admitted.held, nothing, Settled::WithoutReservation);
                }
                self.hold.take().into_iter().for_each(|hold| drop(self.app.usage.cancel(hold)));
                return;
            }
            Stage::Sending(left) if left.load(Ordering::Relaxed) => End::NoAnswer,
            Stage::Held | Stage::Sending(_) => End::Failed,
        };
        drop(self.finish(end, Outcome::ClientGone));
        self.app.metrics.open.dec();
    }
}

/// A store in memory answers at once; another is waited for by a task of its own.
fn settle_in_store(app: &Arc<App>, held: &Held, actuals: Vec<ExactAmount>, expected: Settled) {
    match app.store.settle(held, &actuals).now_or_later() {
        Ok(settled) => note_settled(app, held.id, settled, expected),
        Err(later) => {
            let (task_app, id) = (app.clone(), held.id);
            app.settling.spawn(async move { note_settled(&task_app, id, later.await, expected) });
        }
    }
}

fn note_settled(app: &App, id: ReservationId, settled: Result<Settled, StoreError>, expected: Settled) {
    match settled {
        Ok(settled) if settled == expected || matches!(settled, Settled::Applied | Settled::Already) => {}
        Ok(unexpected) => {
            tracing::error!(request_id = %id, ?unexpected, "a reservation was not settled as it should be");
            app.metrics.settle_failures.inc();
        }
        // It is kept, and the store's status counts it.
        Err(StoreError::Deferred) => {}
        // The store has lines of its own for this.
        Err(error @ StoreError::Corrupt(_)) => {
            tracing::debug!(request_id = %id, %error, "a reservation could not be settled");
            app.metrics.settle_failures.inc();
        }
        Err(error) => {
            tracing::error!(request_id = %id, %error, "a reservation could not be settled");
            app.metrics.settle_failures.inc();
        }
    }
}

fn span(duration: Duration) -> DurationMs {
    DurationMs::new(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
