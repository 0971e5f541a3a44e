//! The crate as its users see it: the file's format, what is written, what is read back.

mod common;
mod format;
mod replay;
mod report;
mod writer;
