//! The event that tells a client that its stream broke off.
//!
//! A stream whose status was 200 can only fail inside itself. The official SDKs raise their API error
//! on these events; an answer that just ends would look whole.

use crate::{ErrorKind, Protocol, error_body};

/// One server-sent event, blank line included, that carries the error in `protocol`. It may follow
/// any complete event; nothing may follow it.
pub fn stream_error_event(
    protocol: Protocol,
    kind: ErrorKind,
    code: &str,
    message: &str,
    request_id: &str,
) -> String {
    let body = error_body(protocol, kind, code, message, request_id);
    match protocol {
        Protocol::Anthropic => format!("event: error\ndata: {body}\n\n"),
        Protocol::OpenAi => format!("data: {body}\n\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Endpoint, Meter, RequestFacts, StreamEnd};

    #[test]
    fn c110_the_error_event_reads_as_an_error_in_its_own_protocol() {
        for (protocol, call) in
            [(Protocol::Anthropic, Call::Messages), (Protocol::OpenAi, Call::ChatCompletions)]
        {
            let event =
                stream_error_event(protocol, ErrorKind::UpstreamUnreachable, "code", "broke off", "id");
            assert!(event.ends_with("\n\n") && !event.contains("[DONE]"));
            let mut meter = Meter::new(Endpoint { protocol, call }, &RequestFacts::default(), true);
            meter.feed(event.as_bytes());
            assert_eq!(meter.finish().end, StreamEnd::Error, "{event}");
        }
    }
}
