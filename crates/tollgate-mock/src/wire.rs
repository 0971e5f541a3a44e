//! A connection that its answers can hold back, close or reset.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

/// What an answer tells its connection. Shared by the two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch(Arc<AtomicU8>);

const FLOWING: u8 = 0;
const CORKED: u8 = 1;
const CLOSING: u8 = 2;
const RESETTING: u8 = 3;

impl Switch {
    /// Keeps what is written from now on until [`Switch::uncork`].
    pub(crate) fn cork(&self) {
        self.0.store(CORKED, Ordering::Relaxed);
    }

    /// The next flush writes everything that was kept.
    pub(crate) fn uncork(&self) {
        self.0.store(FLOWING, Ordering::Relaxed);
    }

    pub(crate) fn is_corked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CORKED
    }

    /// Ends the connection at its next flush, after all that was written before.
    pub(crate) fn close(&self) {
        self.0.store(CLOSING, Ordering::Relaxed);
    }

    /// Resets the connection at its next flush, after all that was written before.
    pub(crate) fn reset(&self) {
        self.0.store(RESETTING, Ordering::Relaxed);
    }
}

/// What a connection is made of.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Makes the coming end a reset, where connections know such a thing.
    ///
    /// # Errors
    /// The system refuses.
    fn reset_at_end(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn reset_at_end(&self) -> io::Result<()> {
        // Closing with unsent data discarded at once is what sends RST in place of FIN.
        socket2::SockRef::from(self).set_linger(Some(Duration::ZERO))
    }
}

impl Stream for DuplexStream {
    fn reset_at_end(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection under a [`Switch`].
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    switch: Switch,
    held: BytesMut,
}

/// A corked connection writes when it has kept so much.
const HELD_BYTES_MAX: usize = 256 << 10;

impl<S: Stream> Wire<S> {
    pub(crate) fn new(stream: S, switch: Switch) -> Self {
        Self { stream, switch, held: BytesMut::new() }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Stream> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.switch.is_corked() && self.held.len() < HELD_BYTES_MAX {
            let before = self.held.len();
            for buf in bufs {
                self.held.extend_from_slice(buf);
            }
            return Poll::Ready(Ok(self.held.len() - before));
        }
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.switch.is_corked() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_drain(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        match self.switch.0.load(Ordering::Relaxed) {
            CLOSING => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            RESETTING => {
                self.stream.reset_at_end()?;
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
