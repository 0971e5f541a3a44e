//! What the URL of a store must not say: what the client library would leave out, take for something else, or refuse in
//! words of its own, which say of a password what it is.

use std::net::Ipv6Addr;

/// Ends a reason, for what is written as it must not be in a URL.
const ENCODED: &str = "where it belongs to a user, a password or a name it is percent-encoded";

/// Why `url`, whose scheme is one of those that are known, cannot mean what it says. Says nothing of what is in it, which
/// may be a part of a password.
pub(crate) fn contradiction(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim_end().split_once("://")?;
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = address.split_once('/').unwrap_or((address, ""));
    let (user, server) =
        authority.rsplit_once('@').map_or((None, authority), |(user, server)| (Some(user), server));
    of_letters(rest)
        .or_else(|| user.and_then(of_user))
        .or_else(|| of_server(scheme, server))
        .or_else(|| of_database(scheme, database))
        .or_else(|| of_parameters(scheme, query))
}

/// What may be nowhere in it.
fn of_letters(rest: &str) -> Option<String> {
    if rest.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Some(format!("it has a space, a tab or a line break in it; {ENCODED} (a space is `%20`)"));
    }
    if rest.contains('#') {
        return Some(format!("it has a `#` in it; {ENCODED} (`%23`)"));
    }
    let encoded = || rest.split('%').skip(1);
    let is_byte =
        |after: &str| after.get(..2).is_some_and(|two| two.bytes().all(|one| one.is_ascii_hexdigit()));
    if !encoded().all(is_byte) {
        return Some(format!(
            "it has a `%` in it without two hexadecimal digits after it; {ENCODED} (`%25`)"
        ));
    }
    (!is_text(rest)).then(|| "what is percent-encoded in it is no UTF-8".to_owned())
}

/// Whether `encoded` is UTF-8 when it is decoded.
fn is_text(encoded: &str) -> bool {
    let mut parts = encoded.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for (byte, after) in parts.filter_map(|part| part.split_at_checked(2)) {
        bytes.extend(u8::from_str_radix(byte, 16));
        bytes.extend(after.as_bytes());
    }
    String::from_utf8(bytes).is_ok()
}

/// What stands before the `@`.
fn of_user(user: &str) -> Option<String> {
    let password = user.split_once(':').map_or("", |(_, password)| password);
    password.is_empty().then(|| {
        "before the `@` there is no password: it is `user:password@`, or `:password@` without a user"
            .to_owned()
    })
}

/// Host and port.
fn of_server(scheme: &str, server: &str) -> Option<String> {
    if server.contains(',') {
        let others = "each further one is a parameter: `?node=host:port&node=host:port`";
        return Some(if parameters_of(scheme).contains(&"node") {
            format!("it names several hosts: {others}")
        } else {
            format!(
                "it names several hosts, and {scheme}:// has one: of {scheme}-sentinel:// and {scheme}-cluster:// {others}"
            )
        });
    }
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() => (None, port),
            _ => return Some("what it has in brackets is no IPv6 address".to_owned()),
        },
        None => {
            let (host, port) = server.split_at(server.find(':').unwrap_or(server.len()));
            (Some(host), port)
        }
    };
    if host.is_some() && port.matches(':').count() > 1 {
        return Some("an IPv6 address stands in brackets: `[::1]:6379`".to_owned());
    }
    match port.strip_prefix(':') {
        None if port.is_empty() => {}
        Some(port) if is_port(port) => {}
        _ => return Some(format!("the port after the host is no number from 1 to 65535; {CUT_OFF}")),
    }
    host.and_then(of_host)
}

/// Ends a reason, where a password may have been taken for something else.
const CUT_OFF: &str =
    "where a password has `@`, `:`, `/` or `?` in it they are percent-encoded (`%40`, `%3A`, `%2F`, `%3F`)";

fn of_host(host: &str) -> Option<String> {
    if host.is_empty() {
        return Some(
            "it names no host: it is `redis://host:port`, and what comes before the host ends with `@`"
                .to_owned(),
        );
    }
    (!is_host(host)).then(|| format!("the host has a letter in it that no name has; {CUT_OFF}"))
}

/// Whether it may be a name, or an IPv4 address.
fn is_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn is_port(port: &str) -> bool {
    port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// What stands after the `/`.
fn of_database(scheme: &str, database: &str) -> Option<String> {
    if scheme.ends_with("-cluster") {
        let is_first = matches!(database, "" | "0");
        return (!is_first)
            .then(|| "a cluster has only database 0: leave out what follows the `/`".to_owned());
    }
    let is_known = database.is_empty() || database.parse::<u8>().is_ok();
    (!is_known).then(|| {
        format!(
            "the database after the `/` is no number from 0 to 255, which the client library knows; {CUT_OFF}"
        )
    })
}

/// What stands after the `?`.
fn of_parameters(scheme: &str, query: &str) -> Option<String> {
    let parameters = || {
        let parameters = query.split('&').filter(|one| !one.is_empty());
        parameters.map(|one| one.split_once('=').unwrap_or((one, "")))
    };
    let count = |wanted: &str| parameters().filter(|(name, _)| *name == wanted).count();
    let twice = parameters_of(scheme).iter().find(|name| **name != "node" && count(name) > 1);
    let missing = || {
        if !scheme.ends_with("-sentinel") {
            None
        } else if count("sentinelServiceName") == 0 {
            Some("`sentinelServiceName=` is missing: the name that sentinels have for the server".to_owned())
        } else {
            let is_half = count("sentinelUsername") > count("sentinelPassword");
            is_half.then(|| "there is a `sentinelUsername` without a `sentinelPassword`".to_owned())
        }
    };
    parameters()
        .find_map(|(name, value)| of_parameter(scheme, name, value))
        .or_else(|| twice.map(|name| format!("`{name}=` is there more than once: leave one")))
        .or_else(missing)
}

fn of_parameter(scheme: &str, name: &str, value: &str) -> Option<String> {
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
    if value.contains('+') {
        return Some(format!("the `+` in `{name}` would be read as a space: it is written `%2B`"));
    }
    if name != "node" {
        return None;
    }
    let is_node = value.split_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port));
    let form = "`node=host:port`, with a name or an IPv4 address, a port from 1 to 65535, and no user or password: \
                those before the `@` are for all nodes";
    (!is_node).then(|| format!("a `node=` is no server: it is {form}"))
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
            ("redis-sentinel://127.0.0.1", "`sentinelServiceName=` is missing"),
            (
                "redis-sentinel://127.0.0.1?sentinelServiceName=main&sentinelServiceName=secret",
                "more than once",
            ),
            (
                "redis-sentinel://127.0.0.1?sentinelServiceName=main&sentinelUsername=secret",
                "without a `sentinelPassword`",
            ),
            ("redis-cluster://u:p@127.0.0.1:1?node=u:secret@127.0.0.1:2", "no user or password"),
            ("redis-sentinel://one?sentinelServiceName=main&node=u:secret@two:2", "no user or password"),
            ("redis-sentinel://one?sentinelServiceName=main&node=u%3Asecret%40two:2", "`node=host:port`"),
            ("redis-cluster://127.0.0.1?node=secret", "`node=host:port`"),
            ("redis-cluster://127.0.0.1?node=127.0.0.1", "`node=host:port`"),
            ("redis-cluster://127.0.0.1?node=127.0.0.1:", "from 1 to 65535"),
            ("redis-cluster://127.0.0.1?node=127.0.0.1:0", "from 1 to 65535"),
            ("redis-cluster://127.0.0.1?node=127.0.0.1:65536", "from 1 to 65535"),
            ("redis-cluster://127.0.0.1?node=:1", "`node=host:port`"),
            ("redis-cluster://127.0.0.1?node=[::1]:6379", "an IPv4 address"),
            ("redis://", "no host"),
            ("redis:///0", "no host"),
            ("redis://:secret@:6379/0", "no host"),
            ("redis://user:secret@", "no host"),
            ("redis://127.0.0.1:0", "from 1 to 65535"),
            ("redis://127.0.0.1:99999", "from 1 to 65535"),
            ("redis://127.0.0.1:port", "from 1 to 65535"),
            ("redis://127.0.0.1:", "from 1 to 65535"),
            ("redis://[::1]:0", "from 1 to 65535"),
            ("redis://[::1]secret", "from 1 to 65535"),
            ("redis://user:secret/1@127.0.0.1", "%2F"),
            ("redis://::1", "in brackets"),
            ("redis://[secret]:1", "no IPv6 address"),
            ("redis://[::1", "no IPv6 address"),
            ("redis://127.0.0.1/256", "from 0 to 255"),
            ("redis://127.0.0.1/secret", "from 0 to 255"),
            ("redis://127.0.0.1/0/", "from 0 to 255"),
            ("redis://one:1,two:2/0", "redis-sentinel:// and redis-cluster://"),
            ("rediss-cluster://:secret@one:1,two:2", "`?node=host:port"),
            ("redis://hos!t", "no name has"),
            ("redis://hos%20t", "no name has"),
            ("redis://user:secret%@127.0.0.1", "%25"),
            ("redis://user:secret%ZZ@127.0.0.1", "%25"),
            ("redis://user:secret@127.0.0.1/%", "%25"),
            ("redis://user:secret%FF@127.0.0.1", "UTF-8"),
            ("redis://secret@127.0.0.1", "`:password@`"),
            ("redis://user:@127.0.0.1", "`:password@`"),
            ("redis://@127.0.0.1", "`:password@`"),
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
            "redis://[::1]:6379",
            "redis://user:p%C3%A9@[::1]/255",
            "redis://user:p@ss@127.0.0.1",
            "rediss://redis-master.some_space.svc.cluster.local.:6379/0",
            "redis-cluster://127.0.0.1/\n",
            "redis-sentinel://u:p@one:1/2?node=two:1&sentinelServiceName=main&sentinelUsername=a&sentinelPassword=b%2B",
        ] {
            assert_eq!(contradiction(url), None, "{url}");
        }
    }
}
