//! What a Chat Completions request asks for.

use serde::de::{MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::stream_options::{self, UsageFlag};
use crate::content::{Gathered, Place, Walk};
use crate::fields::{self, KnownKey, Seen};
use crate::json::{self, Field, FieldSink, Into, KeySeed, ReadFields, Scalar, Sink, Skip};
use crate::messages::Messages;
use crate::other_models::ModelList;
use crate::prompt::Part;
use crate::rewrite::{LimitPlace, LimitPlaces, behind_brace};
use crate::{Protocol, RequestError, RequestFacts, SessionFacts};

/// The most choices OpenAI gives in one answer.
const MAX_CHOICES: u64 = 128;
/// Searches that `web_search_options` is taken to allow: a search model searches once an answer.
const SEARCHES: u64 = 1;

/// Fields that decide something. Any other passes unread.
const KNOWN: [&str; 20] = [
    "model",
    "models",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "stream",
    "stream_options",
    "messages",
    "tools",
    "functions",
    "tool_choice",
    "response_format",
    "prediction",
    "service_tier",
    "audio",
    "web_search_options",
    "cache_control",
    "user",
    "safety_identifier",
    "prompt_cache_key",
];

/// Reads a request's facts.
pub(crate) fn inspect(body: &[u8]) -> Result<RequestFacts, RequestError> {
    let mut request = Request::new(body);
    request.gathered.sizes.protocol = Some(Protocol::OpenAi);
    json::read_object(body, &mut request)?;
    request.into_facts()
}

struct Request<'b> {
    body: &'b [u8],
    seen: Seen,
    gathered: Gathered,
    model: Field,
    max_tokens: Field,
    max_completion_tokens: Field,
    limit_places: LimitPlaces,
    choices: Field,
    stream: Field,
    service_tier: Field,
    user: Field,
    safety_identifier: Field,
    prompt_cache_key: Field,
    usage_flag: UsageFlag,
    has_messages: bool,
    has_audio_output: bool,
    has_search: bool,
    other_models: Vec<String>,
}

impl<'b> Request<'b> {
    fn new(body: &'b [u8]) -> Self {
        Self {
            body,
            seen: Seen::default(),
            gathered: Gathered::default(),
            model: Field::Absent,
            max_tokens: Field::Absent,
            max_completion_tokens: Field::Absent,
            limit_places: LimitPlaces::default(),
            choices: Field::Absent,
            stream: Field::Absent,
            service_tier: Field::Absent,
            user: Field::Absent,
            safety_identifier: Field::Absent,
            prompt_cache_key: Field::Absent,
            usage_flag: UsageFlag::NoOptions { at: behind_brace(body) },
            has_messages: false,
            has_audio_output: false,
            has_search: false,
            other_models: Vec::new(),
        }
    }
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
                Some("max_completion_tokens") => {
                    let raw = fields.next_value::<&'de RawValue>()?;
                    self.max_completion_tokens = json::field(raw)?;
                    let place = LimitPlace::of(self.body, raw, &self.max_completion_tokens);
                    self.limit_places.max_completion_tokens = place;
                }
                Some("models") => {
                    let list =
                        ModelList { seen: &mut self.seen, param: "models", models: &mut self.other_models };
                    fields.next_value_seed(Into(list))?;
                }
                Some("n") => self.choices = fields.next_value_seed(Into(FieldSink))?,
                Some("stream") => self.stream = fields.next_value_seed(Into(FieldSink))?,
                Some("service_tier") => self.service_tier = fields.next_value_seed(Into(FieldSink))?,
                Some("user") => self.user = fields.next_value_seed(Into(FieldSink))?,
                Some("safety_identifier") => {
                    self.safety_identifier = fields.next_value_seed(Into(FieldSink))?;
                }
                Some("prompt_cache_key") => {
                    self.prompt_cache_key = fields.next_value_seed(Into(FieldSink))?
                }
                Some("stream_options") => {
                    let raw = fields.next_value::<&'de RawValue>()?;
                    self.read_stream_options(raw);
                }
                Some("messages") => {
                    self.has_messages = true;
                    let messages = Messages { gathered: &mut self.gathered, seen: &mut self.seen };
                    fields.next_value_seed(Into(messages))?;
                }
                Some("tools" | "functions") => {
                    self.gathered.prompt.begin(Part::Tools);
                    fields.next_value_seed(Into(Tools(&mut self.gathered)))?;
                    self.gathered.prompt.begin(Part::Other);
                }
                Some("response_format") => fields.next_value_seed(self.walk(Place::Schema))?,
                Some("prediction") => fields.next_value_seed(self.walk(Place::Content))?,
                Some("cache_control") => fields.next_value_seed(self.walk(Place::CacheControl))?,
                Some("audio") => self.has_audio_output |= fields.next_value_seed(Into(IsContainer))?,
                Some("web_search_options") => self.has_search |= fields.next_value_seed(Into(IsContainer))?,
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

    fn read_stream_options(&mut self, raw: &RawValue) {
        match stream_options::read(self.body, raw) {
            Ok(flag) => self.usage_flag = flag,
            Err(fault) => self.seen.fail(fault.param, fault.message),
        }
    }

    fn into_facts(self) -> Result<RequestFacts, RequestError> {
        if let Some(fault) = self.seen.fault {
            return Err(fault);
        }
        let model = fields::model(self.model)?;
        let older = fields::positive("max_tokens", &self.max_tokens)?;
        let newer = fields::positive("max_completion_tokens", &self.max_completion_tokens)?;
        let choices = fields::positive("n", &self.choices)?.unwrap_or(1);
        if choices > MAX_CHOICES {
            let message = format!("`n` must be at most {MAX_CHOICES}.");
            return Err(RequestError::new(Some("n"), message));
        }
        if !self.has_messages {
            let message = "`messages` is missing; send a list of messages.";
            return Err(RequestError::new(Some("messages"), message));
        }
        let safety_identifier = fields::user(self.safety_identifier);
        Ok(RequestFacts {
            model,
            output_limit: older.max(newer),
            choices,
            stream: fields::boolean("stream", &self.stream)?.unwrap_or(false),
            service_tier: fields::short_text("service_tier", self.service_tier)?,
            cache_write: self.gathered.cache_write(),
            hidden_input: self.gathered.hidden,
            other_models: self.other_models,
            web_searches_max: self.has_search.then_some(SEARCHES),
            user: fields::user(self.user).or_else(|| safety_identifier.clone()),
            session: SessionFacts {
                prompt_cache_key: fields::user(self.prompt_cache_key),
                safety_identifier,
                prompt: self.gathered.prompt.prefix(),
                ..SessionFacts::default()
            },
            audio: self.has_audio_output || self.gathered.sizes.has_audio(),
            ttls: self.gathered.ttls,
            input: self.gathered.sizes,
            usage_flag: self.usage_flag,
            limit_places: self.limit_places,
            thinking_budget: None,
        })
    }
}

/// `tools`, or the older `functions`: definitions, read as schemas.
struct Tools<'g>(&'g mut Gathered);

impl<'de> Sink<'de> for Tools<'_> {
    type Out = ();

    fn scalar(self, _: Scalar) {}

    fn text(self, _: &str) {}

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let gathered = self.0;
        while items.next_element_seed(Into(Walk { gathered, place: Place::Schema }))?.is_some() {
            gathered.sizes.tools = gathered.sizes.tools.saturating_add(1);
        }
        Ok(())
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        Skip.object(fields)
    }
}

/// Whether a value is there at all, which for an option object means that it is asked for.
struct IsContainer;

impl<'de> Sink<'de> for IsContainer {
    type Out = bool;

    fn scalar(self, value: Scalar) -> bool {
        value != Scalar::Null
    }

    fn text(self, _: &str) -> bool {
        true
    }

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<bool, A::Error> {
        Skip.array(items).map(|()| true)
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<bool, A::Error> {
        Skip.object(fields).map(|()| true)
    }
}
