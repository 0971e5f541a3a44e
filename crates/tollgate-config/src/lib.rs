//! The configuration file: TOML to validated types, with errors that name file, field and allowed values.
//!
//! [`Config::load`] either returns a configuration in which every value is known, in range and
//! consistent with the others, secrets included, or all problems at once. It reads environment
//! variables and files through [`Environment`] only, and knows neither HTTP nor the price table.
#![deny(clippy::float_arithmetic)]

mod alert;
mod config;
mod environment;
mod error;
mod limit;
mod model_globs;
mod money;
mod nearest;
mod parse;
mod problems;
mod provider;
mod run;
mod secret;
mod section;
mod tenant;

pub use alert::{Alert, THRESHOLDS_PERCENT};
pub use config::{
    Config, Fsync, OpenAiSessionField, OutputReservation, Pricing, RedisStore, Reservation, Server, Sessions,
    Store, Unpriced, UsageLog,
};
pub use environment::{Environment, FILE_BYTES_MAX, ProcessEnvironment};
pub use error::{ConfigError, ConfigErrors};
pub use limit::{Algorithm, Budget, BudgetWindow, RateLimit, Scope, ScopedLimit, Unit};
pub use model_globs::ModelGlobs;
pub use nearest::nearest;
pub use provider::{BaseUrl, Protocol, Provider, Route};
pub use run::{Run, RunOwner};
pub use secret::Secret;
pub use tenant::{Attributes, Key, KeyHash, Tenant};
