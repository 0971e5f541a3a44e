//! Models that a request names beside its own.

use serde::de::{MapAccess, SeqAccess};

use crate::fields::Seen;
use crate::json::{Field, FieldSink, Into, Scalar, Sink, Skip};

/// Adds a model that a request names beside its own; null names none.
pub(crate) fn add(seen: &mut Seen, param: &'static str, models: &mut Vec<String>, field: Field) {
    /// More models than any tool set or list of fallbacks has.
    const MAX_MODELS: usize = 16;
    /// No model's name is longer.
    const MAX_NAME_BYTES: usize = 256;
    match field {
        Field::Absent | Field::Scalar(Scalar::Null) => {}
        Field::Text(name) if models.contains(&name) => {}
        Field::Text(_) if models.len() >= MAX_MODELS => {
            seen.fail(Some(param), format!("`{param}` names more than {MAX_MODELS} models; name fewer."));
        }
        Field::Text(name)
            if !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control) =>
        {
            models.push(name);
        }
        _ => {
            let message = format!(
                "`{param}` names a model that is no printable string of 1 to {MAX_NAME_BYTES} bytes."
            );
            seen.fail(Some(param), message);
        }
    }
}

/// A list of models that may answer in place of the request's own.
pub(crate) struct ModelList<'r> {
    pub(crate) seen: &'r mut Seen,
    pub(crate) param: &'static str,
    pub(crate) models: &'r mut Vec<String>,
}

impl ModelList<'_> {
    fn refuse(self) {
        self.seen.fail(Some(self.param), format!("`{}` must be a list of models.", self.param));
    }
}

impl<'de> Sink<'de> for ModelList<'_> {
    type Out = ();

    fn scalar(self, value: Scalar) {
        if value != Scalar::Null {
            self.refuse();
        }
    }

    fn text(self, _: &str) {
        self.refuse();
    }

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element_seed(Into(FieldSink))? {
            add(self.seen, self.param, self.models, item);
        }
        Ok(())
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        self.refuse();
        Skip.object(fields)
    }
}
