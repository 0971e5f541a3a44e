//! What tells the session of a call.

use super::*;
use tollgate_providers::PromptPrefix;

fn prompt(endpoint: Endpoint, body: &str) -> Option<PromptPrefix> {
    facts(endpoint, body).session.prompt
}

/// A call of a loop: system prompt, tools, and the messages so far.
fn anthropic(system: &str, tools: &str, messages: &str) -> Option<PromptPrefix> {
    let body = format!(
        r#"{{"model":"m","max_tokens":9,"system":{system},"tools":[{tools}],"messages":[{messages}]}}"#
    );
    prompt(MESSAGES, &body)
}

const TOOL: &str = r#"{"name":"read","description":"Reads.","input_schema":{"type":"object"}}"#;
const FIRST: &str = r#"{"role":"user","content":"Fix issue 12"}"#;
const ANSWER: &str =
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"read","input":{"p":1}}]}"#;
const RESULT: &str =
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"text"}]}"#;

#[test]
fn every_later_call_of_a_loop_has_the_same_beginning() {
    let first = anthropic(r#""You help. Today is 2026-11-30.""#, TOOL, FIRST);
    assert!(first.is_some());
    let cached =
        r#"{"type":"text","text":"You help. Today is 2026-12-01.","cache_control":{"type":"ephemeral"}}"#;
    let billing = r#"{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=abcde;"}"#;
    let other_billing = billing.replace("abcde", "01234");
    let tool = TOOL.replace("}}", r#"},"cache_control":{"type":"ephemeral","ttl":"1h"}}"#);
    let reminded = r#"{"content":[{"type":"text","text":"<system-reminder>\nToday.\n</system-reminder>"},
        {"type":"text","text":"Fix \u0069ssue 12","cache_control":{"type":"ephemeral"}}],"role":"user"}"#;
    for (system, tools, messages) in [
        (format!("[{cached}]"), TOOL, format!("{FIRST},{ANSWER},{RESULT}")),
        (format!("[{billing},{cached}]"), &*tool, format!("{FIRST} , {ANSWER}")),
        (format!("[{other_billing},{cached}]"), TOOL, format!("{reminded},{ANSWER},{RESULT},{ANSWER}")),
    ] {
        assert_eq!(anthropic(&system, tools, &messages), first, "{system} {messages}");
    }
}

#[test]
fn the_order_of_fields_and_what_is_not_the_prompt_are_no_part_of_it() {
    let body =
        format!(r#"{{"model":"m","max_tokens":9,"system":"s","tools":[{TOOL}],"messages":[{FIRST}]}}"#);
    let turned = format!(
        r#"{{"messages" : [ {FIRST},{ANSWER} ],
        "temperature":0.1,"tools":[{TOOL}],"stream":true,"system":"s","max_tokens":77,"model":"other"}}"#
    );
    assert_eq!(prompt(MESSAGES, &body), prompt(MESSAGES, &turned));
}

#[test]
fn loops_with_another_system_prompt_tool_or_first_message_differ() {
    let all = [
        anthropic(r#""s""#, TOOL, FIRST),
        anthropic(r#""other""#, TOOL, FIRST),
        anthropic(r#""s""#, "", FIRST),
        anthropic(r#""s""#, &TOOL.replace("Reads.", "Writes."), FIRST),
        anthropic(r#""s""#, TOOL, &FIRST.replace("12", "13")),
        anthropic(r#""s""#, TOOL, r#"{"role":"user","content":["Fix ","issue 12"]}"#),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(one.is_some() && all[..index].iter().all(|other| other != one), "{index}");
    }
}

#[test]
fn images_tell_first_messages_apart() {
    let with = |data: &str| {
        let source = format!(r#"{{"type":"base64","media_type":"image/png","data":"{data}"}}"#);
        prompt(MESSAGES, &messages(&format!(r#"{{"type":"image","source":{source}}}"#)))
    };
    assert!(with("aGVsbG8=").is_some() && with("aGVsbG8=") != with("aGVsbG9="));
    let url =
        |url: &str| prompt(CHAT, &chat(&format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#)));
    assert!(url("https://a.example").is_some() && url("https://a.example") != url("https://b.example"));
}

#[test]
fn a_chat_s_instructions_are_its_system_prompt() {
    let chat = |messages: &str| prompt(CHAT, &format!(r#"{{"model":"m","messages":[{messages}]}}"#));
    let call = |role: &str, more: &str| {
        chat(&format!(r#"{{"role":"{role}","content":"Today is 2026-11-30"}},{FIRST}{more}"#))
    };
    let answer = r#",{"role":"assistant","content":"Done."},{"role":"user","content":"Thanks"}"#;
    assert_eq!(call("system", ""), call("developer", answer));
    assert_eq!(
        call("system", ""),
        chat(&format!(r#"{{"role":"system","content":"Today is 2027-01-01"}},{FIRST}"#))
    );
    assert_ne!(call("system", ""), chat(FIRST));
}

#[test]
fn without_a_word_of_the_user_there_is_no_beginning() {
    for messages in ["", ANSWER, r#"{"role":"user","content":"<system-reminder>x</system-reminder>"}"#] {
        assert_eq!(anthropic(r#""s""#, TOOL, messages), None, "{messages}");
    }
}

#[test]
fn fields_that_name_a_session_are_told() {
    let agent = facts(
        MESSAGES,
        r#"{"model":"m","max_tokens":1,"messages":[],"metadata":{"user_id":"user_d_account_a_session_s-1"}}"#,
    );
    assert_eq!(
        (agent.user.as_deref(), agent.session.of_agent.as_deref()),
        (Some("user_d_account_a"), Some("s-1"))
    );
    let keyed = facts(CHAT, r#"{"model":"m","messages":[],"prompt_cache_key":"k","safety_identifier":"i"}"#);
    assert_eq!(keyed.session.prompt_cache_key.as_deref(), Some("k"));
    assert_eq!((keyed.session.safety_identifier.as_deref(), keyed.user.as_deref()), (Some("i"), Some("i")));
}
