//! Reading request JSON in one pass: values go to a [`Sink`] instead of into a tree.
//!
//! The parser is `serde_json` over the borrowed body: strict JSON, strict UTF-8, strings borrowed
//! where they hold no escapes, nesting bounded (128 levels) so that no body can exhaust the stack.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::RequestError;

/// What takes one JSON value of any type. Each method consumes the sink and yields its result.
pub(crate) trait Sink<'de>: Sized {
    /// What is known once the value has been read.
    type Out;

    /// A number, a boolean or null.
    fn scalar(self, value: Scalar) -> Self::Out;

    /// A string, unescaped.
    fn text(self, value: &str) -> Self::Out;

    /// An array: the sink reads its elements.
    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Out, A::Error>;

    /// An object: the sink reads its fields, keys with [`KeySeed`].
    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Out, A::Error>;
}

/// A value that is neither text nor a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    /// A whole number from 0 up to 2⁶⁴ − 1.
    Count(u64),
    /// Any other number: negative, with a fraction or an exponent, or too large.
    OtherNumber(f64),
}

/// Hands a value to a sink.
pub(crate) struct Into<S>(pub(crate) S);

impl<'de, S: Sink<'de>> DeserializeSeed<'de> for Into<S> {
    type Value = S::Out;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Out, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink<'de>> Visitor<'de> for Into<S> {
    type Value = S::Out;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<S::Out, E> {
        Ok(self.0.scalar(Scalar::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<S::Out, E> {
        Ok(self.0.scalar(Scalar::Bool(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<S::Out, E> {
        Ok(self.0.scalar(Scalar::Count(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<S::Out, E> {
        Ok(self.0.scalar(u64::try_from(value).map_or(Scalar::OtherNumber(-1.0), Scalar::Count)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<S::Out, E> {
        Ok(self.0.scalar(Scalar::OtherNumber(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<S::Out, E> {
        Ok(self.0.text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<S::Out, A::Error> {
        self.0.array(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<S::Out, A::Error> {
        self.0.object(fields)
    }
}

/// Reads an object's key, unescaped, and names it: `"mod\u0065l"` is `model`.
pub(crate) struct KeySeed<K, F: Fn(&str) -> K>(pub(crate) F);

impl<'de, K, F: Fn(&str) -> K> DeserializeSeed<'de> for KeySeed<K, F> {
    type Value = K;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<K, F: Fn(&str) -> K> Visitor<'_> for KeySeed<K, F> {
    type Value = K;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, value: &str) -> Result<K, E> {
        Ok((self.0)(value))
    }
}

/// A field whose value decides something by itself; containers are read over and remembered as such.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Field {
    /// The field is not there.
    #[default]
    Absent,
    Scalar(Scalar),
    Text(String),
    /// A string longer than any value this field can have.
    LongText,
    Container,
}

impl Field {
    /// Longest string that is kept: model names and tiers are far shorter.
    const MAX_TEXT_BYTES: usize = 512;
}

/// Reads a [`Field`].
pub(crate) struct FieldSink;

impl<'de> Sink<'de> for FieldSink {
    type Out = Field;

    fn scalar(self, value: Scalar) -> Field {
        Field::Scalar(value)
    }

    fn text(self, value: &str) -> Field {
        if value.len() > Field::MAX_TEXT_BYTES { Field::LongText } else { Field::Text(value.to_owned()) }
    }

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<Field, A::Error> {
        Skip.array(items).map(|()| Field::Container)
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<Field, A::Error> {
        Skip.object(fields).map(|()| Field::Container)
    }
}

/// Reads over a value. Unlike serde's `IgnoredAny` it holds to the nesting bound.
#[derive(Clone, Copy)]
pub(crate) struct Skip;

impl<'de> Sink<'de> for Skip {
    type Out = ();

    fn scalar(self, _: Scalar) {}

    fn text(self, _: &str) {}

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Into(self))?.is_some() {}
        Ok(())
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while fields.next_key_seed(KeySeed(|_: &str| ()))?.is_some() {
            fields.next_value_seed(Into(self))?;
        }
        Ok(())
    }
}

/// The value of a field whose place in the body matters.
pub(crate) fn field<E: serde::de::Error>(raw: &RawValue) -> Result<Field, E> {
    let mut value = serde_json::Deserializer::from_str(raw.get());
    Into(FieldSink).deserialize(&mut value).map_err(E::custom)
}

/// What reads the fields of a request's object.
pub(crate) trait ReadFields {
    /// Reads all fields. What is wrong with a value is remembered, not returned: an error here is one
    /// of the JSON itself.
    fn read_fields<'de, A: MapAccess<'de>>(&mut self, fields: A) -> Result<(), A::Error>;
}

/// Reads the one object that a body must be. A UTF-8 byte order mark before it is passed over.
pub(crate) fn read_object(body: &[u8], reader: &mut impl ReadFields) -> Result<(), RequestError> {
    let text = without_bom(body);
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::new(None, "The request body is empty; send a JSON object."));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let is_object = Into(Top(reader)).deserialize(&mut deserializer).map_err(|e| not_json(&e))?;
    deserializer.end().map_err(|e| not_json(&e))?;
    if is_object { Ok(()) } else { Err(RequestError::new(None, "The request body must be a JSON object.")) }
}

struct Top<'r, R>(&'r mut R);

impl<'de, R: ReadFields> Sink<'de> for Top<'_, R> {
    type Out = bool;

    fn scalar(self, _: Scalar) -> bool {
        false
    }

    fn text(self, _: &str) -> bool {
        false
    }

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<bool, A::Error> {
        Skip.array(items).map(|()| false)
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<bool, A::Error> {
        self.0.read_fields(fields).map(|()| true)
    }
}

/// `body` without a UTF-8 byte order mark.
pub(crate) fn without_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body)
}

fn not_json(error: &serde_json::Error) -> RequestError {
    // serde_json's messages name a position and what was expected there, never the body's content.
    let text = error.to_string();
    if text.starts_with("recursion limit") {
        return RequestError::new(None, "The request body is nested deeper than 127 levels; flatten it.");
    }
    RequestError::new(None, format!("The request body is not valid JSON ({text}); send one JSON object."))
}
