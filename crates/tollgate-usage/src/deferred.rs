//! Settlements that wait for a shared store, beside the usage file: `<usage.file>.deferred`. What waits when a process
//! dies is settled by the next one.
//!
//! One JSON object a line. Lines are added as settlements come to wait, and all go when none waits any more.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tollgate_limiter::{Amount, Entry, ExactAmount, Held, Limit, Plan, ReservationId, TimestampMs};

use crate::error::UsageError;

/// The most bytes that are kept. Beyond them settlements wait in memory alone.
const BYTES_MAX: u64 = 64 << 20;

/// A settlement: the reservation, and what was used for each entry of its plan.
pub type Settlement = (Held, Vec<ExactAmount>);

/// The file of the settlements that wait.
#[derive(Debug)]
pub struct Deferred {
    path: PathBuf,
    /// With how many bytes it has.
    file: Mutex<(File, u64)>,
}

/// A settlement as a line has it.
#[derive(Deserialize, Serialize)]
struct Line {
    /// 32 hexadecimal digits.
    id: String,
    at: TimestampMs,
    entries: Vec<Used>,
}

/// An entry of a plan, and what was used.
#[derive(Deserialize, Serialize)]
struct Used {
    limit: Limit,
    charge: Amount,
    units: u64,
    millionths: u32,
}

impl Deferred {
    /// Opens or creates the file beside `usage_file`. Also says what waits in it: lines that cannot be read, as a kill
    /// may leave one, are passed over.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or read.
    pub fn open(usage_file: &Path) -> Result<(Self, Vec<Settlement>), UsageError> {
        let mut name = usage_file.as_os_str().to_owned();
        name.push(".deferred");
        let path = PathBuf::from(name);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(|source| UsageError::new(&path, "open", source))?;
        let read = left(&mut file).map_err(|source| UsageError::new(&path, "read", source))?;
        let (bytes, settlements) = read;
        Ok((Self { path, file: Mutex::new((file, bytes)) }, settlements))
    }

    /// Adds a settlement that waits.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or has as much as it may have.
    pub fn add(&self, held: &Held, actuals: &[ExactAmount]) -> Result<(), UsageError> {
        let failed = |source| UsageError::new(&self.path, "write", source);
        let mut text = serde_json::to_vec(&Line::of(held, actuals)).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let mut locked = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, bytes) = &mut *locked;
        if *bytes > BYTES_MAX {
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, "too many settlements wait")));
        }
        *bytes += text.len() as u64;
        // With a line of its own behind one that a failed write has torn.
        file.write_all(&text).inspect_err(|_| drop(file.write_all(b"\n"))).map_err(failed)
    }

    /// Forgets all of them: none waits any more.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn clear(&self) -> Result<(), UsageError> {
        let mut locked = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, bytes) = &mut *locked;
        if *bytes == 0 {
            return Ok(());
        }
        *bytes = 0;
        let cleared = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0)));
        cleared.map(drop).map_err(|source| UsageError::new(&self.path, "clear", source))
    }
}

impl Line {
    fn of(held: &Held, actuals: &[ExactAmount]) -> Self {
        let used = |(entry, actual): (&Entry, &ExactAmount)| Used {
            limit: Limit::clone(&entry.limit),
            charge: entry.charge,
            units: actual.units(),
            millionths: actual.remainder(),
        };
        let entries = held.plan.entries().iter().zip(actuals).map(used).collect();
        Self { id: held.id.to_string(), at: held.at, entries }
    }

    fn settlement(self) -> Option<Settlement> {
        let id = ReservationId::new(u128::from_str_radix(&self.id, 16).ok()?);
        let actual = |used: &Used| {
            const MILLION: u128 = 1_000_000;
            ExactAmount::from_millionths(u128::from(used.units) * MILLION + u128::from(used.millionths))
        };
        let actuals = self.entries.iter().map(actual).collect();
        let entry = |used: Used| Entry { limit: Arc::new(used.limit), charge: used.charge };
        let plan = Plan::new(self.entries.into_iter().map(entry).collect()).ok()?;
        Some((Held { id, plan: Arc::new(plan), at: self.at }, actuals))
    }
}

/// How many bytes a file has, and what its lines say. What is written next is behind them, on a line of its own.
fn left(file: &mut File) -> io::Result<(u64, Vec<Settlement>)> {
    let (mut settlements, mut line, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut reader = BufReader::new(&*file);
    while reader.read_until(b'\n', &mut line)? > 0 {
        bytes += line.len() as u64;
        settlements.extend(serde_json::from_slice::<Line>(&line).ok().and_then(Line::settlement));
        line.clear();
    }
    file.seek(SeekFrom::End(0))?;
    if bytes > 0 {
        file.write_all(b"\n")?;
        bytes += 1;
    }
    Ok((bytes, settlements))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use tollgate_limiter::{
        Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Held, Limit, Period, Plan,
        ReservationId, Rule, TimestampMs,
    };

    use super::{Deferred, Settlement};

    fn settlement(id: u128) -> Settlement {
        let window = DurationMs::new(60_000);
        let rules = [
            Rule::SlidingWindow { window },
            Rule::BucketedWindow { window },
            Rule::TokenBucket { window },
            Rule::Calendar(Period::Month),
            Rule::Idle { after: window },
            Rule::Elapsed { after: window },
            Rule::Concurrent,
            Rule::PerRequest,
        ];
        let entry = |(number, rule)| {
            let key = CounterKey::new("ac\"me\n{ü}", format!("limit {number}"));
            let enforcement = if number % 2 == 0 { Enforcement::Hard } else { Enforcement::Soft };
            let limit = Arc::new(Limit { key, rule, amount: Amount::new(u64::MAX), enforcement });
            Entry { limit, charge: Amount::new(number) }
        };
        let entries: Vec<_> = (0..).zip(rules).map(entry).collect();
        let actuals = (0..8).map(|number| ExactAmount::from_millionths(number * 1_234_567)).collect();
        let plan = Arc::new(Plan::new(entries).unwrap());
        (Held { id: ReservationId::new(id), plan, at: TimestampMs::new(1_795_996_823_456) }, actuals)
    }

    fn texts(settlements: &[Settlement]) -> Vec<String> {
        settlements.iter().map(|settlement| format!("{settlement:?}")).collect()
    }

    #[test]
    fn what_waits_is_there_when_the_file_is_opened_again_until_it_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let usage = folder.path().join("usage.jsonl");
        let all = [1, u128::MAX, 0].map(settlement);
        let (file, left) = Deferred::open(&usage).unwrap();
        assert!(left.is_empty());
        for (held, actuals) in &all[..2] {
            file.add(held, actuals).unwrap();
        }
        drop(file);

        // A kill has torn the last line.
        let path = folder.path().join("usage.jsonl.deferred");
        let mut text = fs::read(&path).unwrap();
        text.truncate(text.len() - 40);
        fs::write(&path, &text).unwrap();
        let (file, left) = Deferred::open(&usage).unwrap();
        assert_eq!(texts(&left), texts(&all[..1]));
        file.add(&all[2].0, &all[2].1).unwrap();
        drop(file);
        let (file, left) = Deferred::open(&usage).unwrap();
        assert_eq!(texts(&left), texts(&[settlement(1), settlement(0)]));

        file.clear().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        file.add(&all[0].0, &all[0].1).unwrap();
        let (_, left) = Deferred::open(&usage).unwrap();
        assert_eq!(texts(&left), texts(&all[..1]));
    }
}
