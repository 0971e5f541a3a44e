//! A request's body, read with bounds on its size, its time, and the memory of all of them.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_providers::ErrorKind;

use crate::refuse::Refused;

/// How long a client may pause within its body.
const BODY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a client may take for its whole body.
const BODY_TIME_MAX: Duration = Duration::from_secs(300);

/// Bodies up to this size need no share: what limits them is the number of connections.
const SMALL_BODY_BYTES: usize = 64 * 1024;

/// The memory of all larger bodies together, in units of a small one: 1 GiB. A body beyond it waits.
const LARGE_BODIES_MAX: usize = 16 * 1024;

/// How long a body that has a part of its share waits for more of it.
const MORE_WAIT_MAX: Duration = Duration::from_secs(10);

/// A request's body, and its share of the memory that all of them may take.
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

/// The shares of large bodies.
pub(crate) fn large_bodies() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LARGE_BODIES_MAX))
}

/// Reads a request's body, at most `max_bytes` of it.
pub(crate) async fn read(body: Incoming, max_bytes: usize, large: &Arc<Semaphore>) -> Result<Held, Refused> {
    within(BODY_TIME_MAX, pin!(read_all(body, max_bytes, large))).await?
}

async fn read_all(mut body: Incoming, max_bytes: usize, large: &Arc<Semaphore>) -> Result<Held, Refused> {
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    let announced = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let Some(first) = next_data(&mut body).await? else {
        return Ok(Held { bytes: Bytes::new(), _share: None });
    };
    let Some(second) = next_data(&mut body).await? else {
        let mut share = Share::new(large, max_bytes);
        share.grow_to(first.len()).await?;
        return Ok(Held { bytes: first, _share: share.permit });
    };
    let mut whole = Whole { bytes: BytesMut::new(), share: Share::new(large, max_bytes) };
    whole.begin(announced);
    whole.push(&first).await?;
    whole.push(&second).await?;
    while let Some(data) = next_data(&mut body).await? {
        whole.push(&data).await?;
    }
    let bytes = whole.bytes.freeze();
    Ok(Held { _share: whole.share.of(bytes.len()), bytes })
}

/// A body's share of the memory of all of them. It grows with what has come, not with what is announced: who
/// sends little by little must not keep others waiting.
struct Share<'a> {
    large: &'a Arc<Semaphore>,
    max_bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl<'a> Share<'a> {
    const fn new(large: &'a Arc<Semaphore>, max_bytes: usize) -> Self {
        Self { large, max_bytes, permit: None }
    }

    /// How many bytes it has room for.
    fn room(&self) -> usize {
        let units = self.permit.as_ref().map_or(1, OwnedSemaphorePermit::num_permits);
        units.saturating_mul(SMALL_BODY_BYTES)
    }

    /// Takes all of `bytes` at once, as long as that leaves half of the memory to others.
    fn take_ahead(&mut self, bytes: usize) {
        let Some(units) = units(bytes) else { return };
        if self.large.available_permits().saturating_sub(units) >= LARGE_BODIES_MAX / 2 {
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            self.permit = self.large.clone().try_acquire_many_owned(units).ok();
        }
    }

    /// Waits until there is room for `bytes`.
    async fn grow_to(&mut self, bytes: usize) -> Result<(), Refused> {
        if bytes > self.max_bytes {
            return Err(too_large(self.max_bytes));
        }
        let Some(needed) = units(bytes).filter(|_| bytes > self.room()) else { return Ok(()) };
        let has = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        // In steps that double, as the memory itself.
        let most = self.max_bytes.div_ceil(SMALL_BODY_BYTES).min(LARGE_BODIES_MAX);
        let more = needed.max(2 * has).min(most).saturating_sub(has);
        let acquire = self.large.clone().acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX));
        let acquired = match &self.permit {
            None => acquire.await.ok(),
            // Those that wait for each other's parts would wait for ever.
            Some(_) => tokio::time::timeout(MORE_WAIT_MAX, acquire).await.ok().and_then(Result::ok),
        };
        let acquired = acquired.ok_or_else(overloaded)?;
        match &mut self.permit {
            Some(permit) => permit.merge(acquired),
            none => *none = Some(acquired),
        }
        Ok(())
    }

    /// What of it a body of `bytes` needs.
    fn of(self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let needed = units(bytes)?;
        let mut permit = self.permit?;
        let surplus = permit.num_permits().saturating_sub(needed);
        drop(permit.split(surplus));
        Some(permit)
    }
}

/// How many units a body takes; `None`: it needs no share.
fn units(bytes: usize) -> Option<usize> {
    (bytes > SMALL_BODY_BYTES).then(|| bytes.div_ceil(SMALL_BODY_BYTES).min(LARGE_BODIES_MAX))
}

/// A body that came in several pieces.
struct Whole<'a> {
    bytes: BytesMut,
    share: Share<'a>,
}

impl Whole<'_> {
    /// Room for all that is announced, where there is enough for others too.
    fn begin(&mut self, announced: Option<usize>) {
        let announced = announced.unwrap_or(0);
        self.share.take_ahead(announced);
        self.bytes.reserve(announced.min(self.share.room()));
    }

    async fn push(&mut self, data: &[u8]) -> Result<(), Refused> {
        self.share.grow_to(self.bytes.len().saturating_add(data.len())).await?;
        self.bytes.extend_from_slice(data);
        Ok(())
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

fn overloaded() -> Refused {
    let message = "Too many large bodies are on their way here. Try again in a few seconds.";
    Refused::unavailable("overloaded", message)
}
