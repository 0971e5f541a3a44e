//! One request: record it, decide, answer.

use std::io;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Method, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::Incoming;

use crate::behaviour::{Behaviour, Start};
use crate::mock::Options;
use crate::record::{Received, Records};
use crate::reply::{Answer, Content, content, input_tokens};
use crate::request::{Asked, Protocol};
use crate::respond::respond;
use crate::script::{Exchange, Script};
use crate::usage::Usage;
use crate::wire::Switch;
use crate::{anthropic, openai};

/// Larger than what any of the providers takes.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Answers the requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Handler {
    pub(crate) options: Arc<Options>,
    pub(crate) records: Arc<Records>,
    pub(crate) connection: u64,
    pub(crate) switch: Switch,
}

/// An answer before it is bytes.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) protocol: Protocol,
    pub(crate) number: u64,
    pub(crate) status: u16,
    pub(crate) content: Content,
    /// What a success costs, and at which model.
    pub(crate) charge: Option<(String, Usage)>,
}

impl Handler {
    /// Answers one request.
    ///
    /// # Errors
    /// A request body that is too large or breaks off: the connection is closed.
    pub(crate) async fn answer(self, request: Request<Incoming>) -> io::Result<Response<Script>> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?.to_bytes();
        let number = self.records.request(Received {
            connection: self.connection,
            method: head.method.clone(),
            uri: head.uri.clone(),
            headers: head.headers.clone(),
            body: body.clone(),
        });
        let mut exchange = Exchange::open(Arc::clone(&self.records));
        let protocol = protocol(&head);
        let (behaviour, reply) = match self.options.behaviour.with_headers(&head.headers) {
            Ok(behaviour) => {
                self.begin(&behaviour, &mut exchange).await;
                let reply = self.decide(protocol, number, &head, &body, &behaviour);
                (behaviour, reply)
            }
            Err(problem) => (Behaviour::default(), error(protocol, number, 400, &problem.to_string())),
        };
        respond(reply, &behaviour, self.switch, exchange)
    }

    async fn begin(&self, behaviour: &Behaviour, exchange: &mut Exchange) {
        if !behaviour.pace.first_byte_delay.is_zero() {
            tokio::time::sleep(behaviour.pace.first_byte_delay).await;
        }
        match behaviour.start {
            Start::Answer => return,
            Start::Hang => {}
            Start::Reset => {
                exchange.over();
                self.switch.reset();
            }
            Start::Close => {
                exchange.over();
                self.switch.close();
            }
        }
        // The connection ends by the switch, by the client, or with the mock.
        std::future::pending().await
    }

    fn decide(
        &self,
        protocol: Protocol,
        number: u64,
        head: &Parts,
        body: &[u8],
        behaviour: &Behaviour,
    ) -> Reply {
        let refuse = |status, message: &str| error(protocol, number, status, message);
        if !self.is_authorised(&head.headers) {
            return refuse(401, "the API key is missing or wrong");
        }
        if let Some(status) = behaviour.status {
            return refuse(status, status_message(status));
        }
        let path = head.uri.path();
        let plain =
            |text| Reply { protocol, number, status: 200, content: Content::Plain(text), charge: None };
        match (&head.method, path) {
            (&Method::POST, "/v1/messages" | "/v1/chat/completions") => match Asked::parse(protocol, body) {
                Ok(asked) if asked.has_stream_options && behaviour.rejects_stream_options => {
                    refuse(400, "Unrecognized request argument supplied: stream_options")
                }
                Ok(asked) => success(protocol, number, &asked, behaviour),
                Err(problem) => refuse(400, &problem),
            },
            (&Method::POST, "/v1/messages/count_tokens") => {
                let estimate = input_tokens(u64::try_from(body.len()).unwrap_or(u64::MAX));
                plain(anthropic::token_count(behaviour.usage.input_tokens.unwrap_or(estimate)))
            }
            (&Method::GET, "/v1/models") => plain(match protocol {
                Protocol::Anthropic => anthropic::models(&self.options.models),
                Protocol::OpenAi => openai::models(&self.options.models),
            }),
            (&Method::GET, _) if self.model(path).is_some() => {
                let id = self.model(path).unwrap_or_default();
                plain(match protocol {
                    Protocol::Anthropic => anthropic::model(id),
                    Protocol::OpenAi => openai::model(id),
                })
            }
            _ => refuse(404, &format!("not found: {} {path}", head.method)),
        }
    }

    fn is_authorised(&self, headers: &HeaderMap) -> bool {
        let Some(key) = &self.options.api_key else { return true };
        let given = headers.get("x-api-key").or_else(|| headers.get("api-key")).map_or_else(
            || headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer ")),
            |value| Some(value.as_bytes()),
        );
        given == Some(key.as_bytes())
    }

    fn model(&self, path: &str) -> Option<&str> {
        let id = path.strip_prefix("/v1/models/")?;
        self.options.models.iter().find(|model| *model == id).map(String::as_str)
    }
}

fn protocol(head: &Parts) -> Protocol {
    let path = head.uri.path();
    if path.starts_with("/v1/messages") || head.headers.contains_key("anthropic-version") {
        Protocol::Anthropic
    } else {
        Protocol::OpenAi
    }
}

fn success(protocol: Protocol, number: u64, asked: &Asked, behaviour: &Behaviour) -> Reply {
    let answer = Answer::new(number, asked, behaviour);
    Reply {
        protocol,
        number,
        status: 200,
        content: content(protocol, asked, &answer),
        charge: Some((answer.model, answer.usage)),
    }
}

fn error(protocol: Protocol, number: u64, status: u16, message: &str) -> Reply {
    let text = match protocol {
        Protocol::Anthropic => anthropic::error(status, message, number),
        Protocol::OpenAi => openai::error(status, message),
    };
    Reply { protocol, number, status, content: Content::Plain(text), charge: None }
}

fn status_message(status: u16) -> &'static str {
    match status {
        401 => "Incorrect API key provided",
        404 => "The model does not exist or you do not have access to it",
        429 => "Rate limit reached",
        503 => "The service is temporarily unavailable",
        529 => "Overloaded",
        400..500 => "The request is invalid",
        _ => "The server had an error while processing your request",
    }
}
