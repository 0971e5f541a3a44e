//! What the URL of a store must not say: what the client library would leave out, or take for something else.

/// Ends a reason, for what is written as it must not be in a URL.
const ENCODED: &str = "where it belongs to a user, a password or a name it is percent-encoded";

/// Why `url`, whose scheme is one of those that are known, cannot mean what it says. Says nothing of what is in it, which
/// may be a part of a password.
pub(crate) fn contradiction(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim_end().split_once("://")?;
    if rest.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Some(format!("it has a space, a tab or a line break in it; {ENCODED} (a space is `%20`)"));
    }
    if rest.contains('#') {
        return Some(format!("it has a `#` in it; {ENCODED} (`%23`)"));
    }
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let database = address.split_once('/').map_or("", |(_, path)| path);
    if scheme.ends_with("-cluster") && !matches!(database, "" | "0") {
        return Some("a cluster has only database 0: leave out what follows the `/`".to_owned());
    }
    let parameters = query.split('&').filter(|one| !one.is_empty());
    parameters.map(|one| one.split_once('=').unwrap_or((one, ""))).find_map(|(name, value)| {
        let known = parameters_of(scheme);
        if !known.contains(&name) {
            let which = match known {
                [] => format!("{scheme}:// has none"),
                known => format!("{scheme}:// has only `{}`", known.join("`, `")),
            };
            return Some(format!(
                "there is a parameter after the `?` that means nothing: {which}; {ENCODED} (`?` is `%3F`)"
            ));
        }
        if value.is_empty() {
            return Some(format!("`{name}=` has no value: give it one, or leave it out if it is not needed"));
        }
        let is_space = value.contains('+');
        is_space.then(|| format!("the `+` in `{name}` would be read as a space: it is written `%2B`"))
    })
}

/// The names of what may follow the `?`.
fn parameters_of(scheme: &str) -> &'static [&'static str] {
    if scheme.ends_with("-cluster") {
        &["node"]
    } else if scheme.ends_with("-sentinel") {
        &["node", "sentinelServiceName", "sentinelUsername", "sentinelPassword"]
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::contradiction;

    #[test]
    fn a_url_that_cannot_mean_what_it_says_is_told_what_to_change_and_not_its_password() {
        for (url, says) in [
            ("redis://us er:secret@127.0.0.1", "%20"),
            ("redis://user:sec ret@127.0.0.1", "%20"),
            ("redis://user:secret@127.0. 0.1", "%20"),
            ("redis://user:sec\tret@127.0.0.1", "%20"),
            ("redis://user:6#secret@127.0.0.1", "%23"),
            ("redis://127.0.0.1/#secret", "%23"),
            ("redis-cluster://:secret@127.0.0.1/1", "database 0"),
            ("rediss-cluster://:secret@127.0.0.1:6379/15?node=127.0.0.1:2", "database 0"),
            ("redis-cluster://:secret@127.0.0.1/secret", "database 0"),
            ("redis://127.0.0.1/0?secret=bar", "redis:// has none"),
            ("rediss://127.0.0.1?node=127.0.0.1:2", "rediss:// has none"),
            ("redis://user:6?secret@127.0.0.1", "%3F"),
            ("redis-cluster://127.0.0.1?node=127.0.0.1:2&secret", "only `node`"),
            ("redis-cluster://127.0.0.1?sentinelServiceName=main", "only `node`"),
            (
                "redis-sentinel://127.0.0.1?sentinelServiceName=main&sentinelpassword=secret",
                "`sentinelPassword`",
            ),
            ("redis-sentinel://127.0.0.1?sentinelServiceName=", "no value"),
            ("redis-sentinel://127.0.0.1?sentinelServiceName", "no value"),
            ("redis-sentinel://127.0.0.1?sentinelServiceName=main&sentinelPassword=sec+ret", "%2B"),
        ] {
            let reason = contradiction(url).unwrap_or_else(|| panic!("{url}"));
            assert!(reason.contains(says), "{url}: {reason}");
            assert!(!reason.contains("secret") && !reason.contains("ret@"), "{url}: {reason}");
        }
        for url in [
            "redis://127.0.0.1",
            "redis://us%20er:p%23ss%3F@127.0.0.1:6379/2",
            "rediss://127.0.0.1/?",
            "redis-cluster://:secret@127.0.0.1:1?node=127.0.0.1:2&node=127.0.0.1:3",
            "redis-cluster://127.0.0.1/0",
            "redis-cluster://127.0.0.1/\n",
            "redis-sentinel://u:p@one:1/2?node=two:1&sentinelServiceName=main&sentinelUsername=a&sentinelPassword=b%2B",
        ] {
            assert_eq!(contradiction(url), None, "{url}");
        }
    }
}
