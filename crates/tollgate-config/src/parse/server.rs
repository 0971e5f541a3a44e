//! The sections that exist once.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate_limiter::Tokens;

use super::context::Context;
use crate::section::Section;
use crate::{
    Fsync, OpenAiSessionField, OutputReservation, Pricing, Reservation, Server, Sessions, Unpriced, UsageLog,
};

const DAY_SECONDS: u64 = 86_400;
const RESERVED_TOKENS_MAX: u64 = 100_000_000;

pub(super) fn server(context: &Context<'_>, section: Section<'_>) -> Server {
    let server = Server {
        listen: address(&section, "listen", SocketAddr::from(([127, 0, 0, 1], 8080))),
        admin_listen: address(&section, "admin_listen", SocketAddr::from(([127, 0, 0, 1], 8081))),
        admin_token: section.field("admin_token_env").and_then(|field| context.secret_from_variable(&field)),
        max_body_bytes: size(section.integer("max_body_bytes", 1..=1 << 30, 32 << 20)),
        header_timeout: Duration::from_secs(section.integer("header_timeout_seconds", 1..=3_600, 10)),
        max_connections: size(section.integer("max_connections", 1..=1_000_000, 10_000)),
        drain: Duration::from_secs(section.integer("drain_seconds", 0..=DAY_SECONDS, 30)),
    };
    // Port 0 asks for any free port, a different one each time.
    if server.listen == server.admin_listen && server.listen.port() != 0 {
        context.problems.error(&section.place_of("admin_listen"), "must not be the same as `listen`");
    }
    section.finish();
    server
}

pub(super) fn usage(context: &Context<'_>, section: Section<'_>) -> UsageLog {
    let file = section.field("file").and_then(|field| context.file_name(&field));
    let usage = UsageLog {
        file: file.unwrap_or_else(|| context.base_dir.join("usage.jsonl")),
        fsync: section.field("fsync").and_then(|field| field.choice(&FSYNC)).unwrap_or(Fsync::Never),
        rotate_bytes: section.field("rotate_bytes").and_then(|field| field.integer(ROTATE_BYTES)),
        rotate_daily: section.boolean("rotate_daily", false),
        keep_files: section.field("keep_files").and_then(|field| {
            let count = field.integer(KEEP_FILES)?;
            usize::try_from(count).ok()
        }),
    };
    if usage.rotate_bytes.is_none() && !usage.rotate_daily && usage.keep_files.is_some() {
        let keep_files = section.field("keep_files");
        keep_files.iter().for_each(|field| {
            field.fail("needs \"rotate_daily = true\" or \"rotate_bytes\": otherwise there is one file");
        });
    }
    section.finish();
    usage
}

/// A file below would be one for every few thousand calls; above, none is rotated in practice.
const ROTATE_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// One at least: what was written last is not deleted at once.
const KEEP_FILES: RangeInclusive<u64> = 1..=100_000;

const FSYNC: [(&str, Fsync); 3] =
    [("never", Fsync::Never), ("second", Fsync::Second), ("always", Fsync::Always)];

/// The words for [`Unpriced`].
pub(super) const UNPRICED: [(&str, Unpriced); 3] =
    [("ignore", Unpriced::Ignore), ("warn", Unpriced::Warn), ("block", Unpriced::Block)];

pub(super) fn pricing(context: &Context<'_>, section: Section<'_>) -> Pricing {
    let file = section.field("file").and_then(|field| context.file_name(&field));
    let unpriced = section.field("unpriced").and_then(|field| field.choice(&UNPRICED));
    section.finish();
    Pricing { file, unpriced: unpriced.unwrap_or(Unpriced::Warn) }
}

pub(super) fn reservation(section: Section<'_>) -> Reservation {
    let output_tokens = section.field("output_tokens").and_then(|field| {
        if field.value().is_integer() {
            return field
                .integer(1..=RESERVED_TOKENS_MAX)
                .map(|tokens| OutputReservation::UpTo(Tokens::new(tokens)));
        }
        if field.value().as_str() != Some("max") {
            field.fail(format!("must be an integer from 1 to {RESERVED_TOKENS_MAX}, or \"max\""));
        }
        Some(OutputReservation::Max)
    });
    let fit = section.boolean("fit", false);
    if fit
        && matches!(output_tokens, Some(OutputReservation::UpTo(_)))
        && let Some(field) = section.field("fit")
    {
        field.fail("reserves the whole output limit: set `output_tokens` to \"max\" or leave it out");
    }
    let unnamed = if fit { OutputReservation::Max } else { OutputReservation::UpTo(Tokens::new(4_096)) };
    let reservation = Reservation {
        output_tokens: output_tokens.unwrap_or(unnamed),
        fit,
        extend_tokens: Tokens::new(section.integer("extend_tokens", 1..=RESERVED_TOKENS_MAX, 1_024)),
        cutoff: section.boolean("cutoff", true),
        drain: Duration::from_millis(section.integer("drain_ms", 0..=DAY_SECONDS * 1_000, 0)),
    };
    section.finish();
    reservation
}

/// The words for [`OpenAiSessionField`].
const OPENAI_FIELDS: [(&str, OpenAiSessionField); 2] = [
    ("prompt_cache_key", OpenAiSessionField::PromptCacheKey),
    ("safety_identifier", OpenAiSessionField::SafetyIdentifier),
];

pub(super) fn sessions(section: Section<'_>) -> Sessions {
    let sessions = Sessions {
        derive: section.boolean("derive", true),
        openai_field: section.field("openai_field").and_then(|field| field.choice(&OPENAI_FIELDS)),
    };
    section.finish();
    sessions
}

fn address(section: &Section<'_>, name: &'static str, default: SocketAddr) -> SocketAddr {
    let Some(field) = section.field(name) else { return default };
    let Some(text) = field.text() else { return default };
    text.parse().unwrap_or_else(|_| {
        field.fail(format!("must be an IP address and a port such as {default}, not {text:?}"));
        default
    })
}

/// A size that its range keeps far below what any platform addresses.
fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
