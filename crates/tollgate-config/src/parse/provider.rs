//! `[[providers]]` and `[[routes]]`.

use std::sync::Arc;
use std::time::Duration;

use super::context::{Context, Distinct};
use crate::nearest::nearest;
use crate::section::{Field, Section};
use crate::{BaseUrl, Protocol, Provider, Route, Secret};

const DAY_SECONDS: u64 = 86_400;

/// A provider the file names, with whatever else is wrong with it.
pub(super) struct Declared {
    pub(super) id: Option<Arc<str>>,
    /// `None`: something is wrong with it.
    pub(super) provider: Option<Provider>,
}

pub(super) fn providers(context: &Context<'_>, root: &Section<'_>) -> Vec<Declared> {
    let sections = root.tables("providers");
    if sections.is_empty() {
        context.problems.error(&root.place_of("providers"), "at least one [[providers]] is needed");
    }
    let mut ids = Distinct::new();
    let declared = |section: Section<'_>| {
        let id = context.id(&section);
        if let Some(id) = &id {
            ids.check(context.problems, Arc::clone(id), &section.place_of("id"), "this id");
        }
        let provider = provider(context, &section, id.as_ref());
        section.finish();
        Declared { id, provider }
    };
    sections.into_iter().map(declared).collect()
}

fn provider(context: &Context<'_>, section: &Section<'_>, id: Option<&Arc<str>>) -> Option<Provider> {
    let protocol = section.required("protocol").and_then(|field| protocol(&field));
    let base_url = section.required("base_url").and_then(|field| base_url(context, &field));
    let api_key = api_key(context, section);
    let usage_in_stream = section.field("usage_in_stream");
    if let Some(field) = usage_in_stream.as_ref().filter(|_| protocol == Some(Protocol::Anthropic)) {
        field.fail("is for protocol = \"openai\" only");
    }
    let usage_in_stream = usage_in_stream.and_then(|field| field.boolean()).unwrap_or(true);
    let ca_pem = section.field("ca_file").and_then(|field| ca_pem(context, &field));
    let connect_timeout = Duration::from_millis(section.integer("connect_timeout_ms", 1..=600_000, 10_000));
    let response_timeout =
        Duration::from_secs(section.integer("response_timeout_seconds", 1..=DAY_SECONDS, 600));
    let idle_timeout = Duration::from_secs(section.integer("idle_timeout_seconds", 1..=DAY_SECONDS, 600));
    let (protocol, base_url) = (protocol?, base_url?);
    Some(Provider {
        id: Arc::clone(id?),
        protocol,
        base_url,
        api_key,
        usage_in_stream: usage_in_stream && protocol == Protocol::OpenAi,
        ca_pem,
        connect_timeout,
        response_timeout,
        idle_timeout,
    })
}

fn protocol(field: &Field<'_>) -> Option<Protocol> {
    if field.value().as_str() == Some("gemini") {
        field.fail("\"gemini\" is not available in this version; available: \"anthropic\", \"openai\"");
        return None;
    }
    field.choice(&[("anthropic", Protocol::Anthropic), ("openai", Protocol::OpenAi)])
}

fn base_url(context: &Context<'_>, field: &Field<'_>) -> Option<BaseUrl> {
    // The text is not repeated: a URL may hold a credential.
    let url = BaseUrl::parse(field.text()?).map_err(|message| field.fail(message)).ok()?;
    if url.path_prefix().ends_with("/v1") {
        context.problems.warn(
            field.place(),
            "ends in `/v1`, which requests have in their own path: it will be there twice",
        );
    }
    Some(url)
}

fn api_key(context: &Context<'_>, section: &Section<'_>) -> Option<Secret> {
    let (variable, file) = (section.field("api_key_env"), section.field("api_key_file"));
    if let (Some(_), Some(file)) = (&variable, &file) {
        file.fail("`api_key_env` is there too: only one of them is possible");
        return None;
    }
    let from_file = || file.as_ref().and_then(|field| context.secret_from_file(field));
    variable.as_ref().and_then(|field| context.secret_from_variable(field)).or_else(from_file)
}

fn ca_pem(context: &Context<'_>, field: &Field<'_>) -> Option<Arc<[u8]>> {
    let content = context.file(field)?;
    let marker = b"-----BEGIN CERTIFICATE-----";
    if !content.windows(marker.len()).any(|window| window == marker) {
        field.fail("the file has no PEM certificate");
        return None;
    }
    Some(content.into())
}

pub(super) fn routes(context: &Context<'_>, root: &Section<'_>, providers: &[Declared]) -> Vec<Route> {
    let known: Vec<&str> = providers.iter().filter_map(|declared| declared.id.as_deref()).collect();
    let route = |section: Section<'_>| {
        let models = section.required("models").and_then(|field| context.globs(&field));
        let provider = section.required("provider").and_then(|field| provider_id(&field, &known));
        section.finish();
        Some(Route { models: models?, provider: provider? })
    };
    let routes: Vec<_> = root.tables("routes").into_iter().filter_map(route).collect();
    if routes.is_empty() {
        warn_of_unreachable(context, root, providers);
    }
    routes
}

fn provider_id(field: &Field<'_>, known: &[&str]) -> Option<Arc<str>> {
    let id = field.text()?;
    if known.contains(&id) {
        return Some(id.into());
    }
    let hint = nearest(id, known).map_or_else(String::new, |near| format!("; the nearest one is {near:?}"));
    field.fail(format!("no provider has the id {id:?}{hint}"));
    None
}

/// Without routes a call goes to the only provider of its protocol: with two there is no such one.
fn warn_of_unreachable(context: &Context<'_>, root: &Section<'_>, providers: &[Declared]) {
    for (position, declared) in providers.iter().enumerate() {
        let Some(provider) = &declared.provider else { continue };
        let same = |other: &&Declared| {
            other.provider.as_ref().is_some_and(|other| other.protocol == provider.protocol)
        };
        if let Some(first) = providers.iter().take(position).find(same).and_then(|first| first.id.as_deref())
        {
            let message = format!(
                "{:?} and {first:?} speak the same protocol and there are no [[routes]]: only calls that name a provider in their path reach one",
                provider.id
            );
            context.problems.warn(&root.place_of("providers"), message);
            return;
        }
    }
}
