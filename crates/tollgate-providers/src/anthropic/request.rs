//! What a Messages request asks for.

use serde::de::{MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::user_id;
use crate::content::{Gathered, Place, Walk};
use crate::fields::{self, KnownKey, Seen};
use crate::json::{self, Field, FieldSink, Into, KeySeed, ReadFields, Scalar, Sink, Skip};
use crate::messages::Messages;
use crate::other_models::{self, ModelList};
use crate::prompt::Part;
use crate::rewrite::{LimitPlace, LimitPlaces};
use crate::{Protocol, RequestError, RequestFacts, SessionFacts};

/// Searches that a web search tool without `max_uses` is taken to allow: as many as were seen in one
/// recorded turn.
const UNSTATED_SEARCHES: u64 = 10;

/// Fields that decide something. Any other passes unread.
const KNOWN: [&str; 18] = [
    "model",
    "models",
    "max_tokens",
    "stream",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "service_tier",
    "inference_geo",
    "speed",
    "cache_control",
    "mcp_servers",
    "container",
    "output_format",
    "output_config",
    "thinking",
    "metadata",
];

/// Reads a request's facts. `is_messages`: not for `count_tokens`, which has no output limit.
pub(crate) fn inspect(body: &[u8], is_messages: bool) -> Result<RequestFacts, RequestError> {
    let mut request = Request { body, ..Request::default() };
    request.gathered.sizes.protocol = Some(Protocol::Anthropic);
    json::read_object(body, &mut request)?;
    request.into_facts(is_messages)
}

#[derive(Default)]
struct Request<'b> {
    body: &'b [u8],
    seen: Seen,
    gathered: Gathered,
    model: Field,
    max_tokens: Field,
    limit_places: LimitPlaces,
    thinking_budget: Option<u64>,
    stream: Field,
    service_tier: Field,
    inference_geo: Field,
    speed: Field,
    user: Field,
    has_messages: bool,
    web_searches: Option<u64>,
    other_models: Vec<String>,
}

impl ReadFields for Request<'_> {
    fn read_fields<'de, A: MapAccess<'de>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key_seed(KeySeed(|key: &str| KnownKey::of(&KNOWN, key)))? {
            let name = self.seen.field(&KNOWN, key).and_then(|index| KNOWN.get(index).copied());
            match name {
                Some("model") => self.model = fields.next_value_seed(Into(FieldSink))?,
                Some("max_tokens") => {
                    let raw = fields.next_value::<&'de RawValue>()?;
                    self.max_tokens = json::field(raw)?;
                    self.limit_places.max_tokens = LimitPlace::of(self.body, raw, &self.max_tokens);
                }
                Some("stream") => self.stream = fields.next_value_seed(Into(FieldSink))?,
                Some("service_tier") => self.service_tier = fields.next_value_seed(Into(FieldSink))?,
                Some("inference_geo") => self.inference_geo = fields.next_value_seed(Into(FieldSink))?,
                Some("speed") => self.speed = fields.next_value_seed(Into(FieldSink))?,
                Some("metadata") => fields.next_value_seed(Into(Metadata(self)))?,
                Some("messages") => {
                    self.has_messages = true;
                    let messages = Messages { gathered: &mut self.gathered, seen: &mut self.seen };
                    fields.next_value_seed(Into(messages))?;
                }
                Some("models") => {
                    let list =
                        ModelList { seen: &mut self.seen, param: "models", models: &mut self.other_models };
                    fields.next_value_seed(Into(list))?;
                }
                Some("system") => {
                    self.gathered.prompt.begin(Part::System);
                    fields.next_value_seed(self.walk(Place::Content))?;
                    self.gathered.prompt.begin(Part::Other);
                }
                Some("tools") => {
                    self.gathered.prompt.begin(Part::Tools);
                    fields.next_value_seed(Into(Tools(self)))?;
                    self.gathered.prompt.begin(Part::Other);
                }
                Some("tool_choice") => {
                    let choice = Typed { gathered: &mut self.gathered, note: note_tool_choice };
                    fields.next_value_seed(Into(choice))?;
                }
                Some("thinking") => fields.next_value_seed(Into(Thinking(self)))?,
                Some("cache_control") => fields.next_value_seed(self.walk(Place::CacheControl))?,
                Some("mcp_servers" | "container") => fields.next_value_seed(self.walk(Place::Reference))?,
                Some("output_format" | "output_config") => {
                    fields.next_value_seed(self.walk(Place::Schema))?
                }
                Some(_) | None => fields.next_value_seed(Into(Skip))?,
            }
        }
        Ok(())
    }
}

impl Request<'_> {
    fn walk(&mut self, place: Place) -> Into<Walk<'_>> {
        Into(Walk { gathered: &mut self.gathered, place })
    }

    fn into_facts(self, is_messages: bool) -> Result<RequestFacts, RequestError> {
        if let Some(fault) = self.seen.fault {
            return Err(fault);
        }
        let model = fields::model(self.model)?;
        let output_limit = fields::positive("max_tokens", &self.max_tokens)?;
        if is_messages && output_limit.is_none() {
            let message = "`max_tokens` is missing; send the most output tokens the answer may have.";
            return Err(RequestError::new(Some("max_tokens"), message));
        }
        if !self.has_messages {
            let message = "`messages` is missing; send a list of messages.";
            return Err(RequestError::new(Some("messages"), message));
        }
        let tier = fields::short_text("service_tier", self.service_tier)?;
        let geo = fields::short_text("inference_geo", self.inference_geo)?;
        let speed = fields::short_text("speed", self.speed)?;
        let (user, of_agent) = fields::user(self.user).map_or((None, None), user_id::parts_of);
        Ok(RequestFacts {
            model,
            output_limit,
            choices: 1,
            stream: fields::boolean("stream", &self.stream)?.unwrap_or(false),
            service_tier: tier_name(tier.as_deref(), geo.as_deref(), speed.as_deref()),
            cache_write: self.gathered.cache_write(),
            hidden_input: self.gathered.hidden,
            web_searches_max: self.web_searches,
            other_models: self.other_models,
            user,
            session: SessionFacts {
                of_agent,
                prompt: self.gathered.prompt.prefix(),
                ..SessionFacts::default()
            },
            ttls: self.gathered.ttls,
            input: self.gathered.sizes,
            limit_places: self.limit_places,
            thinking_budget: self.thinking_budget,
            ..RequestFacts::default()
        })
    }
}

/// The name of the price set that tier, region and speed select together.
pub(super) fn tier_name(tier: Option<&str>, geo: Option<&str>, speed: Option<&str>) -> Option<String> {
    // `standard_only` forbids priority; `auto` may become it, where capacity was bought beforehand.
    let tier = tier.map(|tier| if tier == "standard_only" { "standard" } else { tier });
    let geo = geo.filter(|geo| !matches!(*geo, "global" | "not_available"));
    let speed = speed.filter(|speed| *speed != "standard");
    // Beside what changes the price, the name of the standard tier says nothing.
    let tier = tier.filter(|tier| (geo.is_none() && speed.is_none()) || *tier != "standard");
    fields::join_tier([tier, geo, speed])
}

/// `tool_choice`: auto, none, any, or a named tool.
fn note_tool_choice(gathered: &mut Gathered, choice: &str) {
    gathered.sizes.is_tool_forced = matches!(choice, "any" | "tool");
}

/// An object of which only the `type` says something.
struct Typed<'g> {
    gathered: &'g mut Gathered,
    note: fn(&mut Gathered, &str),
}

impl<'de> Sink<'de> for Typed<'_> {
    type Out = ();

    fn scalar(self, _: Scalar) {}

    fn text(self, _: &str) {}

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        Skip.array(items)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(is_type) = fields.next_key_seed(KeySeed(|key: &str| key == "type"))? {
            let value = fields.next_value_seed(Into(FieldSink))?;
            if let (true, Field::Text(name)) = (is_type, value) {
                (self.note)(self.gathered, &name);
            }
        }
        Ok(())
    }
}

/// `thinking`: enabled, adaptive, disabled, and how much of the output it may take.
struct Thinking<'r, 'b>(&'r mut Request<'b>);

impl<'de> Sink<'de> for Thinking<'_, '_> {
    type Out = ();

    fn scalar(self, _: Scalar) {}

    fn text(self, _: &str) {}

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        Skip.array(items)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let name = |key: &str| KnownKey::of(&["type", "budget_tokens"], key);
        while let Some(key) = fields.next_key_seed(KeySeed(name))? {
            match (key, fields.next_value_seed(Into(FieldSink))?) {
                (KnownKey::Exact(0), Field::Text(kind)) => {
                    self.0.gathered.sizes.has_thinking = kind != "disabled";
                }
                (KnownKey::Exact(1), Field::Scalar(Scalar::Count(budget))) => {
                    self.0.thinking_budget = Some(budget);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// `metadata`, of which only the user's id says something.
struct Metadata<'r, 'b>(&'r mut Request<'b>);

impl<'de> Sink<'de> for Metadata<'_, '_> {
    type Out = ();

    fn scalar(self, _: Scalar) {}

    fn text(self, _: &str) {}

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        Skip.array(items)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(is_user) = fields.next_key_seed(KeySeed(|key: &str| key == "user_id"))? {
            let value = fields.next_value_seed(Into(FieldSink))?;
            if !is_user {
                continue;
            }
            if self.0.user != Field::Absent {
                self.0.seen.fail(Some("metadata"), "`metadata.user_id` occurs more than once; send it once.");
            }
            self.0.user = value;
        }
        Ok(())
    }
}

/// The list of tools.
struct Tools<'r, 'b>(&'r mut Request<'b>);

impl<'de> Sink<'de> for Tools<'_, '_> {
    type Out = ();

    fn scalar(self, _: Scalar) {}

    fn text(self, _: &str) {}

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Into(Tool(&mut *self.0)))?.is_some() {}
        Ok(())
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        Skip.object(fields)
    }
}

/// One tool: the client's own (`name`, `description`, `input_schema`) or one that the provider runs
/// or defines (`type`, `max_uses`, `model`).
struct Tool<'r, 'b>(&'r mut Request<'b>);

impl<'de> Sink<'de> for Tool<'_, '_> {
    type Out = ();

    fn scalar(self, _: Scalar) {}

    fn text(self, _: &str) {}

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        Skip.array(items)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut tool_type = Field::Absent;
        let mut max_uses = Field::Absent;
        while let Some(key) = fields.next_key_seed(KeySeed(ToolKey::of))? {
            match key {
                ToolKey::Type => tool_type = fields.next_value_seed(Into(FieldSink))?,
                ToolKey::Model => {
                    let model = fields.next_value_seed(Into(FieldSink))?;
                    other_models::add(&mut self.0.seen, "tools", &mut self.0.other_models, model);
                }
                ToolKey::MaxUses => max_uses = fields.next_value_seed(Into(FieldSink))?,
                ToolKey::Text => fields.next_value_seed(self.0.walk(Place::Content))?,
                ToolKey::CacheControl => fields.next_value_seed(self.0.walk(Place::CacheControl))?,
                ToolKey::Json => fields.next_value_seed(self.0.walk(Place::Verbatim))?,
            }
        }
        let sizes = &mut self.0.gathered.sizes;
        sizes.tools = sizes.tools.saturating_add(1);
        if let Field::Text(name) = &tool_type {
            sizes.server_tool_tokens = sizes.server_tool_tokens.saturating_add(definition_tokens(name));
            if name.starts_with("web_search") {
                let searches =
                    fields::positive("tools", &max_uses).ok().flatten().unwrap_or(UNSTATED_SEARCHES);
                self.0.web_searches = Some(self.0.web_searches.unwrap_or(0).saturating_add(searches));
            }
        }
        Ok(())
    }
}

enum ToolKey {
    Type,
    Model,
    MaxUses,
    Text,
    CacheControl,
    Json,
}

impl ToolKey {
    fn of(key: &str) -> Self {
        match key {
            "type" => Self::Type,
            "model" => Self::Model,
            "max_uses" => Self::MaxUses,
            "name" | "description" => Self::Text,
            "cache_control" => Self::CacheControl,
            _ => Self::Json,
        }
    }
}

/// The tokens of a definition that Anthropic puts in for a tool of `type`, beyond the general tool
/// prompt: bash, text editor and computer use as published; the others as recorded, rounded up
/// (input of a short prompt with that tool alone, less the tool prompt).
fn definition_tokens(tool_type: &str) -> u64 {
    let table: [(&str, u64); 8] = [
        ("bash_", 245),
        ("text_editor_", 700),
        ("computer_", 1_234),
        ("web_search_", 1_800),
        ("web_fetch_", 2_400),
        ("code_execution_", 1_900),
        ("advisor_", 800),
        ("custom", 0),
    ];
    // A type that is not known may be as large as the largest.
    table.iter().find(|(prefix, _)| tool_type.starts_with(prefix)).map_or(2_400, |(_, tokens)| *tokens)
}
