//! What the mock remembers.

use std::time::Duration;

use super::client::{ANTHROPIC, ANTHROPIC_STREAM, DEADLINE, OPENAI, call, mock, send};
use crate::{Bill, Mock, Options, Usage};

const USAGE: [(&str, &str); 3] =
    [("x-mock-input-tokens", "10"), ("x-mock-output-tokens", "100"), ("x-mock-events", "50")];

#[test]
fn requests_are_kept_up_to_the_limit() {
    let mock = Mock::start(Options { request_limit: 2, ..Options::default() }).unwrap();
    for path in ["/v1/messages?a", "/v1/messages?b", "/v1/messages?c"] {
        call(&mock, path, &[("x-sentinel", "seen")], ANTHROPIC);
    }
    let requests = mock.requests();
    let queries: Vec<_> = requests.iter().map(|request| request.uri.query().unwrap()).collect();
    assert_eq!(queries, ["b", "c"]);
    assert_eq!(requests[1].headers["x-sentinel"], "seen");
    assert_eq!(requests[1].body, ANTHROPIC);
    assert_eq!((requests[1].method.as_str(), requests[1].connection), ("POST", 2));
    assert_eq!(mock.counts().requests, 3);
}

#[test]
fn the_bill_adds_up_by_model() {
    let mock = mock();
    for _ in 0..3 {
        call(&mock, "/v1/messages", &USAGE, ANTHROPIC);
        call(&mock, "/v1/messages", &USAGE, ANTHROPIC_STREAM);
    }
    call(&mock, "/v1/chat/completions", &USAGE, OPENAI);
    call(&mock, "/v1/messages", &[("x-mock-status", "500")], ANTHROPIC);
    call(&mock, "/v1/messages/count_tokens", &[], ANTHROPIC);
    let usage =
        |calls: u64| Usage { input_tokens: 10 * calls, output_tokens: 100 * calls, ..Usage::default() };
    let bills = mock.billed();
    assert_eq!(bills.len(), 2);
    assert_eq!(bills["claude-sonnet-5-5"], Bill { calls: 6, usage: usage(6) });
    assert_eq!(bills["gpt-6-astra"], Bill { calls: 1, usage: usage(1) });
    assert_eq!(mock.counts().client_disconnects, 0);
}

#[test]
fn a_broken_stream_is_billed_by_what_was_sent() {
    for end in ["x-mock-reset-after", "x-mock-close-after", "x-mock-cut-after", "x-mock-error-after"] {
        let mock = mock();
        let mut headers = USAGE.to_vec();
        headers.push((end, "23"));
        call(&mock, "/v1/messages", &headers, ANTHROPIC_STREAM);
        let usage = Usage { input_tokens: 10, output_tokens: 40, ..Usage::default() };
        assert_eq!(mock.billed()["claude-sonnet-5-5"], Bill { calls: 1, usage }, "20 of 50 events: {end}");
        assert_eq!(mock.counts().client_disconnects, 0, "{end}");
    }
}

#[tokio::test]
async fn clients_that_leave_are_counted() {
    let mock = mock();
    let mut headers = USAGE.to_vec();
    headers.push(("x-mock-hang-after", "13"));
    let streaming = send(&mock, "POST", "/v1/messages", &headers, ANTHROPIC_STREAM);
    let waiting = send(&mock, "POST", "/v1/messages", &[("x-mock-start", "hang")], ANTHROPIC);
    let open = mock.wait_for(DEADLINE, |counts| counts.open_answers == 2 && counts.events_sent == 13).await;
    assert_eq!(open.unwrap().client_disconnects, 0);
    drop((streaming, waiting));
    let gone = mock.wait_for(DEADLINE, |counts| counts.open_answers == 0).await.unwrap();
    assert_eq!(gone.client_disconnects, 2);
    let usage = Usage { input_tokens: 10, output_tokens: 20, ..Usage::default() };
    assert_eq!(mock.billed()["claude-sonnet-5-5"], Bill { calls: 1, usage }, "10 of 50 events");
}

#[tokio::test]
async fn waiting_has_an_end() {
    let mock = mock();
    // A connection that closes at once may end before its request is looked at.
    let _open = send(&mock, "POST", "/v1/messages", &[], ANTHROPIC);
    assert_eq!(mock.wait_for_requests(1, DEADLINE).await.unwrap().len(), 1);
    let timed_out = mock.wait_for_requests(2, Duration::from_millis(10)).await.unwrap_err();
    assert_eq!(timed_out.last.requests, 1);
}
