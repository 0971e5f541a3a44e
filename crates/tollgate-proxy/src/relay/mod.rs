//! A provider's answer on its way through: metered, merged, otherwise untouched.

mod decode;
mod extend;
mod merge;
mod metering;
mod pump;
mod rolling;
mod tail;

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};
use tollgate_providers::{Meter, StreamFilter};
use tollgate_usage::{Outcome, Written};

use self::{
    merge::{Idle, Merge, STREAM_PATIENCE_POLLS},
    metering::{Cover, Ended, Metering},
};
use crate::{call::Call, refuse::Refused};

pub(crate) use self::{
    pump::{Pace, Pumped},
    rolling::Terms,
    tail::Tail,
};

/// A response body that reads its own copy. When it ends, breaks or is dropped, its call is settled.
pub(crate) struct Relay {
    upstream: Option<Incoming>,
    metering: Option<Box<Metering>>,
    filter: Option<StreamFilter>,
    merge: Merge,
    /// The settlement on its way into the journal: the rest of the answer waits for it.
    settled: Option<Written>,
    /// What is metered and waits for its reservation: as it is passed on, which may be nothing.
    uncovered: Option<Bytes>,
    trailers: Option<HeaderMap>,
    failure: Option<RelayError>,
    tail: Tail,
    idle_timeout: Duration,
    idle: Option<Pin<Box<Sleep>>>,
    progressed: bool,
}

/// Why an answer could not be passed on to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    /// The provider's connection broke.
    #[error("the provider's answer broke off")]
    Broken(#[source] hyper::Error),
    /// The provider ended its connection before its answer.
    #[error("the provider ended its answer before it was whole")]
    Cut,
    /// The provider sent nothing for too long.
    #[error("the provider's answer paused for too long")]
    Idle,
    /// The client took nothing for too long.
    #[error("the client did not read the answer")]
    Unread,
    /// No more was reserved for it, where its protocol has no way to say so.
    #[error("the answer was cut off")]
    CutOff,
}

impl Relay {
    pub(crate) fn new(
        upstream: Incoming,
        headers: &HeaderMap,
        metering: (Call, Meter),
        filter: Option<StreamFilter>,
        tail: Tail,
        idle_timeout: Duration,
    ) -> Self {
        let (call, meter) = metering;
        let metering = Box::new(Metering::new(call, meter, headers));
        let mut relay = Self::unmetered(upstream, idle_timeout);
        relay.metering = Some(metering);
        relay.filter = filter;
        relay.tail = tail;
        // hyper does not poll a body that is empty.
        if relay.upstream.as_ref().is_some_and(HttpBody::is_end_stream) {
            relay.finish();
            relay.settled = None;
        }
        relay
    }

    /// The same for an answer in events: frames that are ready together leave together, and the reservation
    /// grows with the answer.
    pub(crate) fn in_events(mut self) -> Self {
        if let Some(metering) = &mut self.metering {
            metering.roll();
        }
        self.merge = Merge::patient(STREAM_PATIENCE_POLLS);
        self
    }

    /// Passes on an answer that costs nothing.
    pub(crate) fn unmetered(upstream: Incoming, idle_timeout: Duration) -> Self {
        Self {
            upstream: Some(upstream),
            metering: None,
            filter: None,
            merge: Merge::default(),
            settled: None,
            uncovered: None,
            trailers: None,
            failure: None,
            tail: Tail::closed(),
            idle_timeout,
            idle: None,
            progressed: false,
        }
    }

    /// Passes on an answer that costs nothing and of which `read` has been taken already.
    pub(crate) fn resumed(read: Bytes, upstream: Incoming, idle_timeout: Duration) -> Self {
        let mut relay = Self::unmetered(upstream, idle_timeout);
        relay.merge.push(read);
        relay
    }

    /// Takes in what is there. If that is the whole answer, it waits until the settlement is written down.
    pub(crate) async fn begun(&mut self) {
        let _ = poll_fn(|cx| Poll::Ready(self.poll_upstream(cx))).await;
        poll_fn(|cx| self.poll_settled(cx)).await;
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        loop {
            // Until it is known whether more is reserved, nothing more is taken in.
            ready!(self.poll_cover(cx));
            ready!(self.poll_upstream(cx));
            ready!(self.poll_settled(cx));
            // What the filter keeps back is no frame, and neither is what is not reserved yet.
            if let Some(frame) = self.emit() {
                return Poll::Ready(Some(frame));
            }
            if self.upstream.is_none() {
                return Poll::Ready(None);
            }
        }
    }

    /// Waits for the store, if it is being asked for more.
    fn poll_cover(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(metering) = self.metering.as_mut().filter(|_| self.uncovered.is_some()) else {
            return Poll::Ready(());
        };
        if let Some(Cover::CutOff(cause)) = ready!(metering.poll_cover(cx)) {
            self.cut_off(&cause);
        }
        // What is covered by now, or was not to be covered, is passed on by the next emit.
        Poll::Ready(())
    }

    /// Waits until the settlement is written down, so that no client has an end that a kill undoes.
    fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(settled) = &mut self.settled {
            // Where that fails the call comes back as it was before.
            let _ = ready!(Pin::new(settled).poll(cx));
            self.settled = None;
        }
        Poll::Ready(())
    }

    /// Takes in what is there, until there is something to pass on or the upstream is done.
    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.uncovered.is_some() {
            return Poll::Ready(());
        }
        while let Some(upstream) = self.upstream.as_mut() {
            match Pin::new(upstream).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if self.take_in(frame) {
                        break;
                    }
                }
                Poll::Ready(Some(Err(error))) => self.fail(RelayError::Broken(error)),
                Poll::Ready(None) => self.finish(),
                Poll::Pending => match self.merge.idle() {
                    Idle::Emit => break,
                    Idle::AskAgain => {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Idle::Wait if self.is_too_idle(cx) => self.fail(RelayError::Idle),
                    Idle::Wait => return Poll::Pending,
                },
            }
        }
        Poll::Ready(())
    }

    /// Whether nothing is held and nothing is expected at once.
    pub(crate) fn is_waiting(&self) -> bool {
        self.merge.is_waiting()
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.upstream.is_none() && self.merge.is_empty() && self.trailers.is_none() && self.failure.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let (Some(upstream), None) = (&self.upstream, &self.filter) else { return SizeHint::default() };
        let held = self.merge.len() + self.uncovered.as_ref().map_or(0, Bytes::len);
        let bytes = upstream.size_hint().exact().and_then(|rest| rest.checked_add(u64::try_from(held).ok()?));
        bytes.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Takes a frame in. True when what is held should be passed on.
    fn take_in(&mut self, frame: Frame<Bytes>) -> bool {
        self.progressed = true;
        let full = match frame.into_data() {
            Ok(data) => self.merge.push(data),
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                return false;
            }
        };
        if self.upstream.as_ref().is_some_and(HttpBody::is_end_stream) {
            self.finish();
        }
        full
    }

    /// What is held as the client gets it. It is metered here, not as it comes: events that came
    /// together are read together.
    fn metered(&mut self) -> Option<Bytes> {
        let held = self.merge.take()?;
        if let Some(metering) = &mut self.metering {
            metering.read(&held);
        }
        Some(match &mut self.filter {
            Some(filter) => filter.push(held),
            None => held,
        })
    }

    /// What is held, to be passed on as it is: no more comes.
    fn pass_held(&mut self) -> Option<Bytes> {
        let bytes = self.uncovered.take().or_else(|| self.metered())?;
        self.tail.passed(&bytes);
        Some(bytes)
    }

    /// What is held, once it is reserved.
    fn pass_covered(&mut self) -> Option<Bytes> {
        if self.uncovered.is_none() {
            self.uncovered = Some(self.metered()?);
            match self.metering.as_mut().map(|metering| metering.cover()) {
                None | Some(Cover::Held) => {}
                Some(Cover::Asking) => return None,
                Some(Cover::CutOff(cause)) => {
                    self.cut_off(&cause);
                    return self.merge.take();
                }
            }
        }
        self.pass_held()
    }

    /// The answer ends here for a reason of ours. Of what has been metered, whole events are passed on, and
    /// after them the client is told why in its protocol; where that is not possible its connection breaks.
    pub(crate) fn cut_off(&mut self, cause: &Refused) {
        if self.upstream.is_none() {
            // It has ended by itself.
            return;
        }
        let bytes = self.uncovered.take().or_else(|| self.metered()).unwrap_or_default();
        // The provider is cut off at once.
        self.upstream = None;
        let whole = bytes.slice(..self.tail.whole_events(&bytes));
        self.tail.passed(&whole);
        self.merge.push(whole);
        match self.tail.event(cause.kind, cause.reason, &cause.message) {
            Some(event) => {
                self.merge.push(event);
            }
            None => self.failure = Some(RelayError::CutOff),
        }
        if let Some(mut metering) = self.metering.take() {
            metering.cut_off(cause.reason);
        }
    }

    /// Nothing more comes: what is left is put where it waits for its turn, already metered.
    fn close(&mut self) {
        let held = self.pass_held();
        let kept_back = self.filter.as_mut().map(StreamFilter::finish);
        if let Some(kept_back) = &kept_back {
            self.tail.passed(kept_back);
        }
        self.upstream = None;
        for bytes in [held, kept_back].into_iter().flatten() {
            self.merge.push(bytes);
        }
    }

    /// The upstream's answer is whole.
    fn finish(&mut self) {
        self.close();
        let Some(mut metering) = self.metering.take() else { return };
        let Ended { is_finished, has_error, written } = metering.end(Outcome::UpstreamBroken);
        self.settled = written;
        // The connection ended as it should, the answer did not.
        if !is_finished
            && !has_error
            && let Some(event) = self.tail.error_event(&RelayError::Cut)
        {
            self.merge.push(event);
        }
    }

    /// The upstream broke off. What was held is passed on; then the client is told so in its protocol
    /// where that is possible, and by a broken connection where not. It never looks like an end.
    fn fail(&mut self, error: RelayError) {
        self.close();
        let ended = self.metering.take().map(|mut metering| metering.end(Outcome::UpstreamBroken));
        let has_error = ended.as_ref().is_some_and(|ended| ended.has_error);
        self.settled = ended.and_then(|ended| ended.written);
        // Nothing follows an error of the provider's own.
        match self.tail.error_event(&error).filter(|_| !has_error) {
            Some(event) => {
                self.merge.push(event);
            }
            None => self.failure = Some(error),
        }
    }

    /// The next frame for the client, if there is one.
    fn emit(&mut self) -> Option<Result<Frame<Bytes>, RelayError>> {
        let bytes = if self.upstream.is_some() { self.pass_covered() } else { self.merge.take() };
        if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
            return Some(Ok(Frame::data(bytes)));
        }
        if self.uncovered.is_some() {
            return None;
        }
        if let Some(error) = self.failure.take() {
            return Some(Err(error));
        }
        self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))
    }

    /// Whether the upstream has sent nothing for longer than it may. The timer is not touched by
    /// frames: it looks back when it fires, so the real bound lies between one and two time-outs.
    fn is_too_idle(&mut self, cx: &mut Context<'_>) -> bool {
        let timeout = self.idle_timeout;
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(timeout)));
        while idle.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.progressed) {
                return true;
            }
            idle.set(sleep(timeout));
        }
        false
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // What has come and has not been passed on was used all the same.
        self.pass_held();
        let (Some(metering), Some(upstream)) = (self.metering.take(), self.upstream.take()) else { return };
        let Some(app) = metering.call().map(|call| call.app().clone()) else { return };
        if !app.drain.is_zero() {
            app.tasks.spawn(read_on(upstream, metering, app.drain));
        }
    }
}

/// Reads an answer on after its client has left, so that its final usage can still arrive; no further than
/// is reserved for it.
async fn read_on(mut upstream: Incoming, mut metering: Box<Metering>, drain: Duration) {
    let read = async {
        while let Some(Ok(frame)) = upstream.frame().await {
            if let Ok(data) = frame.into_data() {
                metering.read(&data);
                if !metering.is_covered().await {
                    return;
                }
            }
        }
    };
    let _ = tokio::time::timeout(drain, read).await;
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}
