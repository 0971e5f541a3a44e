//! OpenAI's Chat Completions API, and what is compatible with it.

mod filter;
mod request;
mod stream_options;
mod usage;

pub use filter::StreamFilter;
pub(crate) use request::inspect;
pub(crate) use stream_options::UsageFlag;
pub use stream_options::is_stream_options_rejection;
pub(crate) use usage::Reader;
