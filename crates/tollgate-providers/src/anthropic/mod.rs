//! Anthropic's Messages API.

mod report;
mod request;
mod usage;

pub(crate) use request::inspect;
pub(crate) use usage::Reader;
