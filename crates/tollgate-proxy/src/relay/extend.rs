//! Asks the store for the next part of a stream's reservation.

use std::{pin::Pin, sync::Arc, time::Duration};

use tollgate_limiter::{Amount, Verdict};
use tollgate_store::{Held, Store, StoreError};

/// How long a step is asked for in all. Until then nothing more is passed on.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause before a step is asked for again.
const PAUSE: Duration = Duration::from_millis(50);

/// What a store answers.
pub(super) type Answer = Result<Verdict, StoreError>;

/// An answer to wait for.
pub(super) type Later = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Asks for one step. The answer is there at once, or has to be waited for.
pub(super) fn ask(
    store: &Arc<dyn Store>,
    held: &Held,
    step: u32,
    charges: &[Amount],
) -> Result<Answer, Later> {
    match store.extend(held, step, charges).now_or_later() {
        Ok(Err(error)) if error.is_transient() => {}
        Ok(answer) => return Ok(answer),
        // The borrowed future cannot outlive this call: the waiting one makes its own.
        Err(_later) => {}
    }
    let (store, held, charges) = (store.clone(), held.clone(), Vec::from(charges));
    Err(Box::pin(async move {
        let repeated = repeat(&*store, &held, step, &charges);
        let elapsed = |_elapsed| StoreError::Unknown("it took too long".to_owned());
        tokio::time::timeout(PATIENCE, repeated).await.map_err(elapsed)?
    }))
}

/// Asks under the same number until the answer is known: a step is charged once.
async fn repeat(store: &dyn Store, held: &Held, step: u32, charges: &[Amount]) -> Answer {
    loop {
        match store.extend(held, step, charges).await {
            Err(error) if error.is_transient() => {
                tracing::debug!(request_id = %held.id, step, %error, "an extension is asked for again");
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}
