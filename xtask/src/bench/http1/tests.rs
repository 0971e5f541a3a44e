use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::Reader;

const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n10\r\nsixteen bytes !!\r\n0\r\n\r\n";
const SIZED: &[u8] = b"HTTP/1.1 402 Payment Required\r\ncontent-length: 3\r\n\r\nnot";

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    client.set_nodelay(true).unwrap();
    (client, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn messages_end_where_they_say() {
    let (mut client, mut server) = pair().await;
    client.write_all(&[CHUNKED, SIZED, CHUNKED].concat()).await.unwrap();
    drop(client);
    let mut reader = Reader::new();
    for (raw, status, body_bytes, chunks) in
        [(CHUNKED, 200, 21, 2), (SIZED, 402, 3, 0), (CHUNKED, 200, 21, 2)]
    {
        let message = reader.next(&mut server).await.unwrap().unwrap();
        assert_eq!((message.raw.as_slice(), message.status()), (raw, status));
        assert_eq!((message.body_bytes, message.chunk_ends.len()), (body_bytes, chunks));
    }
    assert!(reader.next(&mut server).await.unwrap().is_none());
}

#[tokio::test]
async fn a_message_may_come_byte_by_byte() {
    let (mut client, mut server) = pair().await;
    let write = async {
        for byte in CHUNKED {
            client.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let mut reader = Reader::new();
    let ((), read) = tokio::join!(write, reader.next(&mut server));
    assert_eq!(read.unwrap().unwrap().raw, CHUNKED);
}

#[tokio::test]
async fn a_message_that_breaks_off_is_an_error() {
    for whole in [CHUNKED, SIZED] {
        for end in 1..whole.len() {
            let (mut client, mut server) = pair().await;
            client.write_all(&whole[..end]).await.unwrap();
            drop(client);
            let error = Reader::new().next(&mut server).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {end}");
        }
    }
}
