//! Which limits a request meets, and what it may use of each.

use std::sync::Arc;

use tollgate_limiter::Plan;

/// Turns a request into the plan that is reserved before the inner service sees it.
///
/// Implemented for closures, and for anything in an `Arc`.
pub trait Planner<Request> {
    /// The limits that `request` meets with what it may use of each; `None` if it is not limited.
    ///
    /// A plan that is the same for many requests is made once and cloned.
    fn plan(&self, request: &Request) -> Option<Arc<Plan>>;
}

impl<Request, F: Fn(&Request) -> Option<Arc<Plan>>> Planner<Request> for F {
    fn plan(&self, request: &Request) -> Option<Arc<Plan>> {
        self(request)
    }
}
