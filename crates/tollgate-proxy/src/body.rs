//! Bodies: the request's, read with bounds; the response's, one of two kinds.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_providers::ErrorKind;

use crate::{
    app::Parts,
    refuse::Refused,
    relay::{Pumped, Relay, RelayError},
    server::{CLIENT_STALL_MAX, OpenRequests},
};

/// How long a client may pause within its body.
const BODY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a client may take for its whole body.
const BODY_TIME_MAX: Duration = Duration::from_secs(300);

/// What a response carries. Its request counts as open until it is gone.
#[derive(Debug)]
pub(crate) struct Body {
    kind: Kind,
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
        Self { kind: Kind::Whole(Full::new(bytes.into())), _open: None }
    }

    /// A provider's answer on its way through.
    pub(crate) fn relay(relay: Relay) -> Self {
        Self { kind: Kind::Relay(Box::new(relay)), _open: None }
    }

    /// The same, counted among the connection's open requests.
    pub(crate) fn counted(self, open: OpenRequests) -> Self {
        Self { _open: Some(open), ..self }
    }

    /// The same with a relay that runs on a task of its own.
    pub(crate) fn pumped(self, app: &Parts) -> Self {
        let kind = match self.kind {
            Kind::Relay(relay) => {
                Kind::Pumped(Box::new(Pumped::start(relay, CLIENT_STALL_MAX, &app.tasks, &app.cutting)))
            }
            kind => kind,
        };
        Self { kind, ..self }
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

/// A request's body, and its share of the memory that all of them may take.
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

/// Bodies up to this size need no share: what limits them is the number of connections.
const SMALL_BODY_BYTES: usize = 64 * 1024;

/// The memory of all larger bodies together, in units of a small one: 1 GiB. A body beyond it waits.
const LARGE_BODIES_MAX: usize = 16 * 1024;

/// The shares of large bodies.
pub(crate) fn large_bodies() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LARGE_BODIES_MAX))
}

/// Reads a request's body, at most `max_bytes` of it.
pub(crate) async fn read(body: Incoming, max_bytes: usize, large: &Arc<Semaphore>) -> Result<Held, Refused> {
    within(BODY_TIME_MAX, pin!(read_all(body, max_bytes, large))).await?
}

async fn read_all(mut body: Incoming, max_bytes: usize, large: &Arc<Semaphore>) -> Result<Held, Refused> {
    let announced = body.size_hint().lower();
    if announced > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    // A body that does not say how long it is may become as long as any.
    let size =
        body.size_hint().exact().map_or(max_bytes, |bytes| usize::try_from(bytes).unwrap_or(max_bytes));
    let share = share(size.min(max_bytes), large).await?;
    let held = |bytes| Ok(Held { bytes, _share: share });
    let Some(first) = next_data(&mut body).await? else { return held(Bytes::new()) };
    let mut whole = Whole { bytes: BytesMut::new(), max_bytes };
    let Some(second) = next_data(&mut body).await? else {
        whole.check(first.len())?;
        return held(first);
    };
    // At most `max_bytes`, as checked above; exact where the request has a content-length.
    whole.bytes.reserve(usize::try_from(announced).unwrap_or(0));
    whole.push(&first)?;
    whole.push(&second)?;
    while let Some(data) = next_data(&mut body).await? {
        whole.push(&data)?;
    }
    held(whole.bytes.freeze())
}

/// Waits for a body's share of the memory, if it needs one.
async fn share(bytes: usize, large: &Arc<Semaphore>) -> Result<Option<OwnedSemaphorePermit>, Refused> {
    if bytes <= SMALL_BODY_BYTES {
        return Ok(None);
    }
    let units = bytes.div_ceil(SMALL_BODY_BYTES).min(LARGE_BODIES_MAX);
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    large.clone().acquire_many_owned(units).await.map(Some).map_err(|_closed| too_slow())
}

/// A body that came in several pieces.
struct Whole {
    bytes: BytesMut,
    max_bytes: usize,
}

impl Whole {
    fn push(&mut self, data: &[u8]) -> Result<(), Refused> {
        self.check(data.len())?;
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    fn check(&self, more: usize) -> Result<(), Refused> {
        let fits = self.bytes.len().saturating_add(more) <= self.max_bytes;
        if fits { Ok(()) } else { Err(too_large(self.max_bytes)) }
    }
}

async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, Refused> {
    while let Some(frame) = next_frame(body).await? {
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn next_frame(body: &mut Incoming) -> Result<Option<Frame<Bytes>>, Refused> {
    match within(BODY_PAUSE_MAX, pin!(body.frame())).await? {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame)),
        Some(Err(_broken)) => {
            Err(Refused::new(ErrorKind::BadRequest, "bad_request", "The request's body broke off."))
        }
    }
}

/// Waits for `reading`, but not too long. What is ready at once, as small bodies are, needs no timer.
async fn within<T>(time: Duration, mut reading: Pin<&mut impl Future<Output = T>>) -> Result<T, Refused> {
    match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        Poll::Ready(read) => Ok(read),
        Poll::Pending => tokio::time::timeout(time, reading).await.map_err(|_elapsed| too_slow()),
    }
}

fn too_slow() -> Refused {
    let message =
        "The request's body did not arrive in time: send it within 5 minutes, without pauses of over 30 s.";
    Refused::new(ErrorKind::BadRequest, "bad_request", message)
}

fn too_large(max_bytes: usize) -> Refused {
    let message = format!(
        "The request's body is larger than the {max_bytes} bytes accepted here: make it smaller or raise \
         `server.max_body_bytes`."
    );
    Refused::new(ErrorKind::TooLarge, "body_too_large", message)
}
