//! What settles an answer: its call, and the meter that has read it so far.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
};

use http::HeaderMap;
use tollgate_limiter::Verdict;
use tollgate_providers::{ErrorKind, Meter, StreamEnd};
use tollgate_usage::{Outcome, Written};

use super::{
    decode::Decoder,
    extend::{self, Answer, Later},
    rolling::{Growth, Rolling},
};
use crate::{call::Call, quote::Quote, refuse::Refused};

/// What is needed to settle: the call, and the meter that has read the answer so far.
///
/// Dropping it settles the call as one that its client has left.
pub(super) struct Metering {
    call: Option<Call>,
    meter: Meter,
    decoder: Decoder,
    /// How the reservation grows, where it does.
    rolling: Option<Rolling>,
    asking: Option<(Growth, Later)>,
}

/// The end of an answer.
pub(super) struct Ended {
    /// Whether its content was finished.
    pub(super) is_finished: bool,
    /// Whether it brought an error of the provider's own.
    pub(super) has_error: bool,
    /// What its end has to wait for.
    pub(super) written: Option<Written>,
}

/// Whether what has passed the meter may be passed on.
pub(super) enum Cover {
    /// It is reserved.
    Held,
    /// The store is being asked for more.
    Asking,
    /// No more is reserved: the answer ends here.
    CutOff(Refused),
}

impl Metering {
    pub(super) fn new(call: Call, meter: Meter, headers: &HeaderMap) -> Self {
        Self { call: Some(call), meter, decoder: Decoder::new(headers), rolling: None, asking: None }
    }

    /// From here on the reservation grows with the answer.
    pub(super) fn roll(&mut self) {
        let Some(call) = &self.call else { return };
        let slice_tokens = call.app().policy.extend_tokens.get();
        self.rolling = call.terms().and_then(|terms| Rolling::new(&terms, slice_tokens, &self.meter));
    }

    /// The call, until it is settled.
    pub(super) const fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }

    pub(super) fn read(&mut self, bytes: &[u8]) {
        let meter = &mut self.meter;
        self.decoder.decode(bytes, |decoded| meter.feed(decoded));
    }

    /// Sees to it that what has been read so far is reserved.
    pub(super) fn cover(&mut self) -> Cover {
        let (Some(rolling), Some(call)) = (&mut self.rolling, &self.call) else { return Cover::Held };
        let is_covered = call.quote().is_none_or(Quote::is_covered);
        if self.decoder.is_unreadable() && !is_covered && call.app().policy.cutoff {
            return Cover::CutOff(unreadable());
        }
        let due = call.terms().and_then(|terms| rolling.due(&terms, &self.meter));
        let (Some(growth), Some(held)) = (due, call.held()) else { return Cover::Held };
        match extend::ask(&call.app().store, held, growth.step, &growth.charges) {
            Ok(answer) => self.answered(growth, answer),
            Err(later) => {
                self.asking = Some((growth, later));
                Cover::Asking
            }
        }
    }

    /// Waits for the store, if it is being asked.
    pub(super) fn poll_cover(&mut self, cx: &mut Context<'_>) -> Poll<Option<Cover>> {
        let Some((_, later)) = &mut self.asking else { return Poll::Ready(None) };
        let answer = ready!(later.as_mut().poll(cx));
        Poll::Ready(self.asking.take().map(|(growth, _)| self.answered(growth, answer)))
    }

    /// Whether what has been read so far is reserved, once the store has said so.
    pub(super) async fn is_covered(&mut self) -> bool {
        let cover = match self.cover() {
            Cover::Asking => poll_fn(|cx| self.poll_cover(cx)).await.unwrap_or(Cover::Held),
            cover => cover,
        };
        matches!(cover, Cover::Held)
    }

    fn answered(&mut self, growth: Growth, answer: Answer) -> Cover {
        let (Some(rolling), Some(call)) = (&mut self.rolling, &mut self.call) else { return Cover::Held };
        let cause = match answer {
            Ok(Verdict::Admitted(_)) => {
                call.app().metrics.extended("granted");
                rolling.granted(&growth);
                call.grow(growth.quote);
                return Cover::Held;
            }
            Ok(Verdict::Refused(refusal)) => {
                call.app().metrics.extended("refused");
                let limits = call.terms().map_or(&[][..], |terms| terms.limits);
                Refused::extension(&refusal, limits)
            }
            Err(error) => {
                call.app().metrics.extended("failed");
                tracing::error!(request_id = call.request_id(), %error, "the store gave no verdict on an extension");
                let message = "The limits could not be checked while this answer was running.";
                Refused::unavailable("store_unavailable", message)
            }
        };
        if call.app().policy.cutoff {
            return Cover::CutOff(cause);
        }
        if rolling.postponed(&growth) {
            let (request_id, why) = (call.request_id(), &cause.message);
            tracing::warn!(request_id, why, "a stream goes on beyond what is reserved for it");
        }
        Cover::Held
    }

    /// The answer goes no further for a reason of ours.
    pub(super) fn cut_off(&mut self, reason: &'static str) {
        if let Some(call) = &self.call {
            tracing::info!(request_id = call.request_id(), reason, "cut off");
            call.app().metrics.cut_off(reason);
        }
        self.end(Outcome::CutOff);
    }

    /// The answer goes no further: because of `outcome`, unless it was whole by its own protocol.
    pub(super) fn end(&mut self, outcome: Outcome) -> Ended {
        let mut metered = self.meter.finish();
        metered.has_unread |= self.decoder.is_unreadable();
        let outcome = if metered.end == StreamEnd::Complete { Outcome::Complete } else { outcome };
        let written = self.call.take().and_then(|call| call.ended(&metered, outcome));
        let has_error = metered.end == StreamEnd::Error;
        Ended { is_finished: metered.is_finished, has_error, written }
    }
}

/// What nobody can read cannot be held to its reservation.
fn unreadable() -> Refused {
    let message =
        "The provider's answer is in a coding that cannot be read, so that it would escape its budget.";
    Refused::new(ErrorKind::UpstreamUnreachable, "answer_unreadable", message)
}

impl Drop for Metering {
    fn drop(&mut self) {
        if self.call.is_some() {
            self.end(Outcome::ClientGone);
        }
    }
}
