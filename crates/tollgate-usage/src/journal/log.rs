//! The log: where the next frame goes, which frames are still needed, and which wait to be written together.
//!
//! It has two areas. Frames are appended to one until that is long enough; then what is still needed is
//! written to the beginning of the other, which is used from there on. So the log is about as long as what
//! is open, however many calls there were.

use std::collections::{HashMap, hash_map::Entry};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use foldhash::fast::RandomState;
use tollgate_limiter::ReservationId;

use super::disk::Disk;
use super::frame;

/// The most calls that are open at a time. A quarter of a million needs connections and memory that no
/// single process has.
const CALLS_MAX: u32 = 1 << 18;

/// Where the areas begin. In between the file is sparse.
pub(super) const AREAS: [u64; 2] = [0, AREA_BYTES_MAX];

/// What lines of usual length of all calls need. Where an area is full, calls are not written down.
const AREA_BYTES_MAX: u64 = 256 << 20;

/// An area is left when it has so many bytes more than it began with, or [`GROWTH`] times as many.
pub(super) const AREA_BYTES: u64 = 1 << 20;

/// What is taken along is written once for at least three times as much that is new.
const GROWTH: u64 = 4;

/// An area is left, whatever it began with, while it has room for what is written down meanwhile.
const ROOM_BYTES: u64 = 16 << 20;

/// What is taken along is written in pieces of so many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// The most memory that is kept for the next batch.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Log {
    /// By their places.
    calls: Vec<Option<Call>>,
    free: Vec<u32>,
    /// The settlements that the store has not answered to, and where they are.
    settling: HashMap<ReservationId, Settling, RandomState>,
    /// Which of [`AREAS`] is used, and up to where it is written.
    area: usize,
    tail: u64,
    leave_at: u64,
    area_bytes: u64,
    /// The last batch failed: parts of it may be behind the tail.
    is_torn: bool,
    /// The number of the next frame.
    sequence: u64,
    batch: Batch,
    /// The calls that are over since the area was begun, and those while the one before was used: their frames may
    /// still be there.
    over: [Vec<Arc<str>>; 2],
    /// How many areas were begun, and with how many begun the disk confirmed last.
    begun: u64,
    confirmed: u64,
}

/// A call whose newest frame is needed.
#[derive(Debug, Default)]
struct Call {
    /// Where that is, once it is written.
    spot: Option<Spot>,
    /// How many of its settlements the store has not answered to.
    settling: u32,
    /// Its id, once its line is in the usage file.
    appended: Option<Arc<str>>,
}

/// The places of a reservation's settlements: in the frame of its call, and in one of its own where it came to wait
/// without one. Both, where a reservation is given back and its call goes on without the store.
#[derive(Debug, Default)]
struct Settling {
    call: Option<u32>,
    own: Option<u32>,
}

/// Where a frame is in its area.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Spot {
    offset: u64,
    bytes: usize,
}

/// Frames that are written together.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where the newest frames of calls are once it is written.
    spots: Vec<(u32, Spot)>,
    /// How many of its frames somebody waits for.
    lines: u64,
    ticket: Ticket,
}

/// An area that has what is taken along.
struct Begun {
    tail: u64,
    spots: Vec<(u32, Spot)>,
    /// The number of the next frame.
    sequence: u64,
}

/// What became of a batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket(Arc<AtomicU8>);

const WRITTEN: u8 = 1;
const FAILED: u8 = 2;

impl Ticket {
    /// Whether it is written; `None`: it waits.
    pub(crate) fn outcome(&self) -> Option<bool> {
        match self.0.load(Ordering::Acquire) {
            WRITTEN => Some(true),
            FAILED => Some(false),
            _ => None,
        }
    }

    fn set(&self, is_written: bool) {
        self.0.store(if is_written { WRITTEN } else { FAILED }, Ordering::Release);
    }
}

impl Log {
    /// An empty one, whose areas are left at `area_bytes`.
    pub(super) fn new(area_bytes: u64) -> Self {
        Self {
            calls: Vec::new(),
            free: Vec::new(),
            settling: HashMap::default(),
            area: 0,
            tail: 0,
            leave_at: area_bytes,
            area_bytes,
            is_torn: false,
            sequence: 1,
            batch: Batch::default(),
            over: <[Vec<_>; 2]>::default(),
            begun: 0,
            confirmed: 0,
        }
    }

    /// A place for a call; `None`: as many calls are open as there may be.
    pub(super) fn open(&mut self) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.calls.len()).ok().filter(|index| *index < CALLS_MAX)?;
                self.calls.push(None);
                index
            }
        };
        *self.place(index)? = Some(Call::default());
        Some(index)
    }

    fn place(&mut self, index: u32) -> Option<&mut Option<Call>> {
        self.calls.get_mut(usize::try_from(index).ok()?)
    }

    fn call(&mut self, index: u32) -> Option<&mut Call> {
        self.place(index)?.as_mut()
    }

    /// The call's line is in the usage file: its place is given back once the store has answered to its settlements.
    pub(super) fn appended(&mut self, index: u32, id: Arc<str>) {
        if let Some(call) = self.call(index).filter(|call| call.settling > 0) {
            call.appended = Some(id);
        } else {
            self.close(index, Some(id));
        }
    }

    /// The store has not answered to the settlement of `id`, which the call's frame has from now on.
    pub(super) fn settling(&mut self, index: u32, id: ReservationId) {
        self.settling.entry(id).or_default().call = Some(index);
        self.waits(index);
    }

    /// As [`settling`](Self::settling), of a frame that has nothing else.
    pub(super) fn keep(&mut self, index: u32, id: ReservationId, name: Arc<str>) {
        self.settling.entry(id).or_default().own = Some(index);
        self.waits(index);
        self.appended(index, name);
    }

    fn waits(&mut self, index: u32) {
        self.call(index).into_iter().for_each(|call| call.settling = call.settling.saturating_add(1));
    }

    /// Whether the settlement of `id` is in the log.
    pub(super) fn is_settling(&self, id: ReservationId) -> bool {
        self.settling.contains_key(&id)
    }

    /// The settlement of `id` that the call's frame has is answered to. Of one that `waited`, both are.
    pub(super) fn settled(&mut self, id: ReservationId, waited: bool) {
        let Entry::Occupied(mut entry) = self.settling.entry(id) else { return };
        let settling = entry.get_mut();
        let answered = [settling.call.take(), settling.own.take_if(|_| waited)];
        if settling.own.is_none() {
            entry.remove();
        }
        answered.into_iter().flatten().for_each(|index| self.answered(index));
    }

    fn answered(&mut self, index: u32) {
        let Some(call) = self.call(index) else { return };
        call.settling = call.settling.saturating_sub(1);
        if call.settling == 0
            && let Some(id) = call.appended.take()
        {
            self.close(index, Some(id));
        }
    }

    /// Gives a place back. With the id of a call whose line is in the usage file; without one nothing of the
    /// call was written.
    pub(super) fn close(&mut self, index: u32, over: Option<Arc<str>>) {
        self.place(index).into_iter().for_each(|place| *place = None);
        self.free.push(index);
        self.over[0].extend(over);
    }

    /// Whether no call is open.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.calls.len()
    }

    /// The calls whose lines are in the usage file and whose frames may still be in an area.
    pub(super) fn over(&self) -> Vec<Arc<str>> {
        let settling = self.calls.iter().flatten().filter_map(|call| call.appended.as_ref());
        self.over.iter().flatten().chain(settling).cloned().collect()
    }

    /// Puts a frame into the batch: room for a header and a line. It is the newest of the call at `index`.
    pub(super) fn push(&mut self, index: Option<u32>, frame: &[u8]) -> Ticket {
        if (self.tail == 0 || self.is_torn) && self.batch.bytes.is_empty() {
            self.seal(&frame::whole());
        }
        let offset = self.tail.saturating_add(length(&self.batch.bytes));
        self.seal(frame);
        let spot = Spot { offset, bytes: frame.len() };
        self.batch.spots.extend(index.map(|index| (index, spot)));
        self.batch.lines = self.batch.lines.saturating_add(1);
        self.batch.ticket.clone()
    }

    fn seal(&mut self, frame: &[u8]) {
        let start = self.batch.bytes.len();
        self.batch.bytes.extend_from_slice(frame);
        if let Some(frame) = self.batch.bytes.get_mut(start..) {
            frame::seal(frame, self.sequence);
        }
        self.sequence = self.sequence.saturating_add(1);
    }

    /// Writes the batch. How many lines it had, and an error of them all: none of them is in the log then.
    pub(super) fn write(&mut self, disk: &dyn Disk) -> (u64, io::Result<()>) {
        let batch = &mut self.batch;
        let end = self.tail.saturating_add(length(&batch.bytes));
        let has_room = end <= AREA_BYTES_MAX;
        let offset = AREAS[self.area].saturating_add(self.tail);
        let full = || Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the journal is full"));
        let written = if has_room { disk.write(&batch.bytes, offset) } else { full() };
        let spots = std::mem::take(&mut batch.spots);
        // What comes next is written over a batch that failed, and goes on with larger numbers than any of it has.
        self.is_torn = written.is_err();
        if written.is_ok() {
            self.tail = end;
            self.moved(&spots);
        }
        std::mem::take(&mut self.batch.ticket).set(written.is_ok());
        let lines = std::mem::take(&mut self.batch.lines);
        self.batch.bytes.clear();
        self.batch.bytes.shrink_to(SPARE_BYTES_MAX);
        self.batch.spots = spots;
        self.batch.spots.clear();
        (lines, written)
    }

    fn moved(&mut self, spots: &[(u32, Spot)]) {
        for (index, spot) in spots {
            // Its place may have been given back meanwhile.
            if let Some(call) = self.call(*index) {
                call.spot = Some(*spot);
            }
        }
    }

    /// Whether the area is long enough to leave it. `syncs`: not before the disk has confirmed how it began,
    /// since what is in the other one is what a power cut falls back to until then.
    pub(super) const fn is_long(&self, syncs: bool) -> bool {
        self.tail >= self.leave_at && (!syncs || self.confirmed == self.begun)
    }

    /// Leaves the area for the other one, with what is still needed. Where that fails it is used on.
    pub(super) fn leave(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let (from, to) = (self.area, 1 - self.area);
        let needed = (0..).zip(&self.calls).filter_map(|(index, call)| Some((index, call.as_ref()?.spot?)));
        let needed = needed.map(|(index, spot)| Ok((index, frame_at(disk, from, spot)?)));
        match begin(disk, to, self.sequence, needed) {
            Ok(begun) => {
                self.take(to, begun);
                self.begun = self.begun.saturating_add(1);
                let [over, before] = &mut self.over;
                *before = std::mem::take(over);
                Ok(())
            }
            Err(error) => {
                self.leave_at = self.tail.saturating_add(self.area_bytes);
                Err(error)
            }
        }
    }

    fn take(&mut self, area: usize, Begun { tail, spots, sequence }: Begun) {
        self.area = area;
        self.tail = tail;
        let grown = tail.saturating_mul(GROWTH).min(AREA_BYTES_MAX - ROOM_BYTES);
        self.leave_at = grown.max(tail.saturating_add(self.area_bytes));
        self.sequence = sequence;
        self.moved(&spots);
    }

    /// One that begins `area` with calls of an earlier process whose lines are in the usage file: the id of each, its
    /// frame, and its settlements. Numbers go on at `sequence`. Of calls beyond the most that may be open nothing is kept.
    pub(super) fn resume(
        disk: &dyn Disk,
        (area, sequence): (usize, u64),
        calls: impl Iterator<Item = (Arc<str>, Vec<u8>, Vec<ReservationId>)>,
        area_bytes: u64,
    ) -> io::Result<Self> {
        let mut log = Self::new(area_bytes);
        let mut frames = Vec::new();
        for (id, frame, settlements) in calls {
            let Some(index) = log.open() else { break };
            settlements.into_iter().for_each(|id| log.settling(index, id));
            log.appended(index, id);
            frames.push(Ok((index, frame)));
        }
        let begun = begin(disk, area, sequence, frames.into_iter())?;
        log.take(area, begun);
        Ok(log)
    }

    /// How many areas were begun: what the disk confirms after this is asked has all of them.
    pub(super) const fn begun(&self) -> u64 {
        self.begun
    }

    /// The disk has confirmed what was written when so many areas were begun.
    pub(super) fn confirmed(&mut self, begun: u64) {
        self.confirmed = self.confirmed.max(begun);
    }
}

/// The frame of a call in `area`.
fn frame_at(disk: &dyn Disk, area: usize, spot: Spot) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; spot.bytes];
    disk.read(&mut frame, AREAS[area].saturating_add(spot.offset))?;
    match frame::read(&frame) {
        Some(read) if read.bytes() == spot.bytes => Ok(frame),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is not what was written")),
    }
}

/// Writes the frames of calls to the beginning of an area, with numbers from `sequence` on, and that it is whole.
fn begin(
    disk: &dyn Disk,
    area: usize,
    mut sequence: u64,
    frames: impl Iterator<Item = io::Result<(u32, Vec<u8>)>>,
) -> io::Result<Begun> {
    let (start, mut tail, mut piece, mut spots) = (AREAS[area], 0_u64, Vec::new(), Vec::new());
    let mut add = |piece: &mut Vec<u8>, mut frame: Vec<u8>| {
        frame::seal(&mut frame, sequence);
        sequence = sequence.saturating_add(1);
        piece.append(&mut frame);
    };
    for frame in frames {
        let (index, frame) = frame?;
        let offset = tail.saturating_add(length(&piece));
        spots.push((index, Spot { offset, bytes: frame.len() }));
        add(&mut piece, frame);
        if piece.len() >= PIECE_BYTES {
            disk.write(&piece, start.saturating_add(tail))?;
            tail = tail.saturating_add(length(&piece));
            piece.clear();
        }
    }
    add(&mut piece, frame::whole());
    disk.write(&piece, start.saturating_add(tail))?;
    Ok(Begun { tail: tail.saturating_add(length(&piece)), spots, sequence })
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
