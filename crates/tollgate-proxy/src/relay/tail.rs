//! Tells the client of a stream that the answer broke off, in its own protocol.

use bytes::Bytes;
use tollgate_providers::{ErrorKind, Protocol, stream_error_event};

use super::RelayError;

/// The end of what has passed so far, as far as it matters: whether an event may follow it.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The protocol and the request's id, where an event could be added: an uncompressed stream.
    speaks: Option<(Protocol, String)>,
    last: [u8; 4],
    anything: bool,
}

impl Tail {
    /// The tail of an answer to which nothing can be added.
    pub(crate) const fn closed() -> Self {
        Self { speaks: None, last: [0; 4], anything: false }
    }

    /// The tail of an uncompressed event stream.
    pub(crate) const fn stream(protocol: Protocol, request_id: String) -> Self {
        Self { speaks: Some((protocol, request_id)), last: [0; 4], anything: false }
    }

    /// Looks at what passes.
    pub(crate) fn passed(&mut self, bytes: &[u8]) {
        if self.speaks.is_none() || bytes.is_empty() {
            return;
        }
        self.anything = true;
        let from = bytes.len().saturating_sub(self.last.len());
        for &byte in &bytes[from..] {
            self.last.rotate_left(1);
            self.last[3] = byte;
        }
    }

    /// The event that tells of `error`, if one can follow what has passed.
    pub(crate) fn error_event(&self, error: &RelayError) -> Option<Bytes> {
        let (kind, code) = match error {
            RelayError::Broken(_) | RelayError::Cut => {
                (ErrorKind::UpstreamUnreachable, "upstream_unreachable")
            }
            RelayError::Idle => (ErrorKind::UpstreamTimeout, "upstream_timeout"),
            RelayError::CutOff | RelayError::Unread => return None,
        };
        self.event(kind, code, &format!("{error}."))
    }

    /// The event of an error, if one can follow what has passed.
    pub(crate) fn event(&self, kind: ErrorKind, code: &str, message: &str) -> Option<Bytes> {
        let (protocol, request_id) = self.speaks.as_ref()?;
        if self.anything && !self.is_between_events() {
            return None;
        }
        Some(stream_error_event(*protocol, kind, code, message, request_id).into())
    }

    /// How many of the `bytes` that are about to pass end with a whole event: all of them where no event can
    /// follow anyway.
    pub(crate) fn whole_events(&self, bytes: &[u8]) -> usize {
        if self.speaks.is_none() {
            return bytes.len();
        }
        let passed = self.last.len();
        let both = [&self.last[..], bytes].concat();
        let ends_event = |end: &usize| is_event_end(&both[..passed.saturating_add(*end)]);
        (0..=bytes.len()).rev().find(ends_event).unwrap_or(0)
    }

    fn is_between_events(&self) -> bool {
        is_event_end(&self.last)
    }
}

/// Whether the last line is empty: each line ends in LF, CR or CRLF.
fn is_event_end(bytes: &[u8]) -> bool {
    [&b"\n\n"[..], b"\r\r", b"\n\r\n", b"\n\r", b"\r\r\n"].iter().any(|end| bytes.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c110_a_broken_stream_ends_with_an_error_event_only_between_events() {
        for (passed, expected) in [
            (&["data: {}\n\n"][..], true),
            (&["data: {}\n", "\n"], true),
            (&["data: {}\r\n\r", "\n"], true),
            (&["data: {}\r\r"], true),
            (&["data: {}\n\r\n"], true),
            (&["data: {}\n", "\r"], true),
            (&["data: {}\r", "\r\n"], true),
            (&["data: {}\r\n", "\n"], true),
            (&["data: {}\r"], false),
            (&[], true),
            (&["data: {}\n"], false),
            (&["data: {\"a"], false),
            (&["data: {}\r\n"], false),
        ] {
            let mut tail = Tail::stream(Protocol::Anthropic, "id".to_owned());
            passed.iter().for_each(|bytes| tail.passed(bytes.as_bytes()));
            assert_eq!(tail.error_event(&RelayError::Idle).is_some(), expected, "{passed:?}");
        }
        assert!(Tail::closed().error_event(&RelayError::Idle).is_none());
    }

    #[test]
    fn what_follows_the_last_whole_event_is_told_wherever_it_began() {
        for (passed, bytes, whole) in [
            ("", "data: 1\n\ndata: 2\n\n", 18),
            ("", "data: 1\n\ndata: 2\n", 9),
            ("", "data: 1", 0),
            ("data: 1\n", "\ndata: 2", 1),
            ("data: 1\r\n\r", "\ndata: 2\r\n", 1),
            ("data: 1\n\n", "data: 2\n", 0),
            ("data: ", "1\r\rdata", 3),
        ] {
            let mut tail = Tail::stream(Protocol::OpenAi, "id".to_owned());
            tail.passed(passed.as_bytes());
            assert_eq!(tail.whole_events(bytes.as_bytes()), whole, "{passed:?} {bytes:?}");
        }
        assert_eq!(Tail::closed().whole_events(b"ab"), 2);
    }
}
