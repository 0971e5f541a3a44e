//! Streams, and answers on HTTP/2 connections, run on a task of their own.
//!
//! A stream's frames come one by one, each with a turn of two tasks: the upstream connection's and the
//! one that polls the relay. A task with nothing else to do is the cheapest to poll so often; the
//! client's connection is woken once for what came together.
//!
//! HTTP/2 has a window for each stream: a client that leaves it closed stops hyper from polling the
//! body, while the connection lives on. A relay that is not polled can neither time out nor notice
//! anything. So a task polls it, and gives up a client that takes nothing for too long.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Relay, RelayError};
use crate::refuse::Refused;

type Piece = Result<Frame<Bytes>, RelayError>;

/// What the task hands over.
#[derive(Debug)]
enum Turn {
    /// The answer has begun, and nothing of its body is there yet.
    Begun,
    Piece(Piece),
}

/// The end of the pump that the connection reads.
#[derive(Debug)]
pub(crate) struct Pumped {
    receiver: mpsc::Receiver<Turn>,
    first: Option<Piece>,
}

impl Pumped {
    /// Starts a task that polls `relay`, and drops it when the client has taken nothing for `patience`.
    /// It is cut off when `cutting` is.
    pub(crate) fn start(
        relay: Box<Relay>,
        patience: Duration,
        tasks: &TaskTracker,
        cutting: &CancellationToken,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        tasks.spawn(pump(relay, sender, patience, cutting.clone()));
        Self { receiver, first: None }
    }

    /// Waits for what came together with the answer's head, so that both leave together. Does not
    /// wait for the provider.
    pub(crate) async fn begun(&mut self) {
        if let Some(Turn::Piece(piece)) = self.receiver.recv().await {
            self.first = Some(piece);
        }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        loop {
            match self.receiver.poll_recv(cx) {
                Poll::Ready(Some(Turn::Piece(piece))) => return Poll::Ready(Some(piece)),
                Poll::Ready(Some(Turn::Begun)) => {}
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

async fn pump(
    mut relay: Box<Relay>,
    sender: mpsc::Sender<Turn>,
    patience: Duration,
    cutting: CancellationToken,
) {
    let (mut has_begun, mut is_cut) = (false, false);
    let cut = cutting.cancelled();
    tokio::pin!(cut);
    loop {
        let next = poll_fn(|cx| match relay.poll_frame(cx) {
            Poll::Pending if !has_begun && relay.is_waiting() => Poll::Ready(Some(Turn::Begun)),
            polled => polled.map(|piece| piece.map(Turn::Piece)),
        });
        let turn = tokio::select! {
            turn = next => turn,
            () = sender.closed() => return,
            () = cut.as_mut(), if !is_cut => {
                is_cut = true;
                relay.cut_off(&shutting_down());
                continue;
            }
        };
        let Some(turn) = turn else { return };
        has_begun = true;
        let sent = match sender.try_send(turn) {
            Ok(()) => true,
            Err(TrySendError::Full(turn)) => sender.send_timeout(turn, patience).await.is_ok(),
            Err(TrySendError::Closed(_)) => false,
        };
        if !sent {
            return;
        }
    }
}

fn shutting_down() -> Refused {
    let message = "The proxy shuts down, and this answer was still running at the end of its drain.";
    Refused::unavailable("shutting_down", message)
}
