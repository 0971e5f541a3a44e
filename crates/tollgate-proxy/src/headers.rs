//! Which headers pass, which are dropped, which are ours.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The id of the request, on every response.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-tollgate-request-id");
/// Why a request was refused.
pub(crate) const REASON: HeaderName = HeaderName::from_static("x-tollgate-reason");
/// The output limit of each choice, where it was lowered to what the budgets afford.
pub(crate) const OUTPUT_LIMIT: HeaderName = HeaderName::from_static("x-tollgate-output-limit");
/// The virtual key, where the client's own provider credential passes through.
pub(crate) const TOLLGATE_KEY: HeaderName = HeaderName::from_static("x-tollgate-key");
/// The session a request belongs to.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("x-tollgate-session");
/// Names a request, so that it is known again when it is repeated. Providers get it too.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Tells official SDKs whether to retry.
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub(crate) const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(crate) const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(crate) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub(crate) const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("api-key");
pub(crate) const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

pub(crate) const OWN_PREFIX: &str = "x-tollgate-";
/// Headers that may carry a client's credential.
pub(crate) const CREDENTIALS: [HeaderName; 4] = [header::AUTHORIZATION, X_API_KEY, X_GOOG_API_KEY, API_KEY];

/// Content codings whose copy can be decoded for metering.
const KNOWN_CODINGS: [&str; 5] = ["gzip", "br", "zstd", "deflate", "identity"];

/// Drops what belongs to the connection the message came on, and every `x-tollgate-*` header.
///
/// One look at each name finds what is there to drop, most often nothing.
pub(crate) fn strip_connection_headers(headers: &mut HeaderMap) {
    let belongs_here =
        |name: &HeaderName| is_hop_by_hop(name.as_str()) || name.as_str().starts_with(OWN_PREFIX);
    if !headers.keys().any(belongs_here) {
        return;
    }
    let named = named_by_connection(headers);
    let found: Vec<HeaderName> = headers.keys().filter(|name| belongs_here(name)).cloned().collect();
    for name in found.into_iter().chain(named) {
        headers.remove(name);
    }
}

/// Makes one header of those that HTTP/2 may split a cookie into, before they go on over HTTP/1.1 (RFC 9113 §8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return;
    }
    // What was a value each is one together.
    if let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, whole);
    }
}

/// Whether a header belongs to one connection, not to the message (RFC 9110 §7.6.1), or is a credential for
/// this proxy (§11.7).
fn is_hop_by_hop(name: &str) -> bool {
    match name {
        // Answered by the server that the client talks to.
        "expect" => true,
        "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer" | "transfer-encoding"
        | "upgrade" => true,
        "proxy-authenticate" | "proxy-authorization" => true,
        _ => false,
    }
}

/// A `connection` header names further headers to drop (RFC 9110 §7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect()
}

/// Keeps of `accept-encoding` only the codings a copy of the answer can be decoded from.
///
/// A header that names only those passes unchanged. Without this, an answer in another coding
/// would reach the client unmetered.
pub(crate) fn restrict_accept_encoding(headers: &mut HeaderMap) {
    let mut values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let all_known = values.all(|value| value.to_str().is_ok_and(|value| codings(value).all(is_known)));
    if all_known {
        return;
    }
    let known: Vec<String> = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(codings)
        .filter(|coding| is_known(coding))
        .map(str::to_owned)
        .collect();
    let value = HeaderValue::try_from(known.join(", ")).ok().filter(|value| !value.is_empty());
    headers.insert(header::ACCEPT_ENCODING, value.unwrap_or(HeaderValue::from_static("identity")));
}

fn codings(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|coding| !coding.is_empty())
}

fn is_known(coding: &str) -> bool {
    let name = coding.split(';').next().unwrap_or_default().trim();
    KNOWN_CODINGS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a `content-encoding` says that the body is something other than itself.
pub(crate) fn is_coded(content_encoding: &HeaderValue) -> bool {
    !content_encoding.as_bytes().eq_ignore_ascii_case(b"identity")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |&(name, value): &(&str, &str)| {
            (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn headers_named_by_connection_are_dropped_with_it() {
        let mut headers = map(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("x-tollgate-session", "s"),
            ("anthropic-beta", "context-1m"),
            ("x-stainless-lang", "python"),
        ]);
        strip_connection_headers(&mut headers);
        assert_eq!(headers, map(&[("anthropic-beta", "context-1m"), ("x-stainless-lang", "python")]));
    }

    #[test]
    fn the_crumbs_of_a_cookie_are_one_again() {
        let mut headers = map(&[("cookie", "a=1; b=2"), ("x-a", "1"), ("cookie", "c=3")]);
        join_cookies(&mut headers);
        assert_eq!(headers, map(&[("cookie", "a=1; b=2; c=3"), ("x-a", "1")]));
    }

    #[test]
    fn known_codings_pass_byte_for_byte() {
        let mut headers = map(&[("accept-encoding", "gzip,  deflate;q=0.5, br")]);
        restrict_accept_encoding(&mut headers);
        assert_eq!(headers, map(&[("accept-encoding", "gzip,  deflate;q=0.5, br")]));
    }

    #[test]
    fn codings_nobody_can_meter_are_not_offered() {
        for (sent, passed) in [
            ("gzip, dcz", "gzip"),
            ("compress", "identity"),
            ("*", "identity"),
            ("br;q=1, *;q=0.1", "br;q=1"),
        ] {
            let mut headers = map(&[("accept-encoding", sent)]);
            restrict_accept_encoding(&mut headers);
            assert_eq!(headers, map(&[("accept-encoding", passed)]), "{sent}");
        }
    }
}
