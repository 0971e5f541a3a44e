//! What a request says, checked as far as its key and its limits ask.

use std::iter;

use tollgate_providers::{Endpoint, ErrorKind, RequestError, RequestFacts, inspect};

use crate::{policy::KeyPolicy, refuse::Refused};

/// The longest model or tier: both end up in events and messages.
const NAME_BYTES_MAX: usize = 256;

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

/// Whether calls of this kind have a body that is inspected.
pub(crate) const fn has_body(endpoint: Endpoint) -> bool {
    !matches!(endpoint.call, tollgate_providers::Call::Models)
}

fn bad_request(error: RequestError) -> Refused {
    Refused::new(ErrorKind::BadRequest, "bad_request", error.message)
}
