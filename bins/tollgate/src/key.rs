//! `tollgate key new`.

use rand::Rng;
use tollgate_config::KeyHash;

use crate::{
    cli::{Failure, KeyArgs},
    out::print,
};

/// What keys start with, so that scanners for leaked secrets know them.
const PREFIX: &str = "tg-";

pub(crate) fn new(args: &KeyArgs) -> Result<(), Failure> {
    let mut secret = [0_u8; 32];
    rand::rng().fill_bytes(&mut secret);
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("{PREFIX}{hex}");
    let (id, hash) = (toml_string(&args.id), KeyHash::of(&key));
    print(&format!(
        "The key (shown only now):\n\n    {key}\n\n\
         For the configuration, under the tenant it belongs to:\n\n    \
         [[tenants.keys]]\n    id = {id}\n    hash = \"{hash}\"\n"
    ))
}

fn toml_string(text: &str) -> String {
    // JSON's escapes are a subset of TOML's basic strings.
    serde_json::Value::from(text).to_string()
}
