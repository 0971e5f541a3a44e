//! `[[tenants.keys]]`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::context::{Context, Distinct};
use crate::nearest::nearest;
use crate::problems::Place;
use crate::section::{Field, Section};
use crate::{Attributes, Key, KeyHash, Scope};

/// The longest value of an attribute.
pub(super) const ATTRIBUTE_CHARS_MAX: usize = 128;

/// Reads keys; ids and hashes are distinct over all tenants.
pub(super) struct Reader<'a> {
    context: &'a Context<'a>,
    ids: Distinct<Arc<str>>,
    hashes: Distinct<KeyHash>,
    places: HashMap<Arc<str>, Place>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        Self { context, ids: Distinct::new(), hashes: Distinct::new(), places: HashMap::new() }
    }

    /// Where each key stands, by its id.
    pub(super) fn into_places(self) -> HashMap<Arc<str>, Place> {
        self.places
    }

    pub(super) fn key(&mut self, section: Section<'_>) -> Option<Key> {
        let id = self.context.id(&section);
        if let Some(id) = &id {
            self.ids.check(self.context.problems, Arc::clone(id), &section.place_of("id"), "this id");
            self.places.insert(Arc::clone(id), section.place().clone());
        }
        let hash = self.hash(&section);
        let models = section.field("models").map(|field| self.context.globs(&field));
        let attributes = section.field("attributes").and_then(|field| field.section()).map(attributes);
        let attributes = attributes.unwrap_or_default();
        let caller_attributes =
            section.field("caller_attributes").map(|field| caller_attributes(&field, &attributes));
        section.finish();
        let models = match models {
            Some(globs) => Some(globs?),
            None => None,
        };
        let caller_attributes = caller_attributes.unwrap_or_default();
        Some(Key { id: id?, hash: hash?, models, attributes, caller_attributes })
    }

    fn hash(&mut self, section: &Section<'_>) -> Option<KeyHash> {
        let (written, variable) = (section.field("hash"), section.field("key_env"));
        let (field, hash) = match (written, variable) {
            (Some(field), None) => {
                let hash = field.text()?.parse().map_err(|message: &str| field.fail(message)).ok()?;
                (field, hash)
            }
            (None, Some(field)) => {
                let key = self.context.secret_from_variable(&field)?;
                (field, KeyHash::of(key.expose()))
            }
            (Some(_), Some(field)) => {
                field.fail("`hash` is there too: only one of them is possible");
                return None;
            }
            (None, None) => {
                let place = section.place_of("hash");
                self.context
                    .problems
                    .error(&place, "is missing: `hash` (or `key_env`) says which key this is");
                return None;
            }
        };
        self.hashes.check(self.context.problems, hash, field.place(), "this key");
        Some(hash)
    }
}

fn attributes(section: Section<'_>) -> Attributes {
    let mut attributes = BTreeMap::new();
    for (name, field) in section.entries() {
        if attribute(&field, name).is_none() {
            continue;
        }
        let Some(value) = field.text() else { continue };
        if value.is_empty() || value.chars().count() > ATTRIBUTE_CHARS_MAX || value.contains(char::is_control)
        {
            field.fail(format!(
                "must be 1 to {ATTRIBUTE_CHARS_MAX} characters, none of them a control character"
            ));
            continue;
        }
        attributes.insert(Arc::from(name), Arc::from(value));
    }
    Arc::new(attributes)
}

/// The attributes that a call may set. One that the key fixes would never be read from a call.
fn caller_attributes(field: &Field<'_>, fixed: &Attributes) -> Arc<[Scope]> {
    let mut distinct = Vec::new();
    for item in field.items() {
        let Some(scope) = item.text().and_then(|name| attribute(&item, name)) else { continue };
        if fixed.contains_key(scope.name()) {
            item.fail("is fixed by `attributes`: a call cannot set it");
        } else if distinct.contains(&scope) {
            item.fail("is there twice");
        } else {
            distinct.push(scope);
        }
    }
    distinct.into()
}

/// The attribute called `name`.
fn attribute(field: &Field<'_>, name: &str) -> Option<Scope> {
    let found = Scope::ATTRIBUTES.into_iter().find(|attribute| attribute.name() == name);
    if found.is_none() {
        let names = Scope::ATTRIBUTES.map(Scope::name);
        let hint = nearest(name, &names).unwrap_or_default();
        field.fail(format!(
            "unknown attribute; the nearest known one is `{hint}`, all are {}",
            names.join(", ")
        ));
    }
    found
}
