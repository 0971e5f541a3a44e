//! Which session a call belongs to: the one it names, else the one that its agent or a configured field
//! names, else one that is derived from the beginning of its prompt.

use std::sync::Arc;

use http::HeaderMap;
use sha2::{Digest, Sha256};
use tollgate_config::{OpenAiSessionField, Scope, Sessions};
use tollgate_providers::{ErrorKind, PromptPrefix, RequestFacts};
use tollgate_usage::Session;

use crate::{headers, hex, policy::KeyPolicy, refuse::Refused};

/// The longest session id.
const ID_BYTES_MAX: usize = 128;

/// What derived ids begin with.
const DERIVED: &str = "prompt-";

/// How much of the hash a derived id has: enough that no two prompts meet by chance.
const DERIVED_HASH_BYTES: usize = 16;

/// The session that the headers name.
///
/// # Errors
///
/// 400: what they say is no id, or they say it twice.
pub(crate) fn named(map: &HeaderMap) -> Result<Option<Session>, Refused> {
    let mut values = map.get_all(headers::SESSION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let id = value.to_str().ok().and_then(valid).filter(|_| values.next().is_none());
    id.map(Some).ok_or_else(|| {
        let message =
            "`x-tollgate-session` must be sent once, with 1 to 128 visible ASCII characters and no spaces.";
        Refused::new(ErrorKind::BadRequest, "bad_request", message)
    })
}

/// The session of a call whose headers name none. `caller`: what it says of itself.
///
/// What is no valid id names no session: these fields are not ours, and providers take anything in them.
pub(crate) fn of_body(
    rules: Sessions,
    key: &KeyPolicy,
    caller: &[(Scope, Arc<str>)],
    facts: &RequestFacts,
) -> Option<Session> {
    let said = &facts.session;
    let of_field = match rules.openai_field {
        Some(OpenAiSessionField::PromptCacheKey) => said.prompt_cache_key.as_deref(),
        Some(OpenAiSessionField::SafetyIdentifier) => said.safety_identifier.as_deref(),
        None => None,
    };
    let sent = said.of_agent.as_deref().and_then(valid).or_else(|| of_field.and_then(valid));
    let derive = |prompt| Session { id: derived(key, caller, facts.user.as_deref(), prompt), derived: true };
    sent.or_else(|| said.prompt.filter(|_| rules.derive).map(derive))
}

fn valid(id: &str) -> Option<Session> {
    let valid = (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    valid.then(|| Session { id: id.into(), derived: false })
}

/// An id for the calls of one loop: of one key, made for the same user, whose prompts begin alike.
///
/// Usage events show it. The key's hash, which they do not show, goes into it, so that nobody who reads
/// them can find out a prompt by trying. After a restart, and in every copy with the same configuration,
/// it is the same.
fn derived(
    key: &KeyPolicy,
    caller: &[(Scope, Arc<str>)],
    user: Option<&str>,
    prompt: PromptPrefix,
) -> Arc<str> {
    let mut hash = Sha256::new();
    hash.update(key.hash.as_bytes());
    hash.update(prompt.get().to_le_bytes());
    let caller = caller.iter().map(|(scope, value)| (scope.name(), &**value));
    for (name, value) in caller.chain(user.map(|user| ("", user))) {
        // Neither a name nor a value has a zero byte.
        for text in [name, value] {
            hash.update(text.as_bytes());
            hash.update([0]);
        }
    }
    let mut id = String::with_capacity(DERIVED.len() + 2 * DERIVED_HASH_BYTES);
    id.push_str(DERIVED);
    hex::push(&mut id, &hash.finalize()[..DERIVED_HASH_BYTES]);
    id.into()
}
