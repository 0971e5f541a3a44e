//! Events without an interval reach the socket together.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::record::Records;
use crate::script::{Exchange, Piece, Script};
use crate::wire::{Switch, Wire};

async fn pair(switch: &Switch) -> (Wire<TcpStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (Wire::new(server, switch.clone()), client)
}

#[tokio::test]
async fn a_corked_wire_writes_nothing_until_it_is_uncorked() {
    let switch = Switch::default();
    let (mut wire, mut client) = pair(&switch).await;
    switch.cork();
    for _ in 0..101 {
        wire.write_all(b"event").await.unwrap();
        wire.flush().await.unwrap();
    }
    assert_eq!(arrived(&client), Err(ErrorKind::WouldBlock));
    switch.uncork();
    wire.write_all(b"last").await.unwrap();
    wire.flush().await.unwrap();
    assert_eq!(arrived(&client), Ok(1));
    drop(wire);
    let mut all = Vec::new();
    client.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, [b"event".repeat(101), b"last".to_vec()].concat());
}

#[tokio::test]
async fn a_corked_wire_keeps_a_bounded_amount() {
    let switch = Switch::default();
    let (mut wire, mut client) = pair(&switch).await;
    switch.cork();
    let piece = vec![7; 100 << 10];
    let write = async {
        for _ in 0..12 {
            wire.write_all(&piece).await.unwrap();
        }
    };
    let mut received = vec![0; 900 << 10];
    let (_, read) = tokio::join!(write, client.read_exact(&mut received));
    assert_eq!(read.unwrap(), 900 << 10, "though it was never uncorked");
}

#[tokio::test]
async fn a_burst_is_corked_up_to_its_last_event() {
    let switch = Switch::default();
    let piece = |_| Piece { bytes: Bytes::from_static(b"event"), ends_event: true, is_content: true };
    let exchange = Exchange::open(Arc::new(Records::new(0)));
    let pieces = (0..5).map(piece).collect();
    let mut script = Script::new(pieces, Duration::ZERO, None, switch.clone(), exchange).burst(true);
    let mut corked = Vec::new();
    while script.frame().await.is_some() {
        corked.push(switch.is_corked());
    }
    assert_eq!(corked, [true, true, true, true, false]);
}

/// Whether a byte has arrived, asked of the kernel itself.
fn arrived(client: &TcpStream) -> Result<usize, ErrorKind> {
    let socket = socket2::SockRef::from(client);
    socket.peek(&mut [std::mem::MaybeUninit::uninit()]).map_err(|error| error.kind())
}
