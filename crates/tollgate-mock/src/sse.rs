//! Server-sent events as text.

use crate::behaviour::Framing;

/// One event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    /// The `event:` field, which Anthropic sends and OpenAI does not.
    pub(crate) name: Option<&'static str>,
    /// One line.
    pub(crate) data: String,
    /// Whether it carries a part of the answer's text; these are what output tokens are billed by when a
    /// stream breaks off.
    pub(crate) is_content: bool,
}

impl Event {
    pub(crate) fn frame(name: Option<&'static str>, data: String) -> Self {
        Self { name, data, is_content: false }
    }

    pub(crate) fn content(name: Option<&'static str>, data: String) -> Self {
        Self { name, data, is_content: true }
    }

    pub(crate) fn render(&self, framing: Framing) -> String {
        let (space, line_end) = match framing {
            Framing::Lf => (" ", "\n"),
            Framing::CrLf => (" ", "\r\n"),
            Framing::Cr => (" ", "\r"),
            Framing::NoSpace => ("", "\n"),
        };
        let data = &self.data;
        match self.name {
            Some(name) => {
                format!("event:{space}{name}{line_end}data:{space}{data}{line_end}{line_end}")
            }
            None => format!("data:{space}{data}{line_end}{line_end}"),
        }
    }
}
