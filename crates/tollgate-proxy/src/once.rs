//! Requests that name themselves with `idempotency-key`: while one is open, its repetitions are not sent.

use std::{
    collections::{HashSet, hash_map::RandomState},
    hash::{BuildHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use http::HeaderMap;
use tollgate_providers::ErrorKind;

use crate::{headers, refuse::Refused};

/// What `retry-after` says.
const RETRY_AFTER_SECONDS: u64 = 1;

/// The requests that are open and have named themselves. There are no more than open requests.
#[derive(Debug, Default)]
pub(crate) struct Once {
    /// Hashes with keys that nobody knows: callers choose what they name.
    open: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

/// A request that is open under its name. Dropping it frees the name.
#[derive(Debug)]
pub(crate) struct Named {
    once: Arc<Once>,
    id: u64,
}

impl Once {
    /// Takes the name of a request of the key `key`; `None`: it has none.
    ///
    /// # Errors
    ///
    /// 429: the same key has an open request of this name.
    pub(crate) fn name(self: &Arc<Self>, key: &str, map: &HeaderMap) -> Result<Option<Arc<Named>>, Refused> {
        let mut hasher = self.hasher.build_hasher();
        key.hash(&mut hasher);
        let values = map.get_all(headers::IDEMPOTENCY_KEY);
        if values.iter().next().is_none() {
            return Ok(None);
        }
        values.iter().for_each(|value| value.as_bytes().hash(&mut hasher));
        let id = hasher.finish();
        let is_new = self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        is_new.then(|| Some(Arc::new(Named { once: self.clone(), id }))).ok_or_else(|| Refused {
            retry_after_seconds: Some(RETRY_AFTER_SECONDS),
            ..Refused::new(
                ErrorKind::RateLimited,
                "request_in_flight",
                "A request with this `idempotency-key` is still running, and this one was not sent: wait for its \
                 answer, or send the request again once it is over.",
            )
        })
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.once.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
