//! The name of a copy among all that share a Redis: made once, and kept beside the usage file that it writes, so that what
//! is in that is told once.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Hexadecimal digits of a name.
const DIGITS: usize = 32;

/// The name of the copy that writes `usage_file`; a new one where there is none yet.
///
/// # Errors
///
/// The file that keeps it cannot be read or written, or holds something else: a new name would have everything told once
/// more that the usage file says.
pub(crate) fn of(usage_file: &Path) -> Result<String, String> {
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

/// The whole name is there, also after a power cut, or no file.
fn write(file: &Path, name: &str) -> io::Result<()> {
    let new = beside(file, ".new");
    let mut out = File::create(&new)?;
    out.write_all(name.as_bytes())?;
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

    use super::of;

    #[test]
    fn a_copy_keeps_its_name_and_makes_none_in_place_of_one_that_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (usage, file) = (folder.path().join("usage.jsonl"), folder.path().join("usage.jsonl.copy"));
        let name = of(&usage).unwrap();
        assert_eq!((of(&usage).unwrap(), name.len()), (name.clone(), 32));
        fs::write(&file, format!("{name}\n")).unwrap();
        assert_eq!(of(&usage).unwrap(), name);
        for damaged in [&b""[..], b"copy one", &name.as_bytes()[1..], b"\xff\xfe"] {
            fs::write(&file, damaged).unwrap();
            let error = of(&usage).unwrap_err();
            assert!(error.contains("usage.jsonl.copy holds no name of a copy"), "{error}");
            assert_eq!(fs::read(&file).unwrap(), damaged);
        }
        fs::remove_file(&file).unwrap();
        assert_ne!(of(&usage).unwrap(), name);
        assert!(of(&folder.path().join("none/usage.jsonl")).unwrap_err().contains("usage.jsonl.copy: "));
    }
}
