//! The upstream of the bench: the mock's own answers, recorded once and sent again for next to nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tollgate_mock::{Behaviour, Mock, Options};

use super::http1::{Message, Reader};
use super::workload::{ANSWER_BYTES, EVENTS, INTERVAL_MS, Workload};

/// Events of a stream that are not content: three before, three after.
const FRAME_EVENTS: u32 = 6;

/// The recorded answers.
struct Answers {
    plain: Vec<u8>,
    /// Head and all chunks.
    stream: Vec<u8>,
    /// Where in `stream` the event pieces end; the last one includes the end of the body.
    event_ends: Vec<usize>,
}

/// Starts the upstream on this runtime and tells its address.
///
/// # Errors
/// The mock or the listener cannot be started, or the mock's answers are not what the bench is about.
pub(crate) async fn start() -> Result<SocketAddr, String> {
    let bind = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        Ok((listener.local_addr()?, listener))
    };
    let (addr, listener) =
        bind.await.map_err(|error: io::Error| format!("listening on 127.0.0.1: {error}"))?;
    let answers = Arc::new(Answers::record().await.map_err(|error| format!("recording answers: {error}"))?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&answers)));
        }
    });
    Ok(addr)
}

async fn answer(mut stream: TcpStream, answers: Arc<Answers>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = Reader::new();
    while let Some(request) = reader.next(&mut stream).await? {
        let (head, body) = request.raw.split_at(request.head_bytes);
        if memmem::find(body, br#""stream":true"#).is_none() {
            stream.write_all(&answers.plain).await?;
        } else if memmem::find(head, b"x-mock-interval-ms").is_none() {
            stream.write_all(&answers.stream).await?;
        } else {
            let mut start = 0;
            for end in &answers.event_ends {
                if start > 0 {
                    tokio::time::sleep(Duration::from_millis(INTERVAL_MS)).await;
                }
                stream.write_all(&answers.stream[start..*end]).await?;
                start = *end;
            }
        }
    }
    Ok(())
}

impl Answers {
    async fn record() -> Result<Self, String> {
        let frame = record(Workload::Plain, |behaviour| behaviour.text_bytes = Some(0)).await?.body_bytes;
        let text_bytes = ANSWER_BYTES.checked_sub(frame).and_then(|bytes| u32::try_from(bytes).ok());
        let plain = record(Workload::Plain, |behaviour| behaviour.text_bytes = text_bytes).await?;
        let stream =
            record(Workload::Burst, |behaviour| behaviour.pace.events = Some(EVENTS - FRAME_EVENTS)).await?;
        if plain.body_bytes != ANSWER_BYTES || stream.chunk_ends.len() != EVENTS as usize {
            return Err(format!("{} bytes and {} events", plain.body_bytes, stream.chunk_ends.len()));
        }
        let mut event_ends = stream.chunk_ends;
        if let Some(last) = event_ends.last_mut() {
            *last = stream.raw.len();
        }
        Ok(Self { plain: plain.raw, stream: stream.raw, event_ends })
    }
}

async fn record(workload: Workload, set: impl FnOnce(&mut Behaviour)) -> Result<Message, String> {
    let mut options = Options::default();
    set(&mut options.behaviour);
    let mock = Mock::start(options).map_err(|error| error.to_string())?;
    let mut stream = TcpStream::connect(mock.addr).await.map_err(|error| error.to_string())?;
    stream.write_all(&workload.request(mock.addr)).await.map_err(|error| error.to_string())?;
    let mut reader = Reader::new();
    match reader.next(&mut stream).await {
        Ok(Some(message)) if message.status() == 200 => Ok(message.clone()),
        Ok(Some(message)) => Err(message.text()),
        Ok(None) => Err("the mock closed the connection".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
