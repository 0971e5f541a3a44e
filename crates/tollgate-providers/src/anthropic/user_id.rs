//! `metadata.user_id` as agents send it: whom the call is for, and which of its sessions it belongs to.
//!
//! Claude Code joins the id of a device, of an account and of a session: `user_D_account_A_session_S`
//! and, since 2.1, a JSON object `{"device_id":"D","account_uuid":"A","session_id":"S"}` in the string.

use serde::Deserialize;

/// What is between the user and the session.
const SESSION: &str = "_session_";

#[derive(Deserialize)]
struct Agent {
    #[serde(default)]
    device_id: String,
    #[serde(default)]
    account_uuid: String,
    session_id: String,
}

/// The user and the session of a `user_id`. One without a session is all user; both forms of one agent
/// give the same user.
pub(super) fn parts_of(user_id: String) -> (Option<String>, Option<String>) {
    if user_id.starts_with('{')
        && let Ok(agent) = serde_json::from_str::<Agent>(&user_id)
    {
        let Agent { device_id, account_uuid, session_id } = agent;
        let is_named = !device_id.is_empty() || !account_uuid.is_empty();
        let user = is_named.then(|| format!("user_{device_id}_account_{account_uuid}"));
        return (user, Some(session_id).filter(|id| !id.is_empty()));
    }
    match user_id.rsplit_once(SESSION) {
        Some((user, session)) if user.starts_with("user_") && !session.is_empty() => {
            (Some(user.to_owned()), Some(session.to_owned()))
        }
        _ => (Some(user_id), None),
    }
}

#[cfg(test)]
mod tests {
    use super::parts_of;

    #[test]
    fn both_forms_of_an_agent_give_the_same_user_and_session() {
        let expected = (Some("user_d1_account_a-2".to_owned()), Some("5-e".to_owned()));
        assert_eq!(parts_of("user_d1_account_a-2_session_5-e".to_owned()), expected);
        let object = r#"{"device_id":"d1","account_uuid":"a-2","session_id":"5-e","more":1}"#;
        assert_eq!(parts_of(object.to_owned()), expected);
    }

    #[test]
    fn what_names_no_session_is_all_user() {
        for id in ["u-17", "my_session_x", "user_1_session_", "{\"device_id\":\"d\"}", "{", "user_x"] {
            assert_eq!(parts_of(id.to_owned()), (Some(id.to_owned()), None));
        }
        assert_eq!(parts_of("{\"session_id\":\"s\"}".to_owned()), (None, Some("s".to_owned())));
    }
}
