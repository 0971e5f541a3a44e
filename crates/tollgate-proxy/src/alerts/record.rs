//! Which alerts there were and who has taken them, in a file beside the usage file.
//!
//! A line is appended when an alert comes and when a receiver has taken it (or it is given up). A line that
//! was torn is one that was not written: its alert comes again. The file is written anew when it has grown.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tollgate_limiter::TimestampMs;

use super::alert::BudgetAlert;

/// How long an alert is remembered: longer than any period but a month, a lifetime and a session's are, so that those are told of
/// again at a start after that time, under the same id.
const REMEMBERED_MS: u64 = 40 * 86_400_000;

/// The most alerts that are remembered: the oldest go first.
const REMEMBERED_MAX: usize = 50_000;

/// After so many lines the file is written anew.
const LINES_MAX: usize = 200_000;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Alerts and who has taken them.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    file: Option<File>,
    lines: usize,
    /// In the order in which they came.
    alerts: Vec<Kept>,
    places: HashMap<String, usize>,
}

#[derive(Debug)]
struct Kept {
    alert: BudgetAlert,
    /// The names of receivers that have it.
    taken_by: Vec<String>,
}

impl Record {
    /// Reads the file at `path`; one that is not there is empty.
    pub(super) fn open(path: PathBuf, now: TimestampMs) -> io::Result<Self> {
        let mut record = Self { path, file: None, lines: 0, alerts: Vec::new(), places: HashMap::new() };
        match read(&record.path) {
            Ok(text) => text.lines().for_each(|line| record.take(line)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        record.write_anew(now)?;
        Ok(record)
    }

    /// A new alert: whether it is one.
    pub(super) fn add(&mut self, alert: BudgetAlert, now: TimestampMs) -> io::Result<bool> {
        if self.places.contains_key(&alert.id) {
            return Ok(false);
        }
        let line = fired_line(&alert);
        self.keep(alert);
        if self.lines >= LINES_MAX || self.alerts.len() > REMEMBERED_MAX * 2 {
            self.write_anew(now)?;
        } else {
            self.append(&line)?;
        }
        Ok(true)
    }

    /// A receiver has taken an alert, or it is given up.
    pub(super) fn taken(&mut self, id: &str, receiver: &str) -> io::Result<()> {
        let line = json!({"taken": id, "by": receiver}).to_string();
        self.take(&line);
        self.append(&line)
    }

    /// The next alert after `after`, from the beginning again behind the last, that `wants` and that
    /// `receiver` has not taken.
    pub(super) fn next_for(
        &self,
        receiver: &str,
        after: Option<&str>,
        wants: impl Fn(&BudgetAlert) -> bool,
    ) -> Option<&BudgetAlert> {
        let start = after.and_then(|id| self.places.get(id)).map_or(0, |place| place + 1);
        let (before, behind) = self.alerts.split_at_checked(start).unwrap_or((&[], &self.alerts));
        let is_open =
            |kept: &&Kept| !kept.taken_by.iter().any(|taken| taken == receiver) && wants(&kept.alert);
        behind.iter().chain(before).find(is_open).map(|kept| &kept.alert)
    }

    fn take(&mut self, line: &str) {
        let Ok(value) = serde_json::from_str::<Value>(line) else { return };
        if let Some(body) = value.get("alert") {
            let at = value.get("at_ms").and_then(Value::as_u64).map(TimestampMs::new);
            match at.and_then(|at| BudgetAlert::from_body(body, at)) {
                Some(alert) if !self.places.contains_key(&alert.id) => self.keep(alert),
                _ => {}
            }
        }
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        if let Some((id, by)) = text("taken").zip(text("by")) {
            let kept = self.places.get(id).and_then(|place| self.alerts.get_mut(*place));
            kept.into_iter().for_each(|kept| kept.taken_by.push(by.to_owned()));
        }
    }

    fn keep(&mut self, alert: BudgetAlert) {
        self.places.insert(alert.id.clone(), self.alerts.len());
        self.alerts.push(Kept { alert, taken_by: Vec::new() });
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        self.lines += 1;
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// Forgets what is old and puts the rest into a new file in place of the old one.
    fn write_anew(&mut self, now: TimestampMs) -> io::Result<()> {
        let too_many = self.alerts.len().saturating_sub(REMEMBERED_MAX);
        self.alerts.drain(..too_many);
        self.alerts.retain(|kept| kept.alert.at.get().saturating_add(REMEMBERED_MS) > now.get());
        self.places =
            self.alerts.iter().enumerate().map(|(place, kept)| (kept.alert.id.clone(), place)).collect();
        let mut text = String::new();
        self.lines = 0;
        for kept in &self.alerts {
            text.push_str(&fired_line(&kept.alert));
            text.push('\n');
            for by in &kept.taken_by {
                text.push_str(&format!("{}\n", json!({"taken": kept.alert.id, "by": by})));
            }
            self.lines += 1 + kept.taken_by.len();
        }
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        fs::write(&beside, text)?;
        fs::rename(&beside, &self.path)?;
        self.file = Some(OpenOptions::new().append(true).open(&self.path)?);
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<String> {
    if path.metadata()?.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large to be a record of alerts"));
    }
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

fn fired_line(alert: &BudgetAlert) -> String {
    format!("{{\"at_ms\":{},\"alert\":{}}}", alert.at.get(), alert.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = TimestampMs::new(1_795_996_800_000);

    fn alert(id: &str) -> BudgetAlert {
        let body = json!({"alert_id": id, "scope": "tenant", "id": "t", "threshold_percent": 50});
        BudgetAlert::from_body(&body, NOW).unwrap()
    }

    fn open_for(record: &Record, receiver: &str, after: Option<&str>) -> Option<String> {
        record.next_for(receiver, after, |_| true).map(|alert| alert.id.clone())
    }

    #[test]
    fn an_alert_is_kept_until_it_is_taken_whatever_was_torn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("u.alerts");
        let mut record = Record::open(path.clone(), NOW).unwrap();
        assert!(record.add(alert("a"), NOW).unwrap());
        assert!(!record.add(alert("a"), NOW).unwrap(), "it is told once");
        assert!(record.add(alert("b"), NOW).unwrap());
        record.taken("a", "one").unwrap();
        let whole = fs::read(&path).unwrap();
        // Killed after any byte: what a line said that is whole is known, and nothing else is lost.
        for end in 0..=whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let again = Record::open(path.clone(), NOW).unwrap();
            let lines = whole[..end].iter().filter(|byte| **byte == b'\n').count();
            let is_known = |id| again.places.contains_key(id);
            assert!(lines < 1 || is_known("a"), "{end}");
            assert!(lines < 2 || is_known("b"), "{end}");
            let next = open_for(&again, "one", None);
            assert!(lines < 3 || next.as_deref() == Some("b"), "{end}");
            assert!(lines != 2 || next.is_some(), "{end}");
        }
        fs::write(&path, &whole).unwrap();
        let again = Record::open(path.clone(), NOW).unwrap();
        assert_eq!(open_for(&again, "two", None).as_deref(), Some("a"), "each receiver takes its own");
        // One that is refused for ever does not stand before the others.
        assert_eq!(open_for(&again, "two", Some("a")).as_deref(), Some("b"));
        assert_eq!(open_for(&again, "two", Some("b")).as_deref(), Some("a"));
        let later = TimestampMs::new(NOW.get() + REMEMBERED_MS);
        assert_eq!(open_for(&Record::open(path, later).unwrap(), "two", None), None, "it is forgotten");
    }
}
