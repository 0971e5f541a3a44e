//! `[store]`: where counters live.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use crate::section::{Field, Section};
use crate::{RedisStore, Secret, Store};

/// The fields that only a store in Redis has.
const OF_REDIS: &[&str] =
    &["url", "url_env", "prefix", "timeout_ms", "retry_seconds", "local_share", "on_failure"];

/// What a URL may begin with.
const SCHEMES: &[&str] = &[
    "redis://",
    "rediss://",
    "redis-sentinel://",
    "rediss-sentinel://",
    "redis-cluster://",
    "rediss-cluster://",
];

const PREFIX_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Memory,
    Redis,
}

pub(super) fn store(context: &Context<'_>, section: Section<'_>) -> Store {
    let kind = section.field("kind");
    let kind = kind.map(|field| field.choice(&[("memory", Kind::Memory), ("redis", Kind::Redis)]));
    let store = match kind {
        Some(Some(Kind::Redis)) => redis(context, &section).map_or(Store::Memory, Store::Redis),
        None | Some(Some(Kind::Memory)) => {
            OF_REDIS.iter().filter_map(|name| section.field(name)).for_each(|field| {
                context.problems.error(field.place(), "is for kind = \"redis\" only");
            });
            Store::Memory
        }
        // Told already; the fields may belong to what was meant.
        Some(None) => {
            OF_REDIS.iter().for_each(|name| drop(section.field(name)));
            Store::Memory
        }
    };
    section.finish();
    store
}

/// `None` after a problem that was told.
fn redis(context: &Context<'_>, section: &Section<'_>) -> Option<RedisStore> {
    let prefix = section.field("prefix").map(|field| prefix(&field));
    // No longer than an end waits for what is on its way to Redis.
    let timeout = Duration::from_millis(section.integer("timeout_ms", 10..=5_000, 250));
    let retry = Duration::from_secs(section.integer("retry_seconds", 1..=3_600, 5));
    let local_share = section.integer("local_share", 1..=100_000, 1);
    let on_failure =
        section.field("on_failure").map(|field| field.choice(&[("local", false), ("closed", true)]));
    Some(RedisStore {
        url: url(context, section)?,
        prefix: prefix.unwrap_or_else(|| Some("tollgate".into()))?,
        timeout,
        retry,
        local_share: NonZeroU64::new(local_share)?,
        closed: on_failure.unwrap_or(Some(false))?,
    })
}

fn url(context: &Context<'_>, section: &Section<'_>) -> Option<Secret> {
    let (url, url_env) = (section.field("url"), section.field("url_env"));
    let (field, url) = match (url, url_env) {
        (Some(_), Some(field)) => {
            field.fail("cannot be given together with `url`");
            return None;
        }
        (Some(field), None) => {
            let url = Secret::new(field.text()?);
            (field, url)
        }
        (None, Some(field)) => {
            let url = context.secret_from_variable(&field)?;
            (field, url)
        }
        (None, None) => {
            context.problems.error(&section.place_of("url"), "is missing: it or `url_env` must be given");
            return None;
        }
    };
    if !SCHEMES.iter().any(|scheme| url.expose().starts_with(scheme)) {
        // Not repeated: it may hold a password.
        field.fail(format!("must begin with {}", SCHEMES.join(", ")));
        return None;
    }
    Some(url)
}

fn prefix(field: &Field<'_>) -> Option<Arc<str>> {
    let text = field.text()?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if text.is_empty() || text.len() > PREFIX_BYTES_MAX || !text.bytes().all(allowed) {
        field.fail(format!("must be 1 to {PREFIX_BYTES_MAX} letters, digits, `.`, `_`, `:` or `-`"));
        return None;
    }
    Some(text.into())
}
