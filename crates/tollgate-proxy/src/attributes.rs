//! Attributes that a caller sets for its own call, where its key allows that.
//!
//! They can only add limits: what the key fixes stays, and so do all limits of key and tenant. They are
//! counted within the tenant: what another tenant's keys carry is out of reach.

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, HeaderName};
use tollgate_config::Scope;
use tollgate_providers::ErrorKind;
use tollgate_usage::Attributes;

use crate::{headers, policy::KeyPolicy, refuse::Refused};

/// The longest value: agents join several ids to one `metadata.user_id` of more than 128 characters.
const VALUE_BYTES_MAX: usize = 256;

/// The header of each attribute.
const HEADERS: [(Scope, HeaderName); Scope::ATTRIBUTES.len()] = [
    (Scope::Org, HeaderName::from_static("x-tollgate-org")),
    (Scope::Team, HeaderName::from_static("x-tollgate-team")),
    (Scope::Project, HeaderName::from_static("x-tollgate-project")),
    (Scope::User, HeaderName::from_static("x-tollgate-user")),
    (Scope::Customer, HeaderName::from_static("x-tollgate-customer")),
    (Scope::BusinessUnit, HeaderName::from_static("x-tollgate-business-unit")),
];

/// The attributes that `map` sets or, where they name no user, the protocol's own field `user`.
///
/// # Errors
///
/// 403: the key does not allow one of them. 400: a value is malformed, or sent twice.
pub(crate) fn from_caller(
    key: &KeyPolicy,
    map: &HeaderMap,
    user: Option<&str>,
) -> Result<Vec<(Scope, Arc<str>)>, Refused> {
    let mut set = Vec::new();
    let any = map.keys().any(|name| name.as_str().starts_with(headers::OWN_PREFIX));
    for (scope, name) in HEADERS.iter().filter(|_| any) {
        let mut values = map.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => {}
            (Some(_), _) if !key.caller_attributes.contains(scope) => return Err(not_allowed(key, *scope)),
            (Some(value), None) => {
                let value = value.to_str().ok().and_then(valid).ok_or_else(|| malformed(name.as_str()))?;
                set.push((*scope, value));
            }
            (Some(_), Some(_)) => return Err(malformed(name.as_str())),
        }
    }
    let names_user = set.iter().any(|(scope, _)| *scope == Scope::User);
    if let Some(user) = user.filter(|_| !names_user && key.caller_attributes.contains(&Scope::User)) {
        set.push((Scope::User, valid_field(user).ok_or_else(malformed_field)?));
    }
    Ok(set)
}

/// What the key fixes together with what the caller has set.
pub(crate) fn merged(key: &KeyPolicy, caller: &[(Scope, Arc<str>)]) -> Attributes {
    if caller.is_empty() {
        return key.attributes.clone();
    }
    let mut all = BTreeMap::clone(&key.attributes);
    all.extend(caller.iter().map(|(scope, value)| (Arc::from(scope.name()), value.clone())));
    Arc::new(all)
}

/// Those of a call's attributes that its caller has set. What a key fixes no caller can set.
pub(crate) fn chosen<'a>(
    key: &'a KeyPolicy,
    attributes: &'a Attributes,
) -> impl Iterator<Item = (Scope, &'a Arc<str>)> {
    let set = |scope: &Scope| attributes.get(scope.name()).map(|value| (*scope, value));
    key.caller_attributes.iter().filter_map(set)
}

fn valid(value: &str) -> Option<Arc<str>> {
    let valid = (1..=VALUE_BYTES_MAX).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_graphic());
    valid.then(|| value.into())
}

/// The protocol's own field takes whatever text providers do, names with spaces among it.
fn valid_field(value: &str) -> Option<Arc<str>> {
    let valid = (1..=VALUE_BYTES_MAX).contains(&value.len()) && !value.contains(char::is_control);
    valid.then(|| value.into())
}

fn malformed(header: &str) -> Refused {
    let message = format!(
        "{header} must be given once, with 1 to {VALUE_BYTES_MAX} visible ASCII characters and no spaces."
    );
    Refused::new(ErrorKind::BadRequest, "bad_request", message)
}

fn malformed_field() -> Refused {
    let message = format!(
        "The request's user (`user`, `safety_identifier` or `metadata.user_id`) must have at most \
         {VALUE_BYTES_MAX} bytes and no control characters: shorten it, or name the user in the header \
         `x-tollgate-user`."
    );
    Refused::new(ErrorKind::BadRequest, "bad_request", message)
}

fn not_allowed(key: &KeyPolicy, scope: Scope) -> Refused {
    let message = format!(
        "Key `{}` does not let its callers set `{scope}`: leave the header out, or add `{scope}` to the key's \
         `caller_attributes`.",
        key.key
    );
    Refused::new(ErrorKind::Forbidden, "attribute_not_allowed", message)
}
