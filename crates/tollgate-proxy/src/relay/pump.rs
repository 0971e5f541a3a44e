//! Streams, and answers on HTTP/2 connections, run on a task of their own.
//!
//! A stream's frames come one by one, each with a turn of two tasks: the upstream connection's and the
//! one that polls the relay. A task with nothing else to do is the cheapest to poll so often; the
//! client's connection is woken once for what came together.
//!
//! HTTP/2 has a window for each stream: a client that leaves it closed stops hyper from polling the
//! body, while the connection lives on. A relay that is not polled can neither time out nor notice
//! anything. So a task polls it, and gives up a client that takes nothing for too long. An answer that was
//! given up never looks whole: its stream is reset when the client comes back.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc::{
    self,
    error::{SendTimeoutError, TrySendError},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Relay, RelayError};
use crate::{
    refuse::Refused,
    server::{CLIENT_STALL_MAX, OpenRequests},
};

/// The most that an HTTP/2 client is given at a time: who takes that much in time is not given up.
const SLICE_BYTES: usize = 8 * 1024;

type Piece = Result<Frame<Bytes>, RelayError>;

/// What the task hands over.
#[derive(Debug)]
enum Turn {
    /// The answer has begun, and nothing of its body is there yet.
    Begun,
    Piece(Piece),
    /// There is no more. Where this does not come the answer was given up.
    End,
}

/// How long a client may take.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Of HTTP/2: how long it may take nothing, and its request, which is open until it has taken all or is given
    /// up.
    windows: Option<(Duration, OpenRequests)>,
}

impl Pace {
    /// What its connection allows: that is closed when nothing can be written to it.
    pub(crate) const fn of_connection() -> Self {
        Self { windows: None }
    }

    /// That of a stream with a window of its own.
    pub(crate) const fn of_windows(open: OpenRequests) -> Self {
        Self { windows: Some((CLIENT_STALL_MAX, open)) }
    }
}

/// The end of the pump that the connection reads.
#[derive(Debug)]
pub(crate) struct Pumped {
    receiver: mpsc::Receiver<Turn>,
    first: Option<Piece>,
    /// What is left of a piece.
    rest: Bytes,
    slice_bytes: usize,
    /// How often something was taken.
    taken: Arc<AtomicU64>,
    is_over: bool,
}

impl Pumped {
    /// Starts a task that polls `relay`, and drops it when the client is slower than `pace`. It is cut off when
    /// `cutting` is.
    pub(crate) fn start(
        relay: Box<Relay>,
        pace: Pace,
        tasks: &TaskTracker,
        cutting: &CancellationToken,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        let taken = Arc::default();
        let slice_bytes = if pace.windows.is_some() { SLICE_BYTES } else { usize::MAX };
        let client = Client { sender, pace, taken: Arc::clone(&taken) };
        tasks.spawn(pump(relay, client, cutting.clone()));
        Self { receiver, first: None, rest: Bytes::new(), slice_bytes, taken, is_over: false }
    }

    /// Waits for what came together with the answer's head, so that both leave together. Does not
    /// wait for the provider.
    pub(crate) async fn begun(&mut self) {
        match self.receiver.recv().await {
            Some(Turn::Piece(piece)) => self.first = Some(piece),
            Some(Turn::End) => self.is_over = true,
            Some(Turn::Begun) | None => {}
        }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.rest.is_empty() {
            let Some(piece) = ready!(self.poll_piece(cx)) else { return Poll::Ready(None) };
            match piece.map(Frame::into_data) {
                Ok(Ok(data)) => self.rest = data,
                Ok(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        let slice = self.rest.split_to(self.rest.len().min(self.slice_bytes));
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        while !self.is_over {
            match ready!(self.receiver.poll_recv(cx)) {
                Some(Turn::Piece(piece)) => return Poll::Ready(Some(piece)),
                Some(Turn::Begun) => {}
                Some(Turn::End) => self.is_over = true,
                None => {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(RelayError::Unread)));
                }
            }
        }
        Poll::Ready(None)
    }
}

/// The end of the pump that the task has.
struct Client {
    sender: mpsc::Sender<Turn>,
    pace: Pace,
    taken: Arc<AtomicU64>,
}

impl Client {
    /// Hands over the next turn, once the one before is taken; whether that was in time.
    async fn hand_over(&self, turn: Turn) -> bool {
        let turn = match self.sender.try_send(turn) {
            Ok(()) => return true,
            Err(TrySendError::Full(turn)) => turn,
            Err(TrySendError::Closed(_)) => return false,
        };
        let Some((patience, _)) = self.pace.windows else { return self.sender.send(turn).await.is_ok() };
        let (mut waits, mut taken) = (turn, self.taken());
        loop {
            match self.sender.send_timeout(waits, patience).await {
                Ok(()) => return true,
                Err(SendTimeoutError::Closed(_)) => return false,
                Err(SendTimeoutError::Timeout(turn)) => waits = turn,
            }
            if std::mem::replace(&mut taken, self.taken()) == taken {
                return false;
            }
        }
    }

    /// Hands over the end, and waits until all is taken where its request is open until then.
    async fn end(&self) {
        if !self.hand_over(Turn::End).await {
            return;
        }
        let Some((patience, _)) = self.pace.windows else { return };
        let mut taken = self.taken();
        while tokio::time::timeout(patience, self.sender.closed()).await.is_err() {
            if std::mem::replace(&mut taken, self.taken()) == taken {
                return;
            }
        }
    }

    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

async fn pump(mut relay: Box<Relay>, client: Client, cutting: CancellationToken) {
    let (mut has_begun, mut is_cut) = (false, false);
    let mut cut = pin!(cutting.cancelled());
    loop {
        let next = poll_fn(|cx| match relay.poll_frame(cx) {
            Poll::Pending if !has_begun && relay.is_waiting() => Poll::Ready(Some(Turn::Begun)),
            polled => polled.map(|piece| piece.map(Turn::Piece)),
        });
        let turn = tokio::select! {
            turn = next => turn,
            () = client.sender.closed() => return,
            () = cut.as_mut(), if !is_cut => {
                is_cut = true;
                relay.cut_off(&shutting_down());
                continue;
            }
        };
        let Some(turn) = turn else { break };
        has_begun = true;
        if !client.hand_over(turn).await {
            return;
        }
    }
    drop(relay);
    client.end().await;
}

fn shutting_down() -> Refused {
    let message = "The proxy shuts down, and this answer was still running at the end of its drain.";
    Refused::unavailable("shutting_down", message)
}
