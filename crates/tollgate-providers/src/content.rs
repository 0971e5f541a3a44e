//! Walking what the model reads: messages, system prompts, tools, schemas.
//!
//! One walk serves every protocol: the key under which a value stands says how it is read. Strings
//! are text unless their key says otherwise; media are recognised in the objects where a protocol
//! puts them (`source`, `image_url`, `input_audio`, `file`) and nowhere else, so that text cannot pass
//! for a cheap image.

use serde::de::{MapAccess, SeqAccess};
use tollgate_pricing::CacheWrite;

use crate::estimate::{InputSizes, Run};
use crate::facts::CacheTtls;
use crate::json::{Field, FieldSink, Into, KeySeed, Scalar, Sink, Skip};
use crate::media::{self, Kind, Media};
use crate::prompt::Prompt;

/// What a walk gathers.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) sizes: InputSizes,
    pub(crate) ttls: CacheTtls,
    /// Something is referred to that is not in the body.
    pub(crate) hidden: bool,
    /// What the prompt begins with.
    pub(crate) prompt: Prompt,
    /// The content block that is being read.
    block: Block,
}

/// What a content block refers to, until its end says what that is: its `type` may come last.
#[derive(Debug, Default)]
struct Block {
    is_image: bool,
    /// Its `type` is another than an image's.
    is_other: bool,
    /// Files that are not in the body.
    hidden_files: u64,
}

impl Gathered {
    /// Counts a string that the model reads.
    fn read(&mut self, text: &str) {
        let mut run = Run::default();
        run.add(text.as_bytes());
        self.sizes.text.add_run(run);
        self.prompt.text(text, &run);
    }

    /// Notes a file that is not in the body.
    fn hide_file(&mut self) {
        self.hidden = true;
        self.block.hidden_files = self.block.hidden_files.saturating_add(1);
    }

    /// Notes a recording that is not in the body.
    fn hide_recording(&mut self) {
        self.hidden = true;
        self.sizes.hidden_recordings = self.sizes.hidden_recordings.saturating_add(1);
    }

    /// Counts what a block refers to: as the largest image, or else as a document, the larger.
    fn end_block(&mut self, block: &Block) {
        for _ in 0..block.hidden_files {
            if block.is_image && !block.is_other {
                self.sizes.add_media(Media::Image(None), false);
            } else {
                self.sizes.hidden_documents = self.sizes.hidden_documents.saturating_add(1);
            }
        }
    }

    /// The dearest cache write asked for.
    pub(crate) const fn cache_write(&self) -> CacheWrite {
        match self.ttls {
            CacheTtls { one_hour: true, .. } => CacheWrite::OneHour,
            CacheTtls { five_minutes: true, .. } => CacheWrite::FiveMinutes,
            CacheTtls { .. } => CacheWrite::None,
        }
    }
}

/// How a value is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// Content blocks and their parts: structure is not read by the model, text is.
    Content,
    /// JSON that the model reads as it stands: tool inputs and definitions.
    Verbatim,
    /// The same, where keys are those of a JSON schema.
    Schema,
    /// An image, by URL or inline.
    Image,
    /// A recording.
    Audio,
    /// A file of any kind.
    File,
    /// Base64 that only the provider can read.
    Opaque,
    /// The `type` of a block.
    BlockType,
    /// Who says a message.
    Role,
    /// A cache breakpoint.
    CacheControl,
    /// A file that is kept at the provider's.
    StoredFile,
    /// An earlier spoken answer, kept at the provider's.
    StoredAudio,
    /// A reference to anything else that is kept at the provider's.
    Reference,
    /// What was cited, in an earlier answer, or that a document is to be cited.
    Citations,
    /// Not read by the model.
    Ignored,
}

impl Place {
    /// Where the value of `key` stands, inside content.
    fn in_content(key: &str) -> Self {
        match key {
            "type" => Self::BlockType,
            "cache_control" => Self::CacheControl,
            "role" => Self::Role,
            "id" | "tool_use_id" | "tool_call_id" | "index" | "annotations" | "is_error" => Self::Ignored,
            "citations" => Self::Citations,
            "input" => Self::Verbatim,
            "source" | "file" => Self::File,
            "image_url" => Self::Image,
            "input_audio" => Self::Audio,
            "file_id" => Self::StoredFile,
            "audio" => Self::StoredAudio,
            "signature" | "data" | "encrypted_content" | "encrypted_index" | "encrypted_stdout" => {
                Self::Opaque
            }
            _ => Self::Content,
        }
    }
}

/// Walks one value.
pub(crate) struct Walk<'g> {
    pub(crate) gathered: &'g mut Gathered,
    pub(crate) place: Place,
}

impl Walk<'_> {
    fn at(&mut self, place: Place) -> Into<Walk<'_>> {
        Into(Walk { gathered: self.gathered, place })
    }
}

impl<'de> Sink<'de> for Walk<'_> {
    type Out = ();

    fn scalar(self, value: Scalar) {
        match (self.place, value) {
            (Place::Verbatim | Place::Schema, _) => self.gathered.sizes.text.add_marks(4),
            (Place::CacheControl | Place::Reference, Scalar::Null) => {}
            (Place::CacheControl, _) => self.gathered.ttls.five_minutes = true,
            _ => {}
        }
    }

    fn text(self, value: &str) {
        let gathered = self.gathered;
        match self.place {
            Place::Content => gathered.read(value),
            Place::Verbatim | Place::Schema => {
                gathered.read(value);
                gathered.sizes.text.add_marks(2);
            }
            Place::Opaque => {
                let bytes = u64::try_from(value.len()).unwrap_or(u64::MAX);
                gathered.sizes.opaque_bytes = gathered.sizes.opaque_bytes.saturating_add(bytes);
            }
            Place::BlockType => {
                if matches!(value, "tool_use" | "tool_result" | "server_tool_use" | "function") {
                    gathered.sizes.tool_blocks = gathered.sizes.tool_blocks.saturating_add(1);
                }
                let is_image = matches!(value, "image" | "image_url" | "input_image");
                gathered.block.is_image |= is_image;
                gathered.block.is_other |= !is_image;
            }
            Place::Image | Place::Audio => {
                gathered.prompt.data(value);
                Blob::of_url(value).settle(self.place, Kind::Unknown, false, gathered)
            }
            // A search result's `source` is a plain URL or title, which the model reads.
            Place::File => gathered.read(value),
            Place::Role => gathered.prompt.role(value),
            Place::CacheControl => gathered.ttls.five_minutes = true,
            Place::StoredFile => gathered.hide_file(),
            Place::StoredAudio => gathered.hide_recording(),
            Place::Reference => gathered.hidden = true,
            Place::Citations | Place::Ignored => {}
        }
    }

    fn array<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let place = self.place;
        if matches!(place, Place::Verbatim | Place::Schema) {
            self.gathered.sizes.text.add_marks(2);
        }
        while items.next_element_seed(self.at(place))?.is_some() {}
        Ok(())
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        match self.place {
            Place::Image | Place::Audio | Place::File => {
                MediaObject::new(self.place).read(self.gathered, fields)
            }
            Place::CacheControl => read_cache_control(self.gathered, fields),
            Place::Verbatim | Place::Schema => self.json(fields),
            Place::Content => self.content(fields),
            Place::StoredFile => {
                self.gathered.hide_file();
                Skip.object(fields)
            }
            Place::StoredAudio => {
                self.gathered.hide_recording();
                Skip.object(fields)
            }
            Place::Reference => {
                self.gathered.hidden = true;
                Skip.object(fields)
            }
            Place::Citations => self.citations(fields),
            Place::Opaque | Place::BlockType | Place::Role | Place::Ignored => Skip.object(fields),
        }
    }
}

impl Walk<'_> {
    fn content<'de, A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let around = std::mem::take(&mut self.gathered.block);
        while let Some(place) = fields.next_key_seed(KeySeed(Place::in_content))? {
            fields.next_value_seed(self.at(place))?;
        }
        let block = std::mem::replace(&mut self.gathered.block, around);
        self.gathered.end_block(&block);
        Ok(())
    }

    /// `{"enabled": true}` on a document.
    fn citations<'de, A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(is_enabled) = fields.next_key_seed(KeySeed(|key: &str| key == "enabled"))? {
            let value = fields.next_value_seed(Into(FieldSink))?;
            self.gathered.sizes.has_citations |= is_enabled && value == Field::Scalar(Scalar::Bool(true));
        }
        Ok(())
    }

    /// An object that the model reads with its keys and punctuation.
    fn json<'de, A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let place = self.place;
        self.gathered.sizes.text.add_marks(2);
        let key = |key: &str| {
            let mut run = Run::default();
            run.add(key.as_bytes());
            // In a schema the provider renders most of these words away, or into one mark.
            let is_keyword = place == Place::Schema
                && matches!(
                    key,
                    "type" | "properties" | "required" | "additionalProperties" | "enum" | "items" | "strict"
                );
            (run, is_keyword, key == "cache_control")
        };
        while let Some((run, is_keyword, is_cache_control)) = fields.next_key_seed(KeySeed(key))? {
            if is_cache_control {
                fields.next_value_seed(self.at(Place::CacheControl))?;
                continue;
            }
            let sizes = &mut self.gathered.sizes;
            if is_keyword {
                sizes.text.add_marks(1);
            } else {
                sizes.text.add_run(run);
                sizes.text.add_marks(3);
            }
            fields.next_value_seed(self.at(place))?;
        }
        Ok(())
    }
}

/// `{"type": "ephemeral", "ttl": "5m" | "1h"}`; five minutes if it does not say.
fn read_cache_control<'de, A: MapAccess<'de>>(
    gathered: &mut Gathered,
    mut fields: A,
) -> Result<(), A::Error> {
    let mut is_one_hour = false;
    while let Some(is_ttl) = fields.next_key_seed(KeySeed(|key: &str| key == "ttl"))? {
        let said = fields.next_value_seed(Into(Is("1h")))?;
        is_one_hour |= is_ttl && said;
    }
    if is_one_hour {
        gathered.ttls.one_hour = true;
    } else {
        gathered.ttls.five_minutes = true;
    }
    Ok(())
}

/// Whether a value is this string.
pub(crate) struct Is(pub(crate) &'static str);

impl<'de> Sink<'de> for Is {
    type Out = bool;

    fn scalar(self, _: Scalar) -> bool {
        false
    }

    fn text(self, value: &str) -> bool {
        value == self.0
    }

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<bool, A::Error> {
        Skip.array(items).map(|()| false)
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<bool, A::Error> {
        Skip.object(fields).map(|()| false)
    }
}

/// An object that holds or names media: Anthropic's `source`, OpenAI's `image_url`, `input_audio` and
/// `file`. Its fields may come in any order, so it is judged when it ends.
struct MediaObject {
    place: Place,
    announced: Kind,
    /// The `type` is `text`: `data` is plain text.
    is_text: bool,
    is_low_detail: bool,
}

enum MediaKey {
    Type,
    Mime,
    Detail,
    Data,
    Url,
    FileId,
    Content,
    Other,
}

impl MediaKey {
    fn of(key: &str) -> Self {
        match key {
            "type" => Self::Type,
            "media_type" => Self::Mime,
            "detail" => Self::Detail,
            "data" => Self::Data,
            "url" | "file_data" => Self::Url,
            "file_id" => Self::FileId,
            "content" | "text" => Self::Content,
            _ => Self::Other,
        }
    }
}

impl MediaObject {
    const fn new(place: Place) -> Self {
        Self { place, announced: Kind::Unknown, is_text: false, is_low_detail: false }
    }

    fn read<'de, A: MapAccess<'de>>(
        mut self,
        gathered: &mut Gathered,
        mut fields: A,
    ) -> Result<(), A::Error> {
        let mut blob: Option<Blob> = None;
        while let Some(key) = fields.next_key_seed(KeySeed(MediaKey::of))? {
            let found = match key {
                MediaKey::Type => {
                    self.is_text = fields.next_value_seed(Into(Is("text")))?;
                    None
                }
                MediaKey::Mime => {
                    self.announced = fields.next_value_seed(Into(Mime))?;
                    None
                }
                MediaKey::Detail => {
                    self.is_low_detail = fields.next_value_seed(Into(Is("low")))?;
                    None
                }
                MediaKey::Data => fields.next_value_seed(Into(BlobSink { gathered, is_url: false }))?,
                MediaKey::Url => fields.next_value_seed(Into(BlobSink { gathered, is_url: true }))?,
                MediaKey::FileId => {
                    fields.next_value_seed(Into(Walk { gathered, place: Place::StoredFile }))?;
                    None
                }
                MediaKey::Content => {
                    fields.next_value_seed(Into(Walk { gathered, place: Place::Content }))?;
                    None
                }
                MediaKey::Other => {
                    fields.next_value_seed(Into(Skip))?;
                    None
                }
            };
            if let Some(found) = found {
                // A second one is counted, too: which of them the provider reads is not ours to guess.
                if let Some(earlier) = blob.replace(found) {
                    self.settle(earlier, gathered);
                }
            }
        }
        if let Some(blob) = blob {
            self.settle(blob, gathered);
        }
        Ok(())
    }

    fn settle(&self, blob: Blob, gathered: &mut Gathered) {
        if self.is_text && !blob.is_remote {
            gathered.sizes.text.add_run(blob.run);
        } else {
            blob.settle(self.place, self.announced, self.is_low_detail, gathered);
        }
    }
}

/// Data or a reference to it, before it is known what it is meant to be.
struct Blob {
    /// What its first bytes (or its data URL) say it is.
    media: Media,
    /// It lies elsewhere.
    is_remote: bool,
    run: Run,
}

impl Blob {
    fn of_data(data: &str) -> Self {
        let media = media::classify(data, Kind::Unknown);
        let mut run = Run::default();
        // Megabytes of a recognised image need not be looked at.
        if matches!(media, Media::Other { .. }) {
            run.add(data.as_bytes());
        } else {
            run.add_unseen(data.len());
        }
        Self { media, is_remote: false, run }
    }

    fn of_url(url: &str) -> Self {
        match media::data_url(url) {
            Some((announced, data)) => Self { media: media::classify(data, announced), ..Self::of_data("") },
            // Bare base64 is taken in place of a URL by compatible servers.
            None if url.len() > 2_048 => Self::of_data(url),
            None => Self { is_remote: true, ..Self::of_data("") },
        }
    }

    /// Counts it, for what it is or else is meant to be.
    fn settle(self, place: Place, announced: Kind, is_low_detail: bool, gathered: &mut Gathered) {
        if self.is_remote {
            gathered.hidden = true;
            match place {
                Place::Image => gathered.sizes.add_media(Media::Image(None), is_low_detail),
                Place::Audio => gathered.hide_recording(),
                _ => gathered.hide_file(),
            }
            return;
        }
        let announced = match (announced, place) {
            (Kind::Unknown, Place::Image) => Kind::Image,
            (Kind::Unknown, Place::Audio) => Kind::Audio,
            (kind, _) => kind,
        };
        let media = match (self.media, announced) {
            (Media::Other { bytes }, kind) => media::of_size(bytes, kind),
            (known, _) => known,
        };
        gathered.sizes.add_media(media, is_low_detail);
    }
}

/// Reads a [`Blob`] from a string; anything else under its key is read as content.
struct BlobSink<'g> {
    gathered: &'g mut Gathered,
    is_url: bool,
}

impl<'de> Sink<'de> for BlobSink<'_> {
    type Out = Option<Blob>;

    fn scalar(self, _: Scalar) -> Option<Blob> {
        None
    }

    fn text(self, value: &str) -> Option<Blob> {
        self.gathered.prompt.data(value);
        Some(if self.is_url || value.starts_with("data:") {
            Blob::of_url(value)
        } else {
            Blob::of_data(value)
        })
    }

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<Option<Blob>, A::Error> {
        Walk { gathered: self.gathered, place: Place::Content }.array(items).map(|()| None)
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<Option<Blob>, A::Error> {
        Walk { gathered: self.gathered, place: Place::Content }.object(fields).map(|()| None)
    }
}

/// Reads what a MIME type announces.
struct Mime;

impl<'de> Sink<'de> for Mime {
    type Out = Kind;

    fn scalar(self, _: Scalar) -> Kind {
        Kind::Unknown
    }

    fn text(self, value: &str) -> Kind {
        Kind::of_mime(value)
    }

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<Kind, A::Error> {
        Skip.array(items).map(|()| Kind::Unknown)
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<Kind, A::Error> {
        Skip.object(fields).map(|()| Kind::Unknown)
    }
}
