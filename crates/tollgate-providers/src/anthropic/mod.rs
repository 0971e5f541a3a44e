//! Anthropic's Messages API.

mod batch;
mod report;
mod request;
mod usage;

pub use batch::BatchResultsMeter;
pub(crate) use request::inspect;
pub(crate) use usage::Reader;
