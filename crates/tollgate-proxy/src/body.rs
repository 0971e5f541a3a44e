//! What a response carries: bytes that are there, or a provider's answer on its way through.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::{
    app::Parts,
    relay::{Pace, Pumped, Relay, RelayError},
    server::OpenRequests,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Body {
    kind: Kind,
    /// Whether a relay runs on a task of its own.
    is_on_a_task: bool,
    /// Its request, which is open until it is gone.
    _open: Option<OpenRequests>,
}

#[derive(Debug)]
enum Kind {
    Whole(Full<Bytes>),
    Relay(Box<Relay>),
    Pumped(Box<Pumped>),
}

impl Body {
    /// An answer of our own.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::of(Kind::Whole(Full::new(bytes.into())))
    }

    /// A provider's answer on its way through.
    pub(crate) fn relay(relay: Relay) -> Self {
        Self::of(Kind::Relay(Box::new(relay)))
    }

    const fn of(kind: Kind) -> Self {
        Self { kind, is_on_a_task: false, _open: None }
    }

    /// The same, to run on a task of its own.
    pub(crate) fn on_a_task(self) -> Self {
        Self { is_on_a_task: true, ..self }
    }

    /// The same, about to be sent. Its request counts as open while a provider's answer is on its way: one of
    /// our own waits for nobody but a client that does not read it.
    pub(crate) fn started(self, open: OpenRequests, is_http2: bool, app: &Parts) -> Self {
        match self.kind {
            Kind::Relay(relay) if is_http2 => {
                let pace = Pace::of_windows(open);
                Self::of(Kind::Pumped(Box::new(Pumped::start(relay, pace, &app.tasks, &app.cutting))))
            }
            Kind::Relay(relay) if self.is_on_a_task => {
                let pumped = Pumped::start(relay, Pace::of_connection(), &app.tasks, &app.cutting);
                Self { _open: Some(open), ..Self::of(Kind::Pumped(Box::new(pumped))) }
            }
            kind @ Kind::Relay(_) => Self { _open: Some(open), ..Self::of(kind) },
            kind => Self::of(kind),
        }
    }

    /// Takes in what came together with the answer's head, so that it leaves with it. Does not wait for the
    /// provider.
    pub(crate) async fn begun(&mut self) {
        match &mut self.kind {
            Kind::Whole(_) => {}
            Kind::Relay(relay) => relay.begun().await,
            Kind::Pumped(pumped) => pumped.begun().await,
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.get_mut().kind {
            Kind::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Kind::Relay(relay) => relay.poll_frame(cx),
            Kind::Pumped(pumped) => pumped.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(body) => body.is_end_stream(),
            Kind::Relay(relay) => relay.is_end_stream(),
            Kind::Pumped(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(body) => body.size_hint(),
            Kind::Relay(relay) => relay.size_hint(),
            Kind::Pumped(_) => SizeHint::default(),
        }
    }
}
