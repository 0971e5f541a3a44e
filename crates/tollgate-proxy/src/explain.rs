//! What would become of one request, without sending it or asking a store: the decisions of the request
//! path, made by the same functions and shown.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tollgate_limiter::{Amount, ReservationId, TimestampMs, Tokens};
use tollgate_pricing::{Class, ModelPrice, PicoUsd, Usage};
use tollgate_providers::{Protocol, RequestFacts, estimate_input, input_parts};

use crate::{
    attributes,
    estimates::Estimates,
    policy::{AppliedLimit, KeyLimit, Policy},
    quote::{Asked, Judged},
    refuse::Refused,
    request, route, session,
};

/// A request to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The id of the key it would come with.
    pub key: &'a str,
    /// Its path; `None`: guessed from the body.
    pub path: Option<&'a str>,
    /// Its further headers: a session, attributes.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// Its body.
    pub body: &'a [u8],
}

/// What would become of a request.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The path it is for.
    pub path: String,
    /// The protocol that the path belongs to.
    pub protocol: &'static str,
    /// The models it names, its own first.
    pub models: Vec<ExplainedModel>,
    /// The id of the provider it goes to.
    pub provider: Arc<str>,
    /// The session it belongs to, and whether that was derived from its prompt; `None`: to none.
    pub session: Option<(Arc<str>, bool)>,
    /// The estimate of its input, part by part; parts without tokens are left out.
    pub input: Vec<(&'static str, Tokens)>,
    /// The estimate of its input: the sum of its parts.
    pub uncorrected_input_tokens: Tokens,
    /// What is reserved: the input's estimate, corrected by what the tenant's earlier calls have taught. A call
    /// of a running agent loop is estimated from the call before it, which nobody but the proxy knows.
    pub input_tokens: Tokens,
    /// What is reserved: output.
    pub output_tokens: Tokens,
    /// What is reserved: money.
    pub cost: PicoUsd,
    /// Whether its output limit is lowered where a hard budget does not afford it (`reservation.fit`).
    pub fits: bool,
    /// The output tokens by which its reservation grows if its stream uses more; `None` where nothing grows.
    pub extended_by: Option<Tokens>,
    /// Every limit it meets, in the order of the plan, with what it would add.
    pub limits: Vec<ExplainedLimit>,
}

/// A model that a request names.
#[derive(Clone, Debug)]
pub struct ExplainedModel {
    /// As the request names it.
    pub name: String,
    /// The row of the price table; `None`: it has no price.
    pub priced_as: Option<String>,
    /// The prices that hold for a request of this size and tier: class, USD for one unit, the unit.
    pub prices: Vec<(&'static str, PicoUsd, &'static str)>,
}

/// A limit that a request meets.
#[derive(Clone, Debug)]
pub struct ExplainedLimit {
    /// The limit, with the value of its scope.
    pub limit: KeyLimit,
    /// What the request would add to its counter, in the limit's unit.
    pub charge: Amount,
}

/// A request that is refused whatever its counters say.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{status} {reason}: {message}")]
pub struct Unexplained {
    /// The status of the answer.
    pub status: u16,
    /// What `x-tollgate-reason` says.
    pub reason: &'static str,
    /// What the client is told.
    pub message: String,
}

impl From<Refused> for Unexplained {
    fn from(refused: Refused) -> Self {
        Self { status: refused.kind.status(), reason: refused.reason, message: refused.message }
    }
}

/// Decides a request as the request path does, up to the store.
pub(crate) fn explain(
    policy: &Policy,
    estimates: &Estimates,
    question: &Question<'_>,
    at: TimestampMs,
) -> Result<Explanation, Unexplained> {
    let key = policy.key_named(question.key).ok_or_else(|| Unexplained {
        status: 401,
        reason: "unauthenticated",
        message: format!("No key has the id `{}`.", question.key),
    })?;
    let headers: HeaderMap = question.headers.iter().cloned().collect();
    let path = question.path.unwrap_or_else(|| guessed_path(policy, question.body));
    let routed = route::route(policy, &Method::POST, path, route::protocol_hint(&headers))?;
    let session = session::named(&headers)?;
    let facts = request::facts(routed.endpoint, question.body)?.unwrap_or_default();
    request::check_models(key, &facts)?;
    let caller = attributes::from_caller(key, &headers, facts.user.as_deref())?;
    let session = session.or_else(|| session::of_body(policy.sessions, key, &caller, &facts));
    let provider = routed.provider(policy, &facts.model)?;
    let asked = Asked {
        request_id: ReservationId::new(0),
        key,
        caller: &caller,
        session: session.as_ref().map(|session| &*session.id),
        provider,
        endpoint: routed.endpoint,
        facts: Some(&facts),
        estimates,
    };
    let judged = Judged::new(policy, &asked, at)?;
    let plan = judged.plan()?;
    let reserved = judged.quote.reserved;
    let limits = judged.limits.iter().zip(plan.charges());
    let parts = input_parts(&facts).into_iter().filter(|(_, tokens)| *tokens > 0 && judged.quote.billed);
    let uncorrected = if judged.quote.billed { estimate_input(&facts) } else { Tokens::ZERO };
    Ok(Explanation {
        path: path.to_owned(),
        protocol: routed.endpoint.protocol.name(),
        models: std::iter::once(&facts.model)
            .chain(&facts.other_models)
            .map(|name| ExplainedModel::new(policy, name, &facts, reserved.input_tokens, at))
            .collect(),
        provider: provider.clone(),
        session: session.map(|session| (session.id, session.derived)),
        input: parts.map(|(part, tokens)| (part, Tokens::new(tokens))).collect(),
        uncorrected_input_tokens: uncorrected,
        input_tokens: Tokens::new(reserved.input_tokens),
        output_tokens: Tokens::new(reserved.output_tokens),
        cost: reserved.cost,
        fits: policy.fit && judged.limits.iter().any(AppliedLimit::grows_with_output),
        extended_by: (facts.stream && judged.grows()).then_some(policy.extend_tokens),
        limits: limits.map(|(limit, charge)| ExplainedLimit::new(limit, charge)).collect(),
    })
}

impl ExplainedModel {
    fn new(policy: &Policy, name: &str, facts: &RequestFacts, input_tokens: u64, at: TimestampMs) -> Self {
        let price = policy.prices.lookup(name, at);
        Self {
            name: name.to_owned(),
            priced_as: price.map(|price| price.id().to_owned()),
            prices: price.map(|price| prices(price, facts, input_tokens)).unwrap_or_default(),
        }
    }
}

/// The prices for a request with so much input: those of a usage that has a little of every class.
fn prices(
    price: &ModelPrice,
    facts: &RequestFacts,
    input_tokens: u64,
) -> Vec<(&'static str, PicoUsd, &'static str)> {
    let audio = u64::from(facts.audio);
    let usage = Usage {
        input: input_tokens.saturating_sub(3).max(1),
        cache_read: 1,
        cache_write_5m: 1,
        cache_write_1h: 1,
        output: 2,
        reasoning: 1,
        audio_input: audio,
        audio_output: audio,
        web_searches: facts.web_searches_max.unwrap_or(0),
        ..Usage::default()
    };
    let bill = price.bill(&usage, facts.service_tier.as_deref());
    let line = |class: Class, price: PicoUsd| (class.name(), price, class.unit().name());
    bill.lines.iter().filter_map(|each| Some(line(each.class, each.price?))).collect()
}

impl ExplainedLimit {
    fn new(limit: &AppliedLimit, charge: Amount) -> Self {
        Self { limit: KeyLimit::new(&limit.rule, Some(&limit.id)), charge }
    }
}

/// The path of a body's call: by the protocol that is configured, if there is one only, by the route and
/// the price of its model, by a field that only one protocol has.
fn guessed_path(policy: &Policy, body: &[u8]) -> &'static str {
    let fields: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let model = fields.get("model").and_then(serde_json::Value::as_str).unwrap_or_default();
    let of_provider = |id: &str| {
        policy.providers.iter().find(|provider| &*provider.id == id).map(|provider| provider.protocol)
    };
    let only = policy.providers.first().map(|first| first.protocol);
    let only = only.filter(|only| policy.providers.iter().all(|provider| provider.protocol == *only));
    let by_price = || {
        let row = policy.prices.models().find(|price| price.id() == model)?;
        (row.provider()? == "anthropic").then_some(Protocol::Anthropic)
    };
    let by_field = || fields.get("system").map(|_| Protocol::Anthropic);
    let by_route = || policy.route(model).and_then(of_provider);
    match only.or_else(by_route).or_else(by_price).or_else(by_field) {
        Some(Protocol::Anthropic) => "/v1/messages",
        _ => "/v1/chat/completions",
    }
}
