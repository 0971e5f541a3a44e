//! What fred's errors and the server's answers say of a command: whether it was applied, and whether it may be repeated.

use fred::error::{Error, ErrorKind};
use tollgate_store::StoreError;

/// Answers that say that a script has not run. `OOM` is among them since Redis refuses the first write of a
/// script, and no later one.
const NOT_RUN: &[&str] = &[
    "NOSCRIPT",
    "LOADING",
    "BUSY",
    "READONLY",
    "MASTERDOWN",
    "OOM",
    "MOVED",
    "CROSSSLOT",
    "CLUSTERDOWN",
    "NOAUTH",
    "NOPERM",
    "WRONGPASS",
    "NOREPLICAS",
    "MISCONF",
    "ERR The user executing the script can't",
];

/// Answers of a cluster that say so because the slot of the keys is on its way to another node. That is no outage: all
/// other slots are served.
const ON_ITS_WAY: &[&str] = &["TRYAGAIN", "ASK"];

/// What is said of a slot that is on its way.
const MOVING: &str = "the slot of these keys is being moved to another node";

/// Whether a node has sent a command to another one, and so has not run it. Where the slot has moved there, what fred
/// knows of the cluster is up to date by now, so that a second attempt goes there; where it is on its way there it does not
/// help to follow: a script with a key that is new is taken by neither of them.
pub(super) fn is_elsewhere<T>(answer: &Result<T, Error>) -> bool {
    answer.as_ref().is_err_and(is_redirection)
}

fn is_redirection(error: &Error) -> bool {
    *error.kind() == ErrorKind::Routing && error.details() == "Too many redirections."
}

/// What a command of a script was answered, where Redis 6.2 puts it into words of its own: `ERR Error running script
/// (call to f_…): @user_script:3: @user_script: 3: -READONLY …`.
fn cause(details: &str) -> &str {
    let inner = details.rsplit_once("@user_script: ").and_then(|(_, inner)| inner.split_once(": -"));
    match inner {
        Some((line, answer)) if line.bytes().all(|byte| byte.is_ascii_digit()) => answer,
        _ => details,
    }
}

/// Answers of a server on which a script ended with an error, or that are not what was asked for.
const WRONG: &[&str] = &["ERR", "WRONGTYPE", "CORRUPT"];

/// What fred says of a command that was on a connection to a node which is no primary any more, when it has ended that
/// because another command was sent to the new one.
const MOVED_CLUSTER: &str = "Too many failed write attempts.";

/// Whether nobody knows what became of a command, and there are connections to the right nodes by now.
pub(crate) fn is_of_moved_cluster(error: &StoreError) -> bool {
    matches!(error, StoreError::Unknown(says) if says.ends_with(MOVED_CLUSTER))
}

/// What an error of a command says of what became of it.
pub(super) fn meaning(error: &Error) -> StoreError {
    let says = || format!("{}: {}", error.kind().to_str(), error.details());
    match error.kind() {
        _ if is_redirection(error) => StoreError::Unavailable(MOVING.to_owned()),
        ErrorKind::Backpressure | ErrorKind::Auth | ErrorKind::Routing | ErrorKind::Sentinel => {
            StoreError::NotApplied(says())
        }
        ErrorKind::Tls | ErrorKind::Config | ErrorKind::Url => StoreError::NotApplied(says()),
        ErrorKind::Parse | ErrorKind::InvalidArgument | ErrorKind::NotFound => StoreError::Corrupt(says()),
        _ => of_details(error.details(), says),
    }
}

/// What the server's reason for an error says of the script that it ended.
pub(crate) fn reason(details: &str) -> StoreError {
    of_details(details, || details.to_owned())
}

fn of_details(details: &str, says: impl Fn() -> String) -> StoreError {
    let details = cause(details);
    let begins_with = |words: &[&str]| words.iter().any(|word| details.starts_with(word));
    if begins_with(ON_ITS_WAY) {
        StoreError::Unavailable(format!("{MOVING}: {}", says()))
    } else if begins_with(NOT_RUN) {
        StoreError::NotApplied(says())
    } else if begins_with(WRONG) {
        StoreError::Corrupt(says())
    } else {
        // A time-out, a connection that closed, or what fred has no word for: of what was sent and what was
        // not, it tells nothing.
        StoreError::Unknown(says())
    }
}

#[cfg(test)]
mod tests {
    use tollgate_store::StoreError;

    use super::reason;

    #[test]
    fn c38_a_server_that_cannot_write_has_not_run_the_script_however_it_says_so() {
        for answer in [
            "READONLY You can't write against a read only replica. script: 5b6f, on @user_script:50.",
            "OOM command not allowed when used memory > 'maxmemory'. script: 5b6f, on @user_script:144.",
            "ERR The user executing the script can't run this command or subcommand script: 5b6f, on @user_script:9.",
            // As Redis 6.2 says it: of one call, and of one of several.
            "ERR Error running script (call to f_5b6f): @user_script:50: @user_script: 50: -READONLY You can't write \
             against a read only replica.",
            "ERR Error running script (call to f_5b6f): @user_script:144: @user_script: 144: -OOM command not allowed \
             when used memory > 'maxmemory'.",
            "@user_script: 144: -NOREPLICAS Not enough good replicas to write.",
            "@user_script: 9: -NOPERM this user has no permissions to run the 'set' command or its subcommand",
        ] {
            assert!(matches!(reason(answer), StoreError::NotApplied(_)), "{answer}");
        }
        for answer in [
            "ERR user_script:44: CORRUPT counter script: 5b6f, on @user_script:44.",
            "ERR Error running script (call to f_5b6f): @user_script:44: user_script:44: CORRUPT counter",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "@user_script: 9: -WRONGTYPE Operation against a key holding the wrong kind of value",
        ] {
            assert!(matches!(reason(answer), StoreError::Corrupt(_)), "{answer}");
        }
        assert!(matches!(reason("the connection was closed"), StoreError::Unknown(_)));
        let moving = "TRYAGAIN Multiple keys request during rehashing of slot";
        assert!(matches!(reason(moving), StoreError::Unavailable(_)));
    }
}
