//! One recorded exchange and what it must settle as.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate_pricing::Usage;
use tollgate_providers::{
    Call, Endpoint, Meter, Metered, Protocol, Reported, RequestError, RequestFacts, StreamEnd, inspect,
};

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) is_stream: bool,
    pub(crate) status: u64,
    pub(crate) facts: Result<RequestFacts, RequestError>,
    pub(crate) body: Vec<u8>,
    pub(crate) expected: Settled,
}

/// How an exchange is settled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Settled {
    /// By the usage reported.
    Usage { usage: Usage, others: Vec<(String, Usage)>, tier: Option<String> },
    /// No usage was reported: by the estimate.
    Estimate,
    /// It broke off: by what was seen, at least the estimate.
    Partial,
    /// The provider answered with an error: nothing.
    Free,
    /// The call is not billed.
    CountOnly,
}

pub(crate) fn root() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("TOLLGATE_CAPTURES").map(PathBuf::from);
    let root = named.unwrap_or_else(|| workspace.join("../shared/data/captures"));
    root.join("anthropic").is_dir().then_some(root)
}

pub(crate) fn all(folder: &Path, protocol: Protocol) -> Vec<Case> {
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders.iter().map(|folder| Case::read(folder, protocol)).collect()
}

impl Case {
    fn read(folder: &Path, protocol: Protocol) -> Self {
        let file = |name: &str| std::fs::read(folder.join(name)).unwrap();
        let expected: Value = serde_json::from_slice(&file("expected.json")).unwrap();
        let note = String::from_utf8(file("NOTE")).unwrap();
        let call = match protocol {
            Protocol::Anthropic if note.contains("/count_tokens") => Call::CountTokens,
            Protocol::Anthropic => Call::Messages,
            _ => Call::ChatCompletions,
        };
        let endpoint = Endpoint { protocol, call };
        let request = file("request.json");
        let has_request = request.trim_ascii() != b"null";
        Self {
            name: folder.display().to_string(),
            endpoint,
            is_stream: expected["stream"] == true,
            status: expected["status"].as_u64().unwrap(),
            facts: if has_request { inspect(endpoint, &request) } else { Ok(RequestFacts::default()) },
            body: file("response.body"),
            expected: Settled::from_expected(&expected),
        }
    }

    pub(crate) fn facts(&self) -> RequestFacts {
        self.facts.clone().unwrap_or_default()
    }

    /// All that the meter says, for comparison.
    pub(crate) fn meter<'p>(&self, pieces: impl IntoIterator<Item = &'p [u8]>) -> String {
        if self.is_batch() {
            return format!("{:?}", self.settle(pieces));
        }
        format!("{:?}", self.metered(pieces))
    }

    fn metered<'p>(&self, pieces: impl IntoIterator<Item = &'p [u8]>) -> Metered {
        let mut meter = Meter::new(self.endpoint, &self.facts(), self.is_stream);
        for piece in pieces {
            meter.feed(piece);
        }
        meter.finish()
    }

    fn is_batch(&self) -> bool {
        self.name.ends_with("batch_results_jsonl")
    }

    /// How the exchange is settled: the rule of the table in the specification, §4.
    pub(crate) fn settle<'p>(&self, pieces: impl IntoIterator<Item = &'p [u8]>) -> Settled {
        if self.status >= 400 {
            return Settled::Free;
        }
        if self.is_batch() {
            let file: Vec<u8> = pieces.into_iter().flatten().copied().collect();
            return Settled::Usage {
                usage: self.batch_usage(&file),
                others: Vec::new(),
                tier: Some("batch".to_owned()),
            };
        }
        if !self.endpoint.is_billed() {
            return Settled::CountOnly;
        }
        let metered = self.metered(pieces);
        match metered.usage {
            Reported::Usage(usage) if metered.end == StreamEnd::Complete && metered.is_final => {
                Settled::Usage {
                    usage,
                    others: metered.others.into_iter().map(|other| (other.model, other.usage)).collect(),
                    tier: metered.service_tier.filter(|tier| !is_standard(tier)),
                }
            }
            Reported::Missing if metered.end == StreamEnd::Complete => Settled::Estimate,
            _ => Settled::Partial,
        }
    }

    /// The usage of a batch's results: one JSON object a line. A line that was cut off counts nothing.
    fn batch_usage(&self, file: &[u8]) -> Usage {
        let mut sum = Usage::default();
        for line in file.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
            let message = line["result"]["message"].to_string();
            let Reported::Usage(usage) = self.metered([message.as_bytes()]).usage else { continue };
            sum.input += usage.input;
            sum.cache_read += usage.cache_read;
            sum.cache_write_5m += usage.cache_write_5m;
            sum.cache_write_1h += usage.cache_write_1h;
            sum.output += usage.output;
            sum.reasoning += usage.reasoning;
        }
        sum
    }

    /// For a settlement of less than the whole answer.
    pub(crate) fn is_at_most_expected(&self, cut: &Settled) -> bool {
        match (&self.expected, cut) {
            (_, Settled::Partial) => true,
            // The end was seen, but for what has no part in the settlement.
            (Settled::Usage { usage: whole, .. }, Settled::Usage { usage, .. }) => {
                usage == whole || (self.is_batch() && usage.total() <= whole.total())
            }
            (_, other) => panic!("{}: {other:?}", self.name),
        }
    }
}

/// Tiers that do not change the price. `us` and the like would.
fn is_standard(tier: &str) -> bool {
    matches!(tier, "standard" | "default")
}

impl Settled {
    fn from_expected(expected: &Value) -> Self {
        match expected["settle"].as_str().unwrap() {
            "usage" => Self::Usage {
                usage: usage_of(expected),
                others: others_of(expected),
                tier: expected["tier"].as_str().map(str::to_owned),
            },
            "estimate" => Self::Estimate,
            "partial" => Self::Partial,
            "free" => Self::Free,
            "count_only" => Self::CountOnly,
            other => panic!("unknown settlement {other}"),
        }
    }
}

fn usage_of(expected: &Value) -> Usage {
    let tokens = |name: &str| expected["tokens"][name].as_u64().unwrap_or(0);
    let subset = |name: &str| expected["subsets"][name].as_u64().unwrap_or(0);
    let tool = |name: &str| expected["server_tools"][name].as_u64().unwrap_or(0);
    Usage {
        input: tokens("input"),
        cache_read: tokens("cache_read"),
        cache_write_5m: tokens("cache_write_5m"),
        cache_write_1h: tokens("cache_write_1h"),
        cache_write: tokens("cache_write"),
        output: tokens("output"),
        reasoning: subset("reasoning"),
        audio_input: subset("audio_in"),
        image_input: subset("image_in"),
        audio_output: subset("audio_out"),
        image_output: subset("image_out"),
        web_searches: tool("web_search"),
        web_fetches: tool("web_fetch"),
        ..Usage::default()
    }
}

fn others_of(expected: &Value) -> Vec<(String, Usage)> {
    let others = expected["billed_other_models"].as_array().cloned().unwrap_or_default();
    let of = |other: &Value| {
        let count = |name: &str| other[name].as_u64().unwrap_or(0);
        let usage = Usage { input: count("input"), output: count("output"), ..Usage::default() };
        (other["model"].as_str().unwrap().to_owned(), usage)
    };
    others.iter().map(of).collect()
}
