//! A client that hides nothing: raw HTTP/1.1 over one connection.

use std::{io, net::SocketAddr};

use http::HeaderMap;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::PATIENCE;

/// The most bytes of an answer that are kept.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, with the chunked framing taken off.
    pub body: Vec<u8>,
    /// Whether the body ended as its framing says it should.
    pub complete: bool,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// It is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Makes one-request connections.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    address: SocketAddr,
}

impl Client {
    /// A client of the server at `address`.
    pub const fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// Opens a connection.
    ///
    /// # Panics
    ///
    /// It is refused.
    pub async fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        Connection { stream, read: Vec::new() }
    }

    /// Sends raw bytes and reads one answer.
    ///
    /// # Panics
    ///
    /// No answer comes.
    pub async fn send(&self, request: &[u8]) -> Answer {
        let mut connection = self.connect().await;
        connection.write(request).await;
        connection.answer().await.expect("an answer")
    }

    /// Posts JSON with a key and further header lines (`name: value`), and reads the answer.
    ///
    /// # Panics
    ///
    /// No answer comes.
    pub async fn post(&self, path: &str, key: &str, body: &Value, headers: &[&str]) -> Answer {
        self.send(&json_request(path, key, body, headers)).await
    }

    /// Gets a path.
    ///
    /// # Panics
    ///
    /// No answer comes.
    pub async fn get(&self, path: &str, headers: &[&str]) -> Answer {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n{lines}\r\n").as_bytes()).await
    }
}

/// The bytes of a POST with a JSON body.
pub fn json_request(path: &str, key: &str, body: &Value, headers: &[&str]) -> Vec<u8> {
    let body = body.to_string();
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{lines}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    /// Writes raw bytes. A server that has closed is no error here: the answer tells.
    pub async fn write(&mut self, bytes: &[u8]) {
        let _ = timeout(PATIENCE, self.stream.write_all(bytes)).await;
    }

    /// Closes the sending side.
    pub async fn shutdown(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Reads until `count` bytes of the answer (head included) are there, or it ends.
    ///
    /// # Errors
    ///
    /// The connection broke or nothing came in time.
    pub async fn read_at_least(&mut self, count: usize) -> io::Result<usize> {
        while self.read.len() < count {
            if self.fill().await? == 0 {
                break;
            }
        }
        Ok(self.read.len())
    }

    /// Reads until the bytes so far contain `text`.
    ///
    /// # Errors
    ///
    /// The connection ended before.
    pub async fn read_until(&mut self, text: &str) -> io::Result<()> {
        while !self.read.windows(text.len()).any(|window| window == text.as_bytes()) {
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// What has been read so far and belongs to no answer yet, head and framing included.
    pub fn read_so_far(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Reads one whole answer; further ones stay for the next call.
    ///
    /// # Errors
    ///
    /// The connection broke before the head was there, or nothing came in time.
    pub async fn answer(&mut self) -> io::Result<Answer> {
        let head_end = loop {
            if let Some(at) = find(&self.read, b"\r\n\r\n") {
                break at + 4;
            }
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let head: Vec<u8> = self.read.drain(..head_end).collect();
        let (status, headers) = parse_head(&head);
        if (100..200).contains(&status) {
            return Box::pin(self.answer()).await;
        }
        let chunked = headers.get("transfer-encoding").is_some();
        let length =
            headers.get("content-length").and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let (body, complete) = if chunked { self.chunked().await } else { self.counted(length).await };
        Ok(Answer { status, headers, body, complete })
    }

    async fn counted(&mut self, length: Option<usize>) -> (Vec<u8>, bool) {
        let wanted = length.unwrap_or(usize::MAX);
        while self.read.len() < wanted && self.fill().await.is_ok_and(|count| count > 0) {}
        let body: Vec<u8> = self.read.drain(..self.read.len().min(wanted)).collect();
        let complete = length.is_none_or(|length| body.len() == length);
        (body, complete)
    }

    async fn chunked(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let Some(line_end) = find(&self.read, b"\r\n") else {
                if self.fill().await.is_ok_and(|count| count > 0) {
                    continue;
                }
                return (body, false);
            };
            let line = String::from_utf8_lossy(&self.read[..line_end]).into_owned();
            let size =
                usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).expect("a size");
            let whole = line_end + 2 + size + 2;
            while self.read.len() < whole {
                if !self.fill().await.is_ok_and(|count| count > 0) {
                    body.extend_from_slice(&self.read[line_end + 2..]);
                    return (body, false);
                }
            }
            body.extend_from_slice(&self.read[line_end + 2..line_end + 2 + size]);
            self.read.drain(..whole);
            if size == 0 {
                return (body, true);
            }
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        assert!(self.read.len() < ANSWER_BYTES_MAX, "the answer is too long");
        let mut piece = vec![0; 64 * 1024];
        let count =
            timeout(PATIENCE, self.stream.read(&mut piece)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        self.read.extend_from_slice(&piece[..count]);
        Ok(count)
    }
}

fn parse_head(head: &[u8]) -> (u16, HeaderMap) {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let mut headers = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("a header");
        let name = http::HeaderName::try_from(name).expect("a name");
        headers.append(name, value.trim().try_into().expect("a value"));
    }
    (status.expect("a status"), headers)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
