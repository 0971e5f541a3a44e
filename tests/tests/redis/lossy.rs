//! A way to Redis that loses or delays answers: a forwarder of TCP connections on a thread of its own.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// What happens to answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// They arrive.
    Pass,
    /// One in so many pieces is lost, and the connection ends.
    LoseAnswers {
        /// The period.
        one_in: u64,
    },
    /// One in so many pieces of questions is lost, and the connection ends.
    LoseQuestions {
        /// The period.
        one_in: u64,
    },
    /// One in so many pieces, and all that come after it, is later than anybody waits for it.
    DelayAnswers {
        /// The period.
        one_in: u64,
    },
}

/// Longer than the store waits for an answer.
const DELAY: Duration = Duration::from_millis(400);

/// The forwarder. Its threads end with their connections.
#[derive(Clone)]
pub(crate) struct Lossy {
    port: u16,
    mode: Arc<Mutex<Mode>>,
    pieces: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
}

impl Lossy {
    /// Forwards to a port of the loopback interface.
    pub(crate) fn start(towards: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let lossy = Self {
            port: listener.local_addr().unwrap().port(),
            mode: Arc::new(Mutex::new(Mode::Pass)),
            pieces: Arc::default(),
            lost: Arc::default(),
        };
        let forwards = lossy.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, towards)) else { continue };
                let (questions, answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let [asking, answering] = [(); 2].map(|()| forwards.clone());
                thread::spawn(move || pump(questions, server, || asking.is_asked()));
                thread::spawn(move || pump(answers, client, || answering.arrives()));
            }
        });
        lossy
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// From now on this happens.
    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// How many pieces were lost or late.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    fn is_asked(&self) -> bool {
        let Mode::LoseQuestions { one_in } = *self.mode.lock().unwrap() else { return true };
        let is_lost = self.pieces.fetch_add(1, Ordering::SeqCst).is_multiple_of(one_in);
        self.lost.fetch_add(u64::from(is_lost), Ordering::SeqCst);
        !is_lost
    }

    fn arrives(&self) -> bool {
        if let Mode::LoseQuestions { .. } = *self.mode.lock().unwrap() {
            return true;
        }
        let piece = self.pieces.fetch_add(1, Ordering::SeqCst);
        match *self.mode.lock().unwrap() {
            Mode::LoseAnswers { one_in } if piece.is_multiple_of(one_in) => {
                self.lost.fetch_add(1, Ordering::SeqCst);
                false
            }
            Mode::DelayAnswers { one_in } if piece.is_multiple_of(one_in) => {
                self.lost.fetch_add(1, Ordering::SeqCst);
                thread::park_timeout(DELAY);
                true
            }
            _ => true,
        }
    }
}

/// Copies until an end, or until a piece does not arrive: then both directions end.
fn pump(mut from: TcpStream, mut to: TcpStream, arrives: impl Fn() -> bool) {
    let mut piece = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if !arrives() || to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    // Either may be gone already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
