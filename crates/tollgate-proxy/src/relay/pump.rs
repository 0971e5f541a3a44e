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
use tokio_util::task::TaskTracker;

use super::{Relay, RelayError};

type Piece = Result<Frame<Bytes>, RelayError>;

/// The end of the pump that the connection reads.
#[derive(Debug)]
pub(crate) struct Pumped(mpsc::Receiver<Piece>);

impl Pumped {
    /// Starts a task that polls `relay`, and drops it when the client has taken nothing for `patience`.
    pub(crate) fn start(relay: Box<Relay>, patience: Duration, tasks: &TaskTracker) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        tasks.spawn(pump(relay, sender, patience));
        Self(receiver)
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.0.poll_recv(cx)
    }
}

async fn pump(mut relay: Box<Relay>, sender: mpsc::Sender<Piece>, patience: Duration) {
    loop {
        let piece = tokio::select! {
            piece = poll_fn(|cx| relay.poll_frame(cx)) => piece,
            () = sender.closed() => return,
        };
        let Some(piece) = piece else { return };
        let sent = match sender.try_send(piece) {
            Ok(()) => true,
            Err(TrySendError::Full(piece)) => sender.send_timeout(piece, patience).await.is_ok(),
            Err(TrySendError::Closed(_)) => false,
        };
        if !sent {
            return;
        }
    }
}
