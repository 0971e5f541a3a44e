//! What a copy that shares a Redis keeps beside its usage file: its name among all, made once, so that what is in the file is
//! told once; and when it last told that, so that what ended later is known not to be in it.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use tollgate_limiter::TimestampMs;

/// Hexadecimal digits of a name.
const DIGITS: usize = 32;

/// The name of the copy that writes `usage_file`; a new one where there is none yet.
///
/// # Errors
///
/// The file that keeps it cannot be read or written, or holds something else: a new name would have everything told once
/// more that the usage file says.
pub(crate) fn name(usage_file: &Path) -> Result<String, String> {
    let file = beside(usage_file, ".copy");
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    match fs::read_to_string(&file) {
        Ok(text) if is_name(text.trim()) => Ok(text.trim().to_owned()),
        Ok(_) => Err(no_name(&file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(no_name(&file)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        Err(_) => {
            let name = format!("{:0DIGITS$x}", rand::random::<u128>());
            write(&file, &name).map_err(failed)?;
            if usage_file.metadata().is_ok_and(|usage| usage.len() > 0) {
                tracing::warn!(
                    file = %file.display(),
                    "there is a usage file and no name of its copy: a new one tells Redis all that is in the usage file"
                );
            }
            Ok(name)
        }
    }
}

/// When the copy last began to tell a Redis what is in `usage_file`. `None`: nobody knows.
pub(crate) fn told(usage_file: &Path) -> Option<TimestampMs> {
    let told = fs::read_to_string(beside(usage_file, ".told")).ok()?;
    told.trim().parse().ok().map(TimestampMs::new)
}

/// From now on that is known to be `at`.
///
/// # Errors
///
/// The file cannot be written.
pub(crate) fn note_told(usage_file: &Path, at: TimestampMs) -> Result<(), String> {
    let file = beside(usage_file, ".told");
    write(&file, &at.get().to_string()).map_err(|error| format!("{}: {error}", file.display()))
}

fn is_name(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn no_name(file: &Path) -> String {
    format!(
        "{} holds no name of a copy ({DIGITS} hexadecimal digits). Bring back the one that belongs to the usage file; delete it \
         only if Redis was never told what the usage file says, as it counts twice otherwise",
        file.display()
    )
}

/// The whole text is there, also after a power cut, or what was there before.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let new = beside(file, ".new");
    let mut out = File::create(&new)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tollgate_limiter::TimestampMs;

    use super::{name, note_told, told};

    #[test]
    fn a_copy_keeps_its_name_and_makes_none_in_place_of_one_that_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (usage, file) = (folder.path().join("usage.jsonl"), folder.path().join("usage.jsonl.copy"));
        let made = name(&usage).unwrap();
        assert_eq!((name(&usage).unwrap(), made.len()), (made.clone(), 32));
        fs::write(&file, format!("{made}\n")).unwrap();
        assert_eq!(name(&usage).unwrap(), made);
        for damaged in [&b""[..], b"copy one", &made.as_bytes()[1..], b"\xff\xfe"] {
            fs::write(&file, damaged).unwrap();
            let error = name(&usage).unwrap_err();
            assert!(error.contains("usage.jsonl.copy holds no name of a copy"), "{error}");
            assert_eq!(fs::read(&file).unwrap(), damaged);
        }
        fs::remove_file(&file).unwrap();
        assert_ne!(name(&usage).unwrap(), made);
        assert!(name(&folder.path().join("none/usage.jsonl")).unwrap_err().contains("usage.jsonl.copy: "));
    }

    #[test]
    fn when_a_copy_last_told_is_known_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let usage = folder.path().join("usage.jsonl");
        assert_eq!(told(&usage), None);
        for at in [1_795_996_823_456, 1_795_996_900_000].map(TimestampMs::new) {
            note_told(&usage, at).unwrap();
            assert_eq!(told(&usage), Some(at));
        }
        fs::write(folder.path().join("usage.jsonl.told"), "yesterday").unwrap();
        assert_eq!(told(&usage), None);
        assert!(note_told(&folder.path().join("none/usage.jsonl"), TimestampMs::EPOCH).is_err());
    }
}
