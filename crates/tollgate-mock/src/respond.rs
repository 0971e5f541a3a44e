//! A reply and a behaviour into an HTTP response.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, header};

use crate::behaviour::{Behaviour, End, Framing};
use crate::handler::Reply;
use crate::reply::Content;
use crate::request::Protocol;
use crate::script::{Exchange, Piece, Script, Stop};
use crate::sse::Event;
use crate::wire::Switch;
use crate::{anthropic, encode, openai};

/// Seconds to wait that a 429 names by itself.
const RETRY_AFTER_S: u64 = 7;

/// Builds the response.
///
/// # Errors
/// A header value that HTTP does not allow, which only a wrong `x-mock-*` value could bring.
pub(crate) fn respond(
    reply: Reply,
    behaviour: &Behaviour,
    switch: Switch,
    mut exchange: Exchange,
) -> io::Result<Response<Script>> {
    let is_success = reply.status == 200;
    let mut response = Response::builder().status(reply.status);
    for (name, value) in headers(&reply, behaviour) {
        response = response.header(name, HeaderValue::try_from(value).map_err(io::Error::other)?);
    }
    exchange.label(behaviour.label.clone());
    let plain = Behaviour::default();
    let behaviour = if is_success { behaviour } else { &plain };
    let is_stream = matches!(reply.content, Content::Stream(_));
    if let Some((model, usage)) = reply.charge {
        exchange.charge(model, usage, content_pieces(&reply.content, behaviour));
    }
    let pieces = pieces(reply.content, behaviour, reply.protocol, reply.number)?;
    let is_burst =
        behaviour.pace.interval == Duration::ZERO && behaviour.pace.split_bytes.is_none() && pieces.len() > 1;
    let script =
        Script::new(pieces, behaviour.pace.interval, stop(behaviour.end, is_stream), switch, exchange)
            .burst(is_burst)
            .sized(!is_stream);
    response.body(script).map_err(io::Error::other)
}

fn headers(reply: &Reply, behaviour: &Behaviour) -> Vec<(&'static str, String)> {
    let mut headers = match reply.protocol {
        Protocol::Anthropic => anthropic::headers(reply.number, reply.status),
        Protocol::OpenAi => openai::headers(reply.number, reply.status),
    };
    let retry_after_s = behaviour.retry_after_s.or((reply.status == 429).then_some(RETRY_AFTER_S));
    if let Some(seconds) = retry_after_s.filter(|_| reply.status != 200) {
        headers.push((header::RETRY_AFTER.as_str(), seconds.to_string()));
    }
    let content_type = match reply.content {
        Content::Plain(_) => "application/json",
        Content::Stream(_) => "text/event-stream; charset=utf-8",
    };
    headers.push((header::CONTENT_TYPE.as_str(), content_type.to_owned()));
    if matches!(reply.content, Content::Stream(_)) {
        headers.push((header::CACHE_CONTROL.as_str(), "no-cache".to_owned()));
    }
    if let Some(encoding) = encode::header(behaviour.encoding).filter(|_| reply.status == 200) {
        headers.push((header::CONTENT_ENCODING.as_str(), encoding.to_owned()));
    }
    headers
}

fn content_pieces(content: &Content, behaviour: &Behaviour) -> u64 {
    match content {
        Content::Plain(_) => u64::from(behaviour.pace.pieces.unwrap_or(1)),
        Content::Stream(events) => {
            u64::try_from(events.iter().filter(|event| event.is_content).count()).unwrap_or(u64::MAX)
        }
    }
}

fn pieces(
    content: Content,
    behaviour: &Behaviour,
    protocol: Protocol,
    number: u64,
) -> io::Result<Vec<Piece>> {
    let (bytes, is_content) = match content {
        Content::Plain(text) => plain_pieces(&text, behaviour)?,
        Content::Stream(mut events) => {
            if let End::ErrorEvent(after) = behaviour.end {
                events.truncate(usize::try_from(after).unwrap_or(usize::MAX));
                events.push(match protocol {
                    Protocol::Anthropic => anthropic::error_event(number),
                    Protocol::OpenAi => openai::error_event(),
                });
            }
            stream_pieces(&events, behaviour.framing, behaviour)?
        }
    };
    let split =
        behaviour.pace.split_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
    let mut pieces = Vec::with_capacity(bytes.len());
    for (mut bytes, is_content) in bytes.into_iter().zip(is_content) {
        while bytes.len() > split {
            pieces.push(Piece { bytes: bytes.split_to(split), ends_event: false, is_content: false });
        }
        pieces.push(Piece { bytes, ends_event: true, is_content });
    }
    Ok(pieces)
}

fn stream_pieces(
    events: &[Event],
    framing: Framing,
    behaviour: &Behaviour,
) -> io::Result<(Vec<Bytes>, Vec<bool>)> {
    let texts = events.iter().map(|event| Bytes::from(event.render(framing))).collect();
    let is_content = events.iter().map(|event| event.is_content).collect();
    Ok((encode::encode(behaviour.encoding, texts)?, is_content))
}

fn plain_pieces(text: &str, behaviour: &Behaviour) -> io::Result<(Vec<Bytes>, Vec<bool>)> {
    let whole = encode::encode(behaviour.encoding, vec![Bytes::copy_from_slice(text.as_bytes())])?;
    let mut rest: Bytes = whole.concat().into();
    let count = usize::try_from(behaviour.pace.pieces.unwrap_or(1)).unwrap_or(1).clamp(1, rest.len().max(1));
    let size = rest.len().div_ceil(count).max(1);
    let mut pieces = Vec::with_capacity(count);
    while rest.len() > size {
        pieces.push(rest.split_to(size));
    }
    pieces.push(rest);
    let is_content = vec![true; pieces.len()];
    Ok((pieces, is_content))
}

fn stop(end: End, is_stream: bool) -> Option<(u32, Stop)> {
    match end {
        End::Complete | End::ErrorEvent(_) => None,
        End::Hang(after) => Some((after, Stop::Hang)),
        End::Reset(after) => Some((after, Stop::Reset)),
        // A body whose length is announced has no well-formed end before it.
        End::Cut(after) if is_stream => Some((after, Stop::Cut)),
        End::Cut(after) | End::Close(after) => Some((after, Stop::Close)),
    }
}
