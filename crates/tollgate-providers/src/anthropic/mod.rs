//! Anthropic's Messages API.

mod report;
mod request;
mod usage;
mod user_id;

pub(crate) use request::inspect;
pub(crate) use usage::Reader;
