//! The meter: an answer's bytes go in, what it used comes out.

use tollgate_limiter::Tokens;
use tollgate_pricing::Usage;

use crate::estimate::{Family, Run, TextSizes};
use crate::name::{self, MAX_MODEL_BYTES};
use crate::scan::{Handler, Name, Scanner, Want};
use crate::sse::{self, Event};
use crate::{Endpoint, Protocol, RequestFacts, anthropic, openai};

/// Reads the usage of one answer while its bytes pass.
///
/// However the bytes are cut, the result is the same. Memory is bounded: a body's text is counted,
/// not kept, and so is that of an event of more than 64 KiB; a smaller one is held until it is whole. No bytes
/// make it panic.
#[derive(Debug)]
pub struct Meter {
    is_billed: bool,
    family: Family,
    form: Form,
    form_is_known: bool,
    /// A stream is announced: what follows one object may still be one.
    is_streamed: bool,
    scanner: Scanner,
    sse: sse::Parser,
    reader: Reader,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// One JSON object.
    Body,
    /// Server-sent events.
    Stream,
}

/// What an answer used.
#[derive(Clone, Debug)]
pub struct Metered {
    /// The usage that the provider reported. Of an answer that did not end well it is what was
    /// reported until then: [`Metered::is_final`] says whether more was to come.
    pub usage: Reported,
    /// Whether `usage` is the provider's last word on the whole answer. A stream can end as it must
    /// without one: then its usage, if any, was reported before all of its content.
    pub is_final: bool,
    /// The model that answered, if the answer says. It decides the price.
    pub model: Option<String>,
    /// The service tier that was used, with what else changes the price joined by `+` (`batch+us`).
    pub service_tier: Option<String>,
    /// Usage of other models inside the same answer, not part of `usage` (Anthropic's advisor and
    /// fallback iterations).
    pub others: Vec<ModelUsage>,
    /// Estimate of the output tokens, from the content that was seen.
    pub output_seen: Tokens,
    /// Whether any content was seen.
    pub content_seen: bool,
    /// How the answer ended.
    pub end: StreamEnd,
    /// Whether the content is finished by its protocol, even if the usage or the stream's own end is
    /// missing. Nothing of such an answer was lost to the client, however it ended.
    pub is_finished: bool,
    /// The report contradicts itself (more cached than there was, negative counts, …): it was clamped
    /// or left out.
    pub is_contradictory: bool,
    /// A part of the answer was too large to be read. If it was a usage, none is final.
    pub has_unread: bool,
}

impl Metered {
    /// The usage as far as it is known: what was reported, with the output raised to what was seen
    /// where the report was not final. `None` if nothing was reported.
    pub fn usage_seen(&self) -> Option<Usage> {
        match self.usage {
            Reported::Usage(usage) if self.is_final => Some(usage),
            Reported::Usage(usage) => {
                Some(Usage { output: usage.output.max(self.output_seen.get()), ..usage })
            }
            Reported::Missing => None,
        }
    }
}

/// Usage as the provider reports it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reported {
    /// Reported, in disjoint classes. An explicit zero is zero.
    Usage(Usage),
    /// Not reported, or as zero for an answer that has content. Not the same as nothing used.
    Missing,
}

/// What another model used inside an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelUsage {
    /// The model.
    pub model: String,
    /// What it used.
    pub usage: Usage,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamEnd {
    /// As its protocol says it must.
    Complete,
    /// With an error, after a successful status.
    Error,
    /// Before its end: a connection that broke, or was closed.
    Cut,
}

/// What an answer that still runs has used so far.
#[derive(Clone, Debug)]
pub struct Running<'m> {
    /// The usage that the provider has reported until now, with the output raised to what was seen; `None`
    /// if nothing was reported.
    pub usage: Option<Usage>,
    /// As [`Metered::output_seen`].
    pub output_seen: Tokens,
    /// As [`Metered::model`].
    pub model: Option<&'m str>,
    /// As [`Metered::service_tier`].
    pub service_tier: Option<String>,
}

impl Meter {
    /// A meter for the answer to a request with these facts. `is_streamed` is what the answer's
    /// `content-type` says; a body that is plainly of the other kind is read as what it is.
    pub fn new(endpoint: Endpoint, facts: &RequestFacts, is_streamed: bool) -> Self {
        Self {
            is_billed: endpoint.is_billed(),
            family: Family::of(&facts.model),
            form: if is_streamed { Form::Stream } else { Form::Body },
            form_is_known: false,
            is_streamed,
            scanner: Scanner::new(),
            sse: sse::Parser::default(),
            reader: Reader::new(endpoint.protocol, facts),
        }
    }

    /// Takes the next piece of the answer, decoded if it was compressed.
    pub fn feed(&mut self, piece: &[u8]) {
        if !self.is_billed {
            return;
        }
        let mut piece = piece;
        if !self.form_is_known {
            match self.recognise(piece) {
                Some(rest) => piece = rest,
                None => return,
            }
        }
        match self.form {
            Form::Body => {
                let read = self.scanner.feed(piece, &mut self.reader);
                self.behind_body(piece.get(read..).unwrap_or_default());
            }
            Form::Stream => self.feed_stream(piece),
        }
    }

    fn feed_stream(&mut self, piece: &[u8]) {
        let (scanner, reader) = (&mut self.scanner, &mut self.reader);
        self.sse.feed(piece, |event| reader.event(event, scanner));
    }

    /// What follows a body that is whole is nothing, or the stream that was announced.
    fn behind_body(&mut self, rest: &[u8]) {
        let line = rest.iter().position(|byte| !byte.is_ascii_whitespace()).filter(|_| self.is_streamed);
        if let Some(line) = line.and_then(|at| rest.get(at..)) {
            self.form = Form::Stream;
            self.feed_stream(line);
        }
    }

    /// Estimate of the output tokens so far, from the content that was seen: text, arguments of tools,
    /// thinking. The same numbers as in [`Metered::output_seen`], at the cost of a few multiplications.
    pub fn output_seen(&self) -> Tokens {
        self.reader.seen.output(self.family, self.scanner.open_run())
    }

    /// How many usages have been reported so far. As long as it stays the same, [`Meter::running`] changes
    /// by its output alone.
    pub const fn reports(&self) -> u64 {
        self.reader.seen.reports
    }

    /// Whether the content is finished by its protocol: no more output comes.
    pub fn is_finished(&self) -> bool {
        match self.form {
            Form::Body => self.scanner.is_done(),
            Form::Stream => self.reader.is_finished(),
        }
    }

    /// What the answer has used so far. A report of nothing is none: it may be taken back by what follows.
    pub fn running(&self) -> Running<'_> {
        let report = self.reader.usage();
        let output_seen = self.output_seen();
        let is_missing = !report.is_present || report.is_zero();
        let raised = |usage: Usage| Usage { output: usage.output.max(output_seen.get()), ..usage };
        Running {
            usage: (!is_missing).then(|| raised(report.usage)),
            output_seen,
            model: self.reader.seen.model.as_deref(),
            service_tier: self.reader.service_tier(),
        }
    }

    /// The answer has ended, one way or another.
    pub fn finish(&mut self) -> Metered {
        let (scanner, reader) = (&mut self.scanner, &mut self.reader);
        if self.form == Form::Body {
            scanner.cut(reader);
        } else {
            self.sse.finish(|event| match event {
                // An event without its blank line counts only if nothing of it is missing; of a large one all
                // that came was seen.
                Event::Data(data) if !is_whole(data) => {}
                Event::End if !scanner.is_done() => scanner.cut(reader),
                event => reader.event(event, scanner),
            });
        }
        if !self.is_billed {
            return Metered::unbilled();
        }
        let report = self.reader.usage();
        let seen = &self.reader.seen;
        let is_ended = match self.form {
            Form::Body => self.scanner.is_done(),
            Form::Stream => self.reader.is_ended(),
        };
        let end = match (seen.has_error, is_ended) {
            (true, _) => StreamEnd::Error,
            (false, true) => StreamEnd::Complete,
            (false, false) => StreamEnd::Cut,
        };
        let (is_usage_final, is_finished) = match self.form {
            Form::Body => (is_ended, is_ended),
            Form::Stream => (self.reader.is_usage_final(), self.reader.is_finished()),
        };
        let is_missing = !report.is_present || (report.is_zero() && seen.has_content);
        Metered {
            usage: if is_missing { Reported::Missing } else { Reported::Usage(report.usage) },
            is_final: is_usage_final && !is_missing && !seen.has_unread_usage && !report.has_unread_count,
            model: seen.model.clone(),
            service_tier: self.reader.service_tier(),
            others: report.others,
            output_seen: seen.output(self.family, None),
            content_seen: seen.has_content,
            end,
            is_finished,
            is_contradictory: report.is_contradictory || seen.has_unread_name,
            has_unread: seen.has_unread,
        }
    }

    /// Tells the form by the first byte that is not white space. JSON objects begin with a brace, and
    /// no line of an event stream does. Returns the piece from where reading begins.
    fn recognise<'p>(&mut self, piece: &'p [u8]) -> Option<&'p [u8]> {
        let at =
            piece.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0xEF | 0xBB | 0xBF))?;
        self.form = match (piece[at], self.form) {
            (b'{', _) => Form::Body,
            (b'd' | b'e' | b':', _) => Form::Stream,
            (_, announced) => announced,
        };
        self.form_is_known = true;
        Some(&piece[at..])
    }
}

impl Metered {
    /// A call that costs nothing used nothing.
    fn unbilled() -> Self {
        Self {
            usage: Reported::Usage(Usage::default()),
            is_final: true,
            model: None,
            service_tier: None,
            others: Vec::new(),
            output_seen: Tokens::ZERO,
            content_seen: false,
            end: StreamEnd::Complete,
            is_finished: true,
            is_contradictory: false,
            has_unread: false,
        }
    }
}

/// Whether `data` is one whole JSON object, or no JSON at all (`[DONE]`).
fn is_whole(data: &[u8]) -> bool {
    !data.starts_with(b"{") || serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok()
}

/// A reported usage, normalised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) usage: Usage,
    pub(crate) others: Vec<ModelUsage>,
    pub(crate) is_present: bool,
    pub(crate) is_contradictory: bool,
    /// A count was no number that could be one: what it stands for is not in `usage`.
    pub(crate) has_unread_count: bool,
}

impl Report {
    fn is_zero(&self) -> bool {
        self.usage == Usage::default() && self.others.is_empty()
    }
}

/// What every protocol's reader notes while an answer passes.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) model: Option<String>,
    pub(crate) text: TextSizes,
    /// Pieces of content: each is at least a token.
    pub(crate) pieces: u64,
    /// Usages that were reported.
    pub(crate) reports: u64,
    pub(crate) has_content: bool,
    pub(crate) has_error: bool,
    pub(crate) has_unread: bool,
    /// A usage was too large to be read: what was reported before it is not the last word.
    pub(crate) has_unread_usage: bool,
    /// A name was too long, or no string.
    pub(crate) has_unread_name: bool,
}

impl Seen {
    /// Notes a string of content.
    pub(crate) fn content(&mut self, run: Run) {
        if !run.is_empty() {
            self.text.add_run(run);
            self.pieces = self.pieces.saturating_add(1);
            self.has_content = true;
        }
    }

    /// Notes the model; the last one that has a name counts.
    pub(crate) fn model(&mut self, json: &[u8]) {
        if json != b"\"\"" {
            self.has_unread_name |= name::replace::<MAX_MODEL_BYTES>(&mut self.model, json);
        }
    }

    /// With the string that is still being counted, if there is one.
    fn output(&self, family: Family, open: Option<Run>) -> Tokens {
        let (mut text, mut pieces) = (self.text, self.pieces);
        if let Some(run) = open.filter(|run| !run.is_empty()) {
            text.add_run(run);
            pieces = pieces.saturating_add(1);
        }
        Tokens::new(family.text_ratio().tokens(&text).max(pieces))
    }
}

/// The reader of the answer's protocol.
#[derive(Debug)]
struct Reader {
    seen: Seen,
    protocol: ProtocolReader,
    /// Within an event that comes in parts: how many pieces of content there were before it.
    pieces_before: Option<u64>,
}

#[derive(Debug)]
enum ProtocolReader {
    Anthropic(anthropic::Reader),
    OpenAi(openai::Reader),
}

impl Reader {
    fn new(protocol: Protocol, facts: &RequestFacts) -> Self {
        let protocol = match protocol {
            Protocol::Anthropic => ProtocolReader::Anthropic(anthropic::Reader::new(facts)),
            Protocol::OpenAi => ProtocolReader::OpenAi(openai::Reader::new(facts)),
        };
        Self { seen: Seen::default(), protocol, pieces_before: None }
    }

    fn event(&mut self, event: Event<'_>, scanner: &mut Scanner) {
        match event {
            Event::Data(b"[DONE]") => {
                if let ProtocolReader::OpenAi(reader) = &mut self.protocol {
                    reader.done();
                }
            }
            Event::Data(data) => {
                let pieces = self.seen.pieces;
                scanner.scan(data, self);
                self.end_event(self.seen.pieces != pieces);
            }
            Event::Part(part) => {
                if self.pieces_before.is_none() {
                    self.pieces_before = Some(self.seen.pieces);
                    scanner.restart();
                }
                scanner.feed(part, self);
            }
            Event::End => {
                scanner.cut(self);
                let before = self.pieces_before.take();
                self.end_event(before.is_some_and(|before| before != self.seen.pieces));
            }
        }
    }

    fn end_event(&mut self, has_content: bool) {
        match &mut self.protocol {
            ProtocolReader::Anthropic(reader) => reader.end_event(has_content),
            ProtocolReader::OpenAi(reader) => reader.end_event(has_content),
        }
    }

    fn usage(&self) -> Report {
        match &self.protocol {
            ProtocolReader::Anthropic(reader) => reader.report(self.seen.model.as_deref()),
            ProtocolReader::OpenAi(reader) => reader.report(),
        }
    }

    fn is_ended(&self) -> bool {
        match &self.protocol {
            ProtocolReader::Anthropic(reader) => reader.is_ended(),
            ProtocolReader::OpenAi(reader) => reader.is_ended(),
        }
    }

    fn is_finished(&self) -> bool {
        match &self.protocol {
            ProtocolReader::Anthropic(reader) => reader.is_finished(),
            ProtocolReader::OpenAi(reader) => reader.is_finished(),
        }
    }

    fn is_usage_final(&self) -> bool {
        match &self.protocol {
            ProtocolReader::Anthropic(reader) => reader.is_usage_final(),
            ProtocolReader::OpenAi(reader) => reader.is_usage_final(),
        }
    }

    fn service_tier(&self) -> Option<String> {
        match &self.protocol {
            ProtocolReader::Anthropic(reader) => reader.service_tier(),
            ProtocolReader::OpenAi(reader) => reader.service_tier(),
        }
    }
}

impl Handler for Reader {
    fn want(&self, path: &[Name]) -> Want {
        match &self.protocol {
            ProtocolReader::Anthropic(reader) => reader.want(path),
            ProtocolReader::OpenAi(reader) => reader.want(path),
        }
    }

    fn kept(&mut self, path: &[Name], json: &[u8]) {
        match &mut self.protocol {
            ProtocolReader::Anthropic(reader) => reader.kept(path, json, &mut self.seen),
            ProtocolReader::OpenAi(reader) => reader.kept(path, json, &mut self.seen),
        }
    }

    fn too_large(&mut self, path: &[Name]) {
        self.seen.has_unread = true;
        match path {
            [.., Name::Usage] => self.seen.has_unread_usage = true,
            [Name::Error] => self.seen.has_error = true,
            [.., Name::Model | Name::ServiceTier] => self.seen.has_unread_name = true,
            _ => {}
        }
    }

    fn counted(&mut self, _: &[Name], run: Run) {
        self.seen.content(run);
    }
}
