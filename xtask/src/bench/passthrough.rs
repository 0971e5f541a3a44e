//! The yardstick: a proxy that does nothing but pass on, with the libraries that Tollgate uses.
//!
//! Bodies stream through as they come, connections to the upstream are pooled, one runtime with one
//! thread, mimalloc, the release profile of the workspace.

use std::io::Read;
use std::net::SocketAddr;

use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

type Upstream = Client<HttpConnector, Incoming>;

/// Serves until standard input ends, which it does when the bench does. Prints its address first.
///
/// # Errors
/// It cannot listen.
pub(crate) fn run(upstream: SocketAddr) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("tokio: {error}"))?;
    let (end, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        // A broken pipe is an end like any other.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(end);
    });
    runtime.block_on(async {
        tokio::select! {
            result = accept(upstream) => result,
            _ = ended => Ok(()),
        }
    })
}

async fn accept(upstream: SocketAddr) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("listening on 127.0.0.1: {error}");
    let authority = Authority::try_from(upstream.to_string()).map_err(|error| error.to_string())?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream = Client::builder(TokioExecutor::new()).build(connector);
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    println!("{}", listener.local_addr().map_err(failed)?);
    loop {
        let (stream, _) = listener.accept().await.map_err(failed)?;
        tokio::spawn(serve(stream, client.clone(), authority.clone()));
    }
}

async fn serve(stream: TcpStream, client: Upstream, authority: Authority) {
    // Neither failure is the bench's subject: the load generator sees a broken connection and says so.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| forward(&client, authority.clone(), request));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn forward(
    client: &Upstream,
    authority: Authority,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Error> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request.headers_mut().remove(header::HOST);
    client.request(request).await
}
