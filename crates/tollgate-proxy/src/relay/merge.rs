//! Merges frames that are ready at the same moment into one write.
//!
//! hyper writes once per body frame, and a burst of a hundred small events would cost a hundred
//! system calls. What is ready together is joined here; nothing waits for the clock.

use bytes::{Bytes, BytesMut};

/// The most bytes joined before they are passed on.
const MERGED_BYTES_MAX: usize = 64 * 1024;

/// Room for joined bytes at first: where two frames come together, more often come soon.
const JOINED_BYTES: usize = 4 * 1024;

/// How often a stream's relay asks again before it passes on what it holds.
///
/// Each time the upstream connection's task gets its turn, and hands over at most one frame.
pub(crate) const STREAM_PATIENCE_POLLS: u8 = 2;

/// Bytes on their way out, joined while more keep coming.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    first: Bytes,
    joined: BytesMut,
    patience_polls: u8,
    polls_without_news: u8,
}

/// What to do when nothing more is ready.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Idle {
    /// Nothing is held: wait for the upstream.
    Wait,
    /// More may be about to come, since something just did or the answer has just begun: ask again at once.
    AskAgain,
    /// Pass on what is held.
    Emit,
}

impl Merge {
    /// Joins frames that come within so many polls of one another; with 0, those of one poll.
    pub(crate) fn patient(patience_polls: u8) -> Self {
        Self { patience_polls, ..Self::default() }
    }

    /// Takes bytes in. True when enough is held to pass it on.
    pub(crate) fn push(&mut self, bytes: Bytes) -> bool {
        self.polls_without_news = 0;
        if self.is_empty() {
            self.first = bytes;
        } else {
            if self.joined.is_empty() {
                self.joined.reserve(JOINED_BYTES);
                self.joined.extend_from_slice(&self.first);
                self.first = Bytes::new();
            }
            self.joined.extend_from_slice(&bytes);
        }
        self.len() >= MERGED_BYTES_MAX
    }

    /// To be asked when the upstream has nothing ready.
    pub(crate) fn idle(&mut self) -> Idle {
        if self.polls_without_news < self.patience_polls {
            self.polls_without_news += 1;
            return Idle::AskAgain;
        }
        if self.is_empty() { Idle::Wait } else { Idle::Emit }
    }

    /// Whether nothing is held and nothing is expected at once.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_empty() && self.polls_without_news >= self.patience_polls
    }

    /// Hands out what is held.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        if self.is_empty() {
            return None;
        }
        self.polls_without_news = self.patience_polls;
        if self.joined.is_empty() {
            return Some(std::mem::take(&mut self.first));
        }
        Some(self.joined.split().freeze())
    }

    /// How many bytes are held.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_leaves_together() {
        let mut merge = Merge::default();
        for piece in ["a", "", "bc", "d"] {
            assert!(!merge.push(Bytes::from_static(piece.as_bytes())));
        }
        assert_eq!(merge.take().as_deref(), Some(b"abcd".as_slice()));
        assert_eq!(merge.take(), None);
    }

    #[test]
    fn patience_ends_and_starts_anew_with_every_frame() {
        let mut merge = Merge::patient(3);
        for _ in 0..2 {
            merge.push(Bytes::from_static(b"x"));
            for _ in 0..3 {
                assert_eq!(merge.idle(), Idle::AskAgain);
            }
        }
        assert_eq!(merge.idle(), Idle::Emit);
        assert_eq!(merge.take().as_deref(), Some(b"xx".as_slice()));
        assert_eq!(merge.idle(), Idle::Wait);
    }

    #[test]
    fn the_first_bytes_are_asked_for_at_once_and_then_waited_for() {
        let mut merge = Merge::patient(2);
        for _ in 0..2 {
            assert!(!merge.is_waiting());
            assert_eq!(merge.idle(), Idle::AskAgain);
        }
        assert!(merge.is_waiting());
        assert_eq!(merge.idle(), Idle::Wait);
        assert!(Merge::default().is_waiting());
    }

    #[test]
    fn a_full_buffer_does_not_wait() {
        let mut merge = Merge::default();
        assert!(!merge.push(Bytes::from_static(b"x")));
        assert!(merge.push(Bytes::from(vec![0; MERGED_BYTES_MAX])));
    }
}
