//! Where the layer's calls and its store meet.

use std::{
    fmt,
    future::{self, Future},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tollgate_limiter::{Attempt, ExactAmount, Held, Settled, Verdict};
use tollgate_store::{Store, StoreError, StoreFuture};

/// A reserve that owns what it asks for.
pub(crate) type Asking = Pin<Box<dyn Future<Output = Result<Verdict, StoreError>> + Send>>;

type Spawn = Box<dyn Fn(Settling) + Send + Sync>;

/// A settle that goes on after its call is over, or has failed. Handed to
/// [`LimitLayer::spawn_with`](crate::LimitLayer::spawn_with).
#[must_use = "a settle does nothing unless it is run to its end"]
pub struct Settling(Pin<Box<dyn Future<Output = Result<Settled, Unsettled>> + Send>>);

impl Future for Settling {
    type Output = Result<Settled, Unsettled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Settling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settling").finish_non_exhaustive()
    }
}

/// A settle that the store did not take. The reservation stays charged as it was reserved until the
/// same settle is sent again, which may be done at any time and any number of times.
#[derive(Debug, thiserror::Error)]
#[error("a reservation could not be settled: {error}")]
pub struct Unsettled {
    /// What is held.
    pub held: Held,
    /// What was used, entry by entry.
    pub actuals: Vec<ExactAmount>,
    /// What the store said.
    #[source]
    pub error: StoreError,
}

/// The store, and who waits for it where nobody else can.
pub(crate) struct Desk {
    store: Arc<dyn Store>,
    spawn: Option<Spawn>,
}

impl Desk {
    pub(crate) fn new(store: Arc<dyn Store>, spawn: Option<Spawn>) -> Self {
        Self { store, spawn }
    }

    pub(crate) const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) const fn can_spawn(&self) -> bool {
        self.spawn.is_some()
    }

    pub(crate) fn reserve(&self, held: &Held) -> StoreFuture<'_, Verdict> {
        self.store.reserve(held.id, Arc::clone(&held.plan), Attempt::First)
    }

    /// Settles at once, or has it done.
    pub(crate) fn settle(&self, held: Held, actuals: &[ExactAmount]) {
        let settling = match self.store.settle(&held, actuals).now_or_later() {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => {
                let unsettled = Unsettled { held, actuals: actuals.to_vec(), error };
                Settling(Box::pin(future::ready(Err(unsettled))))
            }
            Err(later) => {
                let actuals = actuals.to_vec();
                Settling(Box::pin(
                    async move { later.await.map_err(|error| Unsettled { held, actuals, error }) },
                ))
            }
        };
        if let Some(spawn) = &self.spawn {
            spawn(settling);
        }
    }
}
