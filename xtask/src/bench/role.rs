//! What the processes of the bench that are not the bench itself have in common.

use std::future::Future;
use std::io::Read;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Runs a server on a runtime of one thread until standard input ends, which it does when the bench does.
///
/// # Errors
/// The server could not be set up.
pub(crate) fn run<S: Future<Output = ()>>(
    set_up: impl Future<Output = Result<S, String>>,
) -> Result<(), String> {
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
        let server = set_up.await?;
        tokio::select! {
            () = server => Err("the listener failed".to_owned()),
            _ = ended => Ok(()),
        }
    })
}

/// Listens on a free port and says which on standard output.
///
/// # Errors
/// No port is free.
pub(crate) async fn listen() -> Result<TcpListener, String> {
    let listen = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        Ok::<_, std::io::Error>(listener)
    };
    listen.await.map_err(|error| format!("listening on 127.0.0.1: {error}"))
}
