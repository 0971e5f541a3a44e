//! Connections to providers: pools, TLS, credentials.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, Uri, Version, header,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tollgate_config::{Provider, Secret};
use tollgate_providers::Protocol;

use crate::{
    error::StartError,
    headers,
    network::{Network, Transport},
};

/// How many idle connections one worker keeps to one provider.
const IDLE_CONNECTIONS_MAX: usize = 256;

/// How long an idle connection is kept. Below the 60 s after which common load balancers close.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(55);

/// One provider as one worker reaches it.
pub(crate) struct Upstream {
    /// The provider's name.
    pub(crate) id: Arc<str>,
    /// What it speaks.
    pub(crate) protocol: Protocol,
    /// Whether `stream_options.include_usage` may be put into its requests.
    pub(crate) usage_in_stream: bool,
    /// Between two pieces of an answer.
    pub(crate) idle_timeout: Duration,
    target: Target,
    credential: Option<HeaderValue>,
    response_timeout: Duration,
    client: Client<HttpsConnector<Transport>, Outgoing>,
}

/// Where requests go: the base URL, taken apart once.
#[derive(Clone)]
struct Target {
    scheme: Scheme,
    authority: Authority,
    path_prefix: String,
}

/// Why a provider gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// No connection, or it closed before an answer.
    #[error("the provider could not be reached")]
    Unreachable(#[source] Option<hyper_util::client::legacy::Error>),
    /// No answer in time.
    #[error("the provider did not answer in time")]
    Timeout,
}

impl Upstream {
    /// A pool of its own for `provider`. Providers are spoken to in HTTP/1.1: a pool grows with the
    /// load, where one HTTP/2 connection would queue calls above the provider's stream limit.
    pub(crate) fn new(
        provider: &Provider,
        tls: rustls::ClientConfig,
        network: &Network,
    ) -> Result<Self, StartError> {
        let protocol = protocol(provider.protocol);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(network.transport(provider.connect_timeout));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        let base = &provider.base_url;
        Ok(Self {
            id: provider.id.clone(),
            protocol,
            usage_in_stream: provider.usage_in_stream,
            idle_timeout: provider.idle_timeout,
            target: Target {
                scheme: if base.is_https() { Scheme::HTTPS } else { Scheme::HTTP },
                authority: base.authority().clone(),
                path_prefix: base.path_prefix().to_owned(),
            },
            credential: provider.api_key.as_ref().map(|key| credential(protocol, key)).transpose()?,
            response_timeout: provider.response_timeout,
            client,
        })
    }

    /// Whether the client's own provider credential is what the provider sees.
    pub(crate) const fn passes_credential(&self) -> bool {
        self.credential.is_none()
    }

    /// Turns the client's request head into the provider's.
    ///
    /// `body_bytes` is `None` for a request without a body.
    pub(crate) fn head(
        &self,
        method: Method,
        path: &PathAndQuery,
        mut headers: HeaderMap,
        body_bytes: Option<usize>,
    ) -> Request<()> {
        headers::strip_connection_headers(&mut headers);
        headers::restrict_accept_encoding(&mut headers);
        headers.remove(header::HOST);
        match body_bytes {
            Some(bytes) => headers.insert(header::CONTENT_LENGTH, bytes.into()),
            None => headers.remove(header::CONTENT_LENGTH),
        };
        if let Some(credential) = &self.credential {
            for name in &headers::CREDENTIALS {
                headers.remove(name);
            }
            headers.insert(credential_header(self.protocol), credential.clone());
        }
        let mut head = Request::new(());
        *head.method_mut() = method;
        *head.uri_mut() = self.target.uri(path);
        *head.version_mut() = Version::HTTP_11;
        *head.headers_mut() = headers;
        head
    }

    /// Sends a request and waits for the head of the answer. `left` is set when the connection takes
    /// the body, and so has the head.
    pub(crate) fn send(
        &self,
        head: Request<()>,
        body: Bytes,
        left: Arc<AtomicBool>,
    ) -> impl Future<Output = Result<Response<Incoming>, UpstreamError>> + Send + use<> {
        let request = head.map(|()| Outgoing { body: Full::new(body), left });
        let answer = tokio::time::timeout(self.response_timeout, self.client.request(request));
        async move {
            match answer.await {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(error)) => Err(UpstreamError::Unreachable(Some(error))),
                Err(_elapsed) => Err(UpstreamError::Timeout),
            }
        }
    }
}

/// A request's body that tells when it is taken.
struct Outgoing {
    body: Full<Bytes>,
    left: Arc<AtomicBool>,
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.left.store(true, Ordering::Relaxed);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Target {
    fn uri(&self, path: &PathAndQuery) -> Uri {
        let path = if self.path_prefix.is_empty() {
            path.clone()
        } else {
            // Both parts were valid paths, so the joined one is; the bare path is a safe fallback.
            PathAndQuery::try_from(format!("{}{path}", self.path_prefix)).unwrap_or_else(|_| path.clone())
        };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).unwrap_or_default()
    }
}

/// The protocol an adapter exists for.
pub(crate) const fn protocol(configured: tollgate_config::Protocol) -> Protocol {
    match configured {
        tollgate_config::Protocol::Anthropic => Protocol::Anthropic,
        _ => Protocol::OpenAi,
    }
}

const fn credential_header(protocol: Protocol) -> http::HeaderName {
    match protocol {
        Protocol::Anthropic => headers::X_API_KEY,
        _ => header::AUTHORIZATION,
    }
}

fn credential(protocol: Protocol, key: &Secret) -> Result<HeaderValue, StartError> {
    let text = match protocol {
        Protocol::Anthropic => key.expose().to_owned(),
        _ => format!("Bearer {}", key.expose()),
    };
    let mut value = HeaderValue::try_from(text).map_err(|_| StartError::Credential)?;
    value.set_sensitive(true);
    Ok(value)
}
