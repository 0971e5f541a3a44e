//! The locks: the standard library's, or those of a scheduler that tries interleavings.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// The lock's value, also after a thread panicked while it held it: the limiter's transitions do
/// not stop half-way, so what a panic leaves behind is a state between two of them.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::panic;

    use super::{Mutex, PoisonError, lock};

    #[test]
    fn a_poisoned_lock_does_not_reach_callers() {
        let mutex = Mutex::new(7);
        let died = panic::catch_unwind(|| {
            let _held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            panic!("while it holds the lock");
        });
        assert!(died.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 7);
    }
}
