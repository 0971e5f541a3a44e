//! Which key a request carries.

use http::{HeaderMap, HeaderValue, Uri, header};
use tollgate_config::KeyHash;

use crate::headers;

/// The longest key that is looked at.
const KEY_BYTES_MAX: usize = 512;

/// A client's key, as a hash: the key itself is not kept.
#[derive(Clone, Copy)]
pub(crate) struct Presented {
    /// What to look up.
    pub(crate) hash: KeyHash,
    /// Whether it came in `x-tollgate-key`, so that the usual headers hold a credential of the
    /// client's own.
    pub(crate) in_own_header: bool,
}

/// Finds the key: `x-tollgate-key`, then `authorization: Bearer`, `x-api-key`, `x-goog-api-key`,
/// `api-key`, then `?key=`. The first that is there counts.
pub(crate) fn presented(headers: &HeaderMap, uri: &Uri) -> Option<Presented> {
    if let Some(key) = headers.get(headers::TOLLGATE_KEY) {
        return presented_key(text(key)?, true);
    }
    let from_header = headers::CREDENTIALS.iter().find_map(|name| {
        let value = text(headers.get(name)?)?;
        if *name == header::AUTHORIZATION { bearer(value) } else { Some(value) }
    });
    presented_key(from_header.or_else(|| query_key(uri))?, false)
}

fn presented_key(key: &str, in_own_header: bool) -> Option<Presented> {
    let sensible = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    sensible.then(|| Presented { hash: KeyHash::of(key), in_own_header })
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().map(str::trim)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

fn query_key(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("key="))
}

/// The query without `key=`: a virtual key does not leave this process.
pub(crate) fn query_without_key(query: &str) -> Option<String> {
    let is_key = |pair: &&str| pair.starts_with("key=");
    if !query.split('&').any(|pair| is_key(&pair)) {
        return None;
    }
    Some(query.split('&').filter(|pair| !is_key(pair)).collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&'static str, &'static str)], uri: &'static str) -> Option<(KeyHash, bool)> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        presented(&headers, &Uri::from_static(uri)).map(|key| (key.hash, key.in_own_header))
    }

    #[test]
    fn a_key_is_read_from_every_place_in_order() {
        let a = Some((KeyHash::of("a"), false));
        for pairs in [
            [("authorization", "Bearer a")],
            [("authorization", "bearer  a")],
            [("x-api-key", "a")],
            [("x-goog-api-key", "a")],
            [("api-key", " a ")],
        ] {
            assert_eq!(found(&pairs, "/v1/messages?key=b"), a, "{pairs:?}");
        }
        assert_eq!(found(&[], "/v1/messages?x=1&key=a"), a);
        assert_eq!(found(&[("x-api-key", "b"), ("authorization", "Bearer a")], "/"), a);
        assert_eq!(
            found(&[("authorization", "Bearer b"), ("x-tollgate-key", "a")], "/"),
            Some((KeyHash::of("a"), true))
        );
    }

    #[test]
    fn what_is_no_key_is_none() {
        assert_eq!(found(&[], "/"), None);
        assert_eq!(found(&[("x-api-key", "")], "/"), None);
        assert_eq!(found(&[("authorization", "Basic abc")], "/"), None);
        // An empty own header does not fall through to a credential meant for the provider.
        assert_eq!(found(&[("x-tollgate-key", ""), ("x-api-key", "a")], "/"), None);
    }

    #[test]
    fn c128_a_key_in_the_query_is_not_passed_on() {
        assert_eq!(query_without_key("key=a&alt=sse").as_deref(), Some("alt=sse"));
        assert_eq!(query_without_key("alt=sse&key=a&key=b").as_deref(), Some("alt=sse"));
        assert_eq!(query_without_key("beta=true"), None);
    }
}
