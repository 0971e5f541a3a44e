//! `cargo xtask prices`: imports a public price map into the price table.
//!
//! The map is the JSON file that LiteLLM publishes (`model_prices_and_context_window.json`): one
//! object a model, prices in USD per token. What its fields mean is in [`map`], what is made of them
//! in [`model`]. A hand-kept overlay adds the models that the map no longer has.

mod emit;
mod map;
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use tollgate_pricing::PriceTable;

use model::Model;

const OVERLAY: &str = include_str!("../prices/overlay.yaml");

/// Where the map is and where the table goes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The price map (JSON).
    #[arg(long)]
    from: PathBuf,
    /// The price table to write.
    #[arg(long)]
    out: PathBuf,
}

/// Writes the table of the map's Anthropic, OpenAI and Gemini models.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let name = arguments.from.file_name().unwrap_or_default().to_string_lossy();
    let map =
        fs::read_to_string(&arguments.from).map_err(|e| format!("{}: {e}", arguments.from.display()))?;
    let (table, report) = import(&map, &name)?;
    fs::write(&arguments.out, table).map_err(|e| format!("{}: {e}", arguments.out.display()))?;
    eprint!("{report}");
    Ok(())
}

/// The table, and what to tell about it.
fn import(map: &str, map_name: &str) -> Result<(String, String), Box<dyn Error>> {
    let mut notes = Notes::default();
    let mut models: BTreeMap<String, Model> = BTreeMap::new();
    let mut vertex = Vec::new();
    for entry in map::read(map)? {
        match Model::from_entry(&entry, &mut notes)? {
            Some((id, model)) if model.provider == model::VERTEX => vertex.push((id, model)),
            Some((id, model)) => {
                models.insert(id, model);
            }
            None => {}
        }
    }
    for (id, model) in vertex {
        insert_vertex(&mut models, id, model);
    }
    let overlaid = emit::overlay_ids(OVERLAY);
    models.retain(|id, _| !overlaid.contains(&id.as_str()));
    model::fold_dated(&mut models);
    let text = emit::table(&models, OVERLAY, map_name, &notes);
    let table = PriceTable::from_yaml(&text)?;
    let report =
        format!("{} models, {} of them from the overlay\n{notes}", table.models().count(), overlaid.len());
    Ok((text, report))
}

/// Vertex sells Gemini under the same ids: its row becomes an alias of Gemini's where the prices are
/// the same, and a row of its own, with the platform's name before it, where they are not.
fn insert_vertex(models: &mut BTreeMap<String, Model>, id: String, model: Model) {
    let qualified = format!("{}/{id}", model::VERTEX);
    match models.get_mut(&id) {
        Some(same) if same.costs_like(&model) => {
            same.aliases.insert(qualified);
        }
        Some(other) if other.provider != model::VERTEX => {
            models.insert(qualified, model);
        }
        // The map has some Vertex rows twice, with and without the platform's name: the first one stays.
        Some(_) => {}
        None => {
            models.insert(id, model);
        }
    }
}

/// What could not be carried over, by reason, with the models it is about.
#[derive(Default)]
struct Notes(BTreeMap<String, BTreeSet<String>>);

impl Notes {
    fn add(&mut self, what: impl Into<String>, model: &str) {
        self.0.entry(what.into()).or_default().insert(model.to_owned());
    }
}

impl std::fmt::Display for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, models) in &self.0 {
            let shown: Vec<&str> = models.iter().take(3).map(String::as_str).collect();
            let more = if models.len() > shown.len() { ", …" } else { "" };
            writeln!(f, "{what}: {} ({}{more})", models.len(), shown.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
