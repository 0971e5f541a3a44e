//! A table of the file that knows which of its fields were asked for.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::nearest::nearest;
use crate::problems::{Place, Problems};

/// One table. A table that is not in the file reads as empty.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    problems: &'a Problems,
    place: Place,
    table: Option<&'a DeTable<'a>>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(crate) fn root(problems: &'a Problems, table: &'a DeTable<'a>) -> Self {
        Self::new(problems, Place { offset: 0, path: String::new() }, Some(table))
    }

    fn new(problems: &'a Problems, place: Place, table: Option<&'a DeTable<'a>>) -> Self {
        Self { problems, place, table, known: RefCell::default() }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Where the field `name` is, or would be.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        let place = self.place.field(name);
        let key = self.table.and_then(|table| table.get_key_value(name)).map(|(key, _)| key);
        key.map_or_else(|| place.clone(), |key| Place { offset: key.span().start, ..place.clone() })
    }

    /// The field `name`, if it is there.
    pub(crate) fn field(&self, name: &'static str) -> Option<Field<'a>> {
        self.known.borrow_mut().push(name);
        let value = self.table?.get(name)?.get_ref();
        Some(Field { problems: self.problems, value, place: self.place_of(name) })
    }

    /// The field `name`, which must be there.
    pub(crate) fn required(&self, name: &'static str) -> Option<Field<'a>> {
        let field = self.field(name);
        if field.is_none() {
            self.problems.error(&self.place_of(name), "is missing");
        }
        field
    }

    /// The table `name`, empty if it is not there.
    pub(crate) fn table(&self, name: &'static str) -> Section<'a> {
        let empty = || Section::new(self.problems, self.place_of(name), None);
        self.field(name).and_then(|field| field.section()).unwrap_or_else(empty)
    }

    /// The tables of the array `name`, none if it is not there.
    pub(crate) fn tables(&self, name: &'static str) -> Vec<Section<'a>> {
        let Some(field) = self.field(name) else { return Vec::new() };
        field.items().iter().filter_map(Field::section).collect()
    }

    /// Whole numbers in `range`, or `default`.
    pub(crate) fn integer(&self, name: &'static str, range: RangeInclusive<u64>, default: u64) -> u64 {
        self.field(name).and_then(|field| field.integer(range)).unwrap_or(default)
    }

    /// `true` or `false`, or `default`.
    pub(crate) fn boolean(&self, name: &'static str, default: bool) -> bool {
        self.field(name).and_then(|field| field.boolean()).unwrap_or(default)
    }

    /// The fields in the table as they are written, known or not.
    pub(crate) fn entries(&self) -> Vec<(&'a str, Field<'a>)> {
        let entries = self.table.into_iter().flatten();
        let field = |(key, value): (&'a Spanned<Cow<'a, str>>, &'a Spanned<DeValue<'a>>)| {
            let name: &'a str = key.get_ref();
            (name, Field { problems: self.problems, value: value.get_ref(), place: self.place_of(name) })
        };
        entries.map(field).collect()
    }

    /// Complains about fields that nobody asked for. To be called when all have been.
    pub(crate) fn finish(self) {
        let known = self.known.borrow();
        for (name, field) in self.entries() {
            if !known.contains(&name) {
                let hint = nearest(name, &known)
                    .map_or_else(String::new, |near| format!("; the nearest known one is `{near}`"));
                field.fail(format!("unknown field{hint}"));
            }
        }
    }
}

/// One value and its place.
#[derive(Debug)]
pub(crate) struct Field<'a> {
    problems: &'a Problems,
    value: &'a DeValue<'a>,
    place: Place,
}

impl<'a> Field<'a> {
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn value(&self) -> &'a DeValue<'a> {
        self.value
    }

    /// Notes that the value is wrong.
    pub(crate) fn fail(&self, message: impl Into<String>) {
        self.problems.error(&self.place, message);
    }

    /// Notes that the value is of the wrong type.
    pub(crate) fn fail_type(&self, expected: &str) {
        self.fail(format!("must be {expected}, not {}", type_name(self.value)));
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.fail_type("a string");
        }
        text
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        let value = self.value.as_bool();
        if value.is_none() {
            self.fail_type("true or false");
        }
        value
    }

    pub(crate) fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let Some(integer) = self.value.as_integer() else {
            self.fail_type("an integer");
            return None;
        };
        let value = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let value = value.filter(|value| range.contains(value));
        if value.is_none() {
            self.fail(format!("must be from {} to {}, not {integer}", range.start(), range.end()));
        }
        value
    }

    /// One of the words of `choices`, as what it stands for.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.fail(format!("must be one of {}, not {text:?}", words.join(", ")));
        }
        found
    }

    /// The items of an array, none if it is something else.
    pub(crate) fn items(&self) -> Vec<Field<'a>> {
        let Some(items) = self.value.as_array() else {
            self.fail_type("an array");
            return Vec::new();
        };
        let item = |(position, item): (usize, &'a Spanned<DeValue<'a>>)| {
            let place = Place { offset: item.span().start, path: format!("{}[{position}]", self.place.path) };
            Field { problems: self.problems, value: item.get_ref(), place }
        };
        items.iter().enumerate().map(item).collect()
    }

    pub(crate) fn section(&self) -> Option<Section<'a>> {
        let table = self.value.as_table();
        if table.is_none() {
            self.fail_type("a table");
        }
        table.map(|table| Section::new(self.problems, self.place.clone(), Some(table)))
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
