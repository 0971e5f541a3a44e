//! From what a request holds to how many input tokens it will be.
//!
//! An estimate reserves; it never bills a request whose usage was reported. It should be a little
//! high rather than low. Text goes by bytes and the model family's ratio, media by the providers'
//! published rules. Overheads are published, too, where a source is named.

mod family;
mod images;
mod ratios;
mod text;

use tollgate_limiter::Tokens;

use crate::media::{Dimensions, Media};
use crate::{Protocol, RequestFacts};

pub(crate) use family::Family;
pub(crate) use images::ImageSizes;
pub use ratios::InputRatios;
pub(crate) use text::{Run, TextSizes};

/// Sizes of everything in a request that the model reads. Bounded, whatever the body's size.
#[derive(Clone, Debug, Default)]
pub struct InputSizes {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) text: TextSizes,
    /// Base64 of what only the provider can read: signatures, encrypted results.
    pub(crate) opaque_bytes: u64,
    pub(crate) messages: u64,
    /// Tool calls and tool results in the conversation.
    pub(crate) tool_blocks: u64,
    /// Tools the client defines.
    pub(crate) tools: u64,
    /// Properties in schemas.
    pub(crate) schema_keys: u64,
    /// Tokens of the definitions of tools that the provider runs.
    pub(crate) server_tool_tokens: u64,
    /// `tool_choice` names a tool or demands any.
    pub(crate) is_tool_forced: bool,
    /// A document is to be cited.
    pub(crate) has_citations: bool,
    /// Extended thinking is on.
    pub(crate) has_thinking: bool,
    pub(crate) images: ImageSizes,
    pub(crate) pdf_pages: u64,
    pub(crate) audio_tenths: u64,
    /// Bytes of files of other kinds.
    pub(crate) file_bytes: u64,
    /// Documents that are not in the body: by URL or by file id.
    pub(crate) hidden_documents: u64,
    /// Recordings that are not in the body, earlier spoken answers among them.
    pub(crate) hidden_recordings: u64,
}

impl InputSizes {
    /// Whether a recording goes in.
    pub(crate) const fn has_audio(&self) -> bool {
        self.audio_tenths > 0 || self.hidden_recordings > 0
    }

    pub(crate) fn add_media(&mut self, media: Media, is_low_detail: bool) {
        match media {
            Media::Image(dimensions) => self.images.add(dimensions, is_low_detail),
            Media::Pdf { pages } => {
                self.pdf_pages = self.pdf_pages.saturating_add(pages);
            }
            Media::Audio { tenths } => self.audio_tenths = self.audio_tenths.saturating_add(tenths),
            Media::Other { bytes } => self.file_bytes = self.file_bytes.saturating_add(bytes),
        }
    }
}

/// The name of a model's family: what models have in common that are estimated alike.
pub fn model_family(model: &str) -> &'static str {
    Family::of(model).name()
}

/// Estimates the input tokens of a request, for the model that it names.
pub fn estimate_input(facts: &RequestFacts) -> Tokens {
    let parts = input_parts(facts);
    Tokens::new(parts.iter().fold(0_u64, |sum, (_, tokens)| sum.saturating_add(*tokens)))
}

/// The parts that [`estimate_input`] sums, each with what it is for.
pub fn input_parts(facts: &RequestFacts) -> [(&'static str, u64); 10] {
    let sizes = &facts.input;
    let family = Family::of(&facts.model);
    let rule = family::image_rule(&facts.model, family);
    [
        ("text", family.text_ratio().tokens(&sizes.text)),
        ("encrypted", sizes.opaque_bytes.saturating_mul(OPAQUE_TOKENS_PER_1000_BYTES).div_ceil(1000)),
        ("templates", overhead(facts, family)),
        ("provider's tools", sizes.server_tool_tokens),
        ("images", sizes.images.tokens(rule)),
        ("pdf pages", pdf_tokens(sizes.pdf_pages, rule)),
        ("audio", sizes.audio_tenths.saturating_mul(AUDIO_TOKENS_PER_TENTH)),
        ("other files", sizes.file_bytes.div_ceil(FILE_BYTES_PER_TOKEN)),
        ("documents not in the body", sizes.hidden_documents.saturating_mul(HIDDEN_DOCUMENT_TOKENS)),
        ("recordings not in the body", sizes.hidden_recordings.saturating_mul(HIDDEN_RECORDING_TOKENS)),
    ]
}

/// Encrypted results of an earlier search, 15 kB of base64, were 8,000 tokens when sent back.
const OPAQUE_TOKENS_PER_1000_BYTES: u64 = 550;
/// OpenAI: a token for each tenth of a second of audio that goes in.
const AUDIO_TOKENS_PER_TENTH: u64 = 1;
/// Documents that are no PDFs: their text alone is read.
const FILE_BYTES_PER_TOKEN: u64 = 3;

/// A document that is not in the body may be of any length: some ten pages of text with their images,
/// at what a dense page costs ([`PDF_PAGE_TEXT_TOKENS`] is the upper end). Longer ones are reserved too
/// low, which [`RequestFacts::hidden_input`] tells.
const HIDDEN_DOCUMENT_TOKENS: u64 = 25_000;
/// Five minutes of a recording that is not in the body.
const HIDDEN_RECORDING_TOKENS: u64 = 3_000 * AUDIO_TOKENS_PER_TENTH;

/// Anthropic's upper figure for the text of a page; each page is read as an image as well.
const PDF_PAGE_TEXT_TOKENS: u64 = 3_000;
/// A letter page at 150 dpi.
const PDF_PAGE_IMAGE: Dimensions = Dimensions { width: 1_275, height: 1_650 };

fn pdf_tokens(pages: u64, rule: images::ImageRule) -> u64 {
    let mut page = ImageSizes::default();
    page.add(Some(PDF_PAGE_IMAGE), false);
    pages.saturating_mul(PDF_PAGE_TEXT_TOKENS.saturating_add(page.tokens(rule)))
}

/// What the providers' templates add.
fn overhead(facts: &RequestFacts, family: Family) -> u64 {
    let sizes = &facts.input;
    let times = |count: u64, tokens: u64| count.saturating_mul(tokens);
    let protocol_is_claude = sizes.protocol == Some(Protocol::Anthropic);
    let (request, message, tool_block, tool) =
        if protocol_is_claude { CLAUDE_OVERHEAD } else { OPENAI_OVERHEAD };
    let tool_prompt = match sizes.tools {
        0 => 0,
        _ if family.is_claude() => family::claude_tool_prompt(&facts.model, sizes.is_tool_forced),
        _ => OPENAI_TOOL_PROMPT,
    };
    [
        request,
        times(sizes.messages, message),
        times(sizes.tool_blocks, tool_block),
        times(sizes.tools, tool),
        times(sizes.schema_keys, SCHEMA_KEY_TOKENS),
        tool_prompt,
        if sizes.has_citations { CITATIONS_PROMPT } else { 0 },
        if sizes.has_thinking { THINKING_PROMPT } else { 0 },
        if sizes.has_audio() { AUDIO_PROMPT } else { 0 },
    ]
    .iter()
    .fold(0_u64, |sum, part| sum.saturating_add(*part))
}

/// Tokens for a request, a message, a tool call or result, a tool's definition: what short recorded
/// exchanges have beyond their text.
const CLAUDE_OVERHEAD: (u64, u64, u64, u64) = (6, 5, 24, 20);
/// As OpenAI's token counting notebook has it: 3 to prime the answer, 3 a message and one more for
/// its role, 10 a function at most; tool calls measured.
const OPENAI_OVERHEAD: (u64, u64, u64, u64) = (4, 4, 8, 10);
/// What ends a list of functions, and what announces it.
const OPENAI_TOOL_PROMPT: u64 = 48;
/// What Anthropic adds where citations or thinking are on, as recorded with short prompts.
const CITATIONS_PROMPT: u64 = 600;
const THINKING_PROMPT: u64 = 30;
/// What OpenAI adds where audio goes in, as recorded.
const AUDIO_PROMPT: u64 = 8;
/// A property of a schema, beyond its name and description.
const SCHEMA_KEY_TOKENS: u64 = 3;
