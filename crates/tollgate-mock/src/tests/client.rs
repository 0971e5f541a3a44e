//! A blocking client that shows what hides behind an HTTP library: chunks, resets and silence.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::{Mock, Options};

pub(crate) const ANTHROPIC: &str =
    r#"{"model":"claude-sonnet-5-5","max_tokens":100,"messages":[{"role":"user","content":"Hello"}]}"#;
pub(crate) const ANTHROPIC_STREAM: &str = r#"{"model":"claude-sonnet-5-5","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"Hello"}]}"#;
pub(crate) const OPENAI: &str = r#"{"model":"gpt-6-astra","messages":[{"role":"user","content":"Hello"}]}"#;
pub(crate) const OPENAI_STREAM: &str =
    r#"{"model":"gpt-6-astra","stream":true,"messages":[{"role":"user","content":"Hello"}]}"#;
pub(crate) const OPENAI_STREAM_USAGE: &str = r#"{"model":"gpt-6-astra","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hello"}]}"#;

/// Longer than anything takes here; a test that waits it out has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// How the bytes of an answer ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Closed,
    Reset,
    Silent,
}

/// One answer as it came.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) head: String,
    pub(crate) chunks: Vec<Vec<u8>>,
    /// Whether the HTTP body had its proper end.
    pub(crate) is_whole: bool,
    pub(crate) ended: Ended,
}

impl Got {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ &str| line.split_once(": ").is_some_and(|(key, _)| key == name);
        self.head.lines().find(line).and_then(|line| line.split_once(": ")).map(|(_, value)| value)
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body()).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body()).unwrap()
    }

    /// The JSON of every `data:` line, `[DONE]` as a string.
    pub(crate) fn events(&self) -> Vec<serde_json::Value> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap_or_else(|_| data.into()))
            .collect()
    }
}

pub(crate) fn mock() -> Mock {
    Mock::start(Options::default()).unwrap()
}

/// Sends a request on a connection of its own.
pub(crate) fn send(mock: &Mock, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(mock.addr).unwrap();
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(body);
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Reads until the connection ends or is silent for `patience`.
pub(crate) fn receive(stream: &mut TcpStream, patience: Duration) -> Got {
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 65_536];
    let ended = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break Ended::Closed,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break Ended::Reset,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break Ended::Silent,
            Err(error) => panic!("{error}"),
        }
    };
    let Some(head_end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Got { head: String::from_utf8(bytes).unwrap(), chunks: Vec::new(), is_whole: false, ended };
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let body = &bytes[head_end + 4..];
    let mut got = Got { head, chunks: Vec::new(), is_whole: false, ended };
    match got.header("content-length") {
        Some(length) => {
            got.is_whole = body.len() == length.parse::<usize>().unwrap();
            got.chunks.push(body.to_vec());
        }
        None => (got.chunks, got.is_whole) = dechunk(body),
    }
    got
}

/// One request and its answer, which must come to an end.
pub(crate) fn call(mock: &Mock, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
    let got = receive(&mut send(mock, "POST", path, headers, body), DEADLINE);
    assert_ne!(got.ended, Ended::Silent);
    got
}

pub(crate) fn messages(headers: &[(&str, &str)], body: &str) -> Got {
    call(&mock(), "/v1/messages", headers, body)
}

pub(crate) fn chat(headers: &[(&str, &str)], body: &str) -> Got {
    call(&mock(), "/v1/chat/completions", headers, body)
}

fn dechunk(mut body: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut chunks = Vec::new();
    while let Some(line_end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..line_end]).unwrap(), 16).unwrap();
        let start = line_end + 2;
        if size == 0 {
            return (chunks, body[start..] == *b"\r\n");
        }
        let Some(chunk) = body.get(start..start + size) else { break };
        chunks.push(chunk.to_vec());
        body = &body[(start + size + 2).min(body.len())..];
    }
    (chunks, false)
}
