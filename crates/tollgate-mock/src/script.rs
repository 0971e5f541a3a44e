//! The body of an answer: pieces, the time between them, and the way it ends.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::record::Records;
use crate::usage::Usage;
use crate::wire::Switch;

/// A part of a body that is written at once.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    /// Whether an event (or a piece of a plain body) ends here.
    pub(crate) ends_event: bool,
    /// Whether it counts when output is billed by how much was sent.
    pub(crate) is_content: bool,
}

/// A way to end before everything was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    Hang,
    Reset,
    Close,
    Cut,
}

/// An answer that is open: counted as such, and billed and taken off the count when it is over or dropped.
#[derive(Debug)]
pub(crate) struct Exchange {
    records: Arc<Records>,
    bill: Option<(String, Usage)>,
    label: Option<String>,
    content_sent: u64,
    content_total: u64,
    is_over: bool,
}

impl Exchange {
    pub(crate) fn open(records: Arc<Records>) -> Self {
        records.opened();
        Self { records, bill: None, label: None, content_sent: 0, content_total: 0, is_over: false }
    }

    /// The name under which its bill is kept apart.
    pub(crate) fn label(&mut self, label: Option<String>) {
        self.label = label;
    }

    /// From now on the model's provider would charge this usage, whose output comes in `content_total`
    /// pieces.
    pub(crate) fn charge(&mut self, model: String, usage: Usage, content_total: u64) {
        self.bill = Some((model, usage));
        self.content_total = content_total;
    }

    /// The mock ends the answer, so that its end is not the client's doing. Billed and taken off the count
    /// here, which is before the client can see the end.
    pub(crate) fn over(&mut self) {
        self.end(false);
    }

    fn end(&mut self, by_client: bool) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        if let Some((model, usage)) = &self.bill {
            let usage = usage.cut(self.content_sent, self.content_total);
            self.records.bill(model, self.label.as_deref(), &usage);
        }
        self.records.closed(by_client);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// A body that plays its pieces.
#[derive(Debug)]
pub(crate) struct Script {
    pieces: std::vec::IntoIter<Piece>,
    interval: Duration,
    pause: Option<Pin<Box<Sleep>>>,
    stop: Option<(u32, Stop)>,
    events_sent: u32,
    is_burst: bool,
    is_sized: bool,
    switch: Switch,
    exchange: Exchange,
}

impl Script {
    /// Plays `pieces` with `interval` between two events; `stop` says after how many events the body ends
    /// early, and how.
    pub(crate) fn new(
        pieces: Vec<Piece>,
        interval: Duration,
        stop: Option<(u32, Stop)>,
        switch: Switch,
        exchange: Exchange,
    ) -> Self {
        let pieces = pieces.into_iter();
        let (pause, events_sent) = (None, 0);
        Self {
            pieces,
            interval,
            pause,
            stop,
            events_sent,
            is_burst: false,
            is_sized: false,
            switch,
            exchange,
        }
    }

    /// Whether the pieces reach the socket in one write.
    pub(crate) fn burst(mut self, is_burst: bool) -> Self {
        self.is_burst = is_burst;
        self
    }

    /// Whether the length of the body is announced.
    pub(crate) fn sized(mut self, is_sized: bool) -> Self {
        self.is_sized = is_sized;
        self
    }

    fn stop_due(&self) -> Option<Stop> {
        self.stop.filter(|(after, _)| self.events_sent >= *after).map(|(_, stop)| stop)
    }

    fn sent(&mut self, piece: &Piece) {
        if piece.is_content {
            self.exchange.content_sent += 1;
        }
        if piece.ends_event {
            self.events_sent = self.events_sent.saturating_add(1);
            self.exchange.records.event_sent();
            if !self.interval.is_zero() && self.pieces.len() > 0 {
                self.pause = Some(Box::pin(tokio::time::sleep(self.interval)));
            }
        }
        if self.is_end_stream() {
            self.exchange.over();
        }
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if let Some(stop) = this.stop_due() {
            this.switch.uncork();
            match stop {
                Stop::Hang => return Poll::Pending,
                Stop::Reset => this.switch.reset(),
                Stop::Close => this.switch.close(),
                Stop::Cut => {}
            }
            this.exchange.over();
            return if matches!(stop, Stop::Cut) { Poll::Ready(None) } else { Poll::Pending };
        }
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(cx));
            this.pause = None;
        }
        let Some(piece) = this.pieces.next() else { return Poll::Ready(None) };
        if this.is_burst {
            if this.pieces.len() == 0 { this.switch.uncork() } else { this.switch.cork() }
        }
        this.sent(&piece);
        Poll::Ready(Some(Ok(Frame::data(piece.bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self.stop {
            Some((after, _)) if self.events_sent >= after => false,
            _ => self.pieces.len() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        if !self.is_sized {
            return SizeHint::default();
        }
        let bytes = self.pieces.as_slice().iter().map(|piece| piece.bytes.len()).sum::<usize>();
        SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
