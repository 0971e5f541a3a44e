//! What a request says, checked as far as its key and its limits ask.

use std::iter;

use http::HeaderMap;
use tollgate_providers::{Endpoint, ErrorKind, RequestError, RequestFacts, inspect};
use tollgate_usage::Session;

use crate::{headers, policy::KeyPolicy, refuse::Refused};

/// The longest model or tier: both end up in events and messages.
const NAME_BYTES_MAX: usize = 256;

/// The longest session id.
const SESSION_BYTES_MAX: usize = 128;

/// What the body of a call says; `None` for a call without one.
///
/// # Errors
///
/// 400: it cannot be read, or there is one where there may be none.
pub(crate) fn facts(endpoint: Endpoint, body: &[u8]) -> Result<Option<Box<RequestFacts>>, Refused> {
    if !has_body(endpoint) {
        if body.is_empty() {
            return Ok(None);
        }
        let message = "This call takes no body: send it without one.";
        return Err(Refused::new(ErrorKind::BadRequest, "bad_request", message));
    }
    let facts = Box::new(inspect(endpoint, body).map_err(bad_request)?);
    let longest = facts.model.len().max(facts.service_tier.as_ref().map_or(0, String::len));
    if longest > NAME_BYTES_MAX {
        let message = "`model` and `service_tier` are names: send at most 256 bytes.";
        return Err(Refused::new(ErrorKind::BadRequest, "bad_request", message));
    }
    Ok(Some(facts))
}

/// Refuses a model that the key may not call, be it the request's own or one that a tool names.
pub(crate) fn check_models(key: &KeyPolicy, facts: &RequestFacts) -> Result<(), Refused> {
    let Some(allowed) = &key.models else { return Ok(()) };
    match iter::once(&facts.model).chain(&facts.other_models).find(|model| !allowed.matches(model)) {
        None => Ok(()),
        Some(model) => Err(Refused::new(
            ErrorKind::Forbidden,
            "model_not_allowed",
            format!("Key `{}` may not call model `{model}`. Use one of the models it is allowed.", key.key),
        )),
    }
}

/// The session that the headers name.
pub(crate) fn session(map: &HeaderMap) -> Result<Option<Session>, Refused> {
    let mut values = map.get_all(headers::SESSION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let id = value.as_bytes();
    let valid = !id.is_empty()
        && id.len() <= SESSION_BYTES_MAX
        && id.iter().all(u8::is_ascii_graphic)
        && values.next().is_none();
    match std::str::from_utf8(id) {
        Ok(id) if valid => Ok(Some(Session { id: id.into(), derived: false })),
        _ => {
            let message = "`x-tollgate-session` must be sent once, with 1 to 128 visible ASCII characters and no spaces.";
            Err(Refused::new(ErrorKind::BadRequest, "bad_request", message))
        }
    }
}

/// Whether calls of this kind have a body that is inspected.
pub(crate) const fn has_body(endpoint: Endpoint) -> bool {
    !matches!(endpoint.call, tollgate_providers::Call::Models)
}

fn bad_request(error: RequestError) -> Refused {
    Refused::new(ErrorKind::BadRequest, "bad_request", error.message)
}
