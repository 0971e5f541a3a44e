//! The configuration file: raw TOML to validated types, with errors that name file, field and allowed values.
