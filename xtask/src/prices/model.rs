//! What the table says about one model, made from what the map says.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use tollgate_pricing::{Class, Decimal, Unit};

use super::Notes;
use super::map::{self, Entry, token_field};

/// Google's cloud: the same models under the same ids, at times at other prices.
pub(super) const VERTEX: &str = "vertex_ai";

/// Prices as the table writes them: USD per million tokens, per minute, per piece.
pub(super) type Prices = BTreeMap<Class, Decimal>;

/// A price set with its context steps.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Set {
    pub(super) prices: Prices,
    pub(super) context: BTreeMap<u64, Prices>,
}

/// A row.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Model {
    pub(super) provider: String,
    pub(super) standard: Set,
    pub(super) tiers: BTreeMap<&'static str, Set>,
    pub(super) multipliers: BTreeMap<String, Decimal>,
    pub(super) max_input_tokens: Option<Decimal>,
    pub(super) max_output_tokens: Option<Decimal>,
    pub(super) cache_auto: bool,
    pub(super) aliases: BTreeSet<String>,
    pub(super) patterns: BTreeSet<String>,
}

impl Model {
    /// The row of an entry; `None` if it is another provider's, or nothing that the table can price.
    pub(super) fn from_entry(
        entry: &Entry,
        notes: &mut Notes,
    ) -> Result<Option<(String, Self)>, Box<dyn Error>> {
        let Some((provider, id)) = provider_and_id(entry) else { return Ok(None) };
        if entry.mode == "video_generation" || id.contains('/') {
            notes.add("left out, a kind of price that the table has no field for", id);
            return Ok(None);
        }
        let mut model = Self { provider: provider.to_owned(), ..Self::default() };
        model.take_token_prices(entry, notes)?;
        model.take_other_prices(entry)?;
        if model.standard.prices.is_empty() {
            notes.add("left out, no price", id);
            return Ok(None);
        }
        let mut paid = model.standard.prices.iter().filter(|(_, price)| **price != Decimal::ZERO);
        if paid.all(|(class, _)| *class == Class::WebSearch) && entry.mode == "chat" {
            notes.add("left out, a price of 0 that would make a chat model free", id);
            return Ok(None);
        }
        model.drop_partial(id, notes);
        model.fill();
        model.take_facts(entry, id);
        Ok(Some((id.to_owned(), model)))
    }

    fn take_token_prices(&mut self, entry: &Entry, notes: &mut Notes) -> Result<(), Box<dyn Error>> {
        for (name, usd) in entry.costs() {
            let Some(field) = token_field(name) else {
                if name.contains("token") {
                    notes.add(format!("not carried over, {}", map::kind(name)), &entry.id);
                }
                continue;
            };
            let price = usd.times(Decimal::from_scaled(1_000_000, 0))?;
            let set = match field.tier {
                Some(tier) => self.tiers.entry(tier).or_default(),
                None => &mut self.standard,
            };
            let prices = match field.above {
                Some(above) => set.context.entry(above).or_default(),
                None => &mut set.prices,
            };
            prices.insert(field.class, price);
        }
        Ok(())
    }

    fn take_other_prices(&mut self, entry: &Entry) -> Result<(), Box<dyn Error>> {
        let prices = &mut self.standard.prices;
        let tokens_cost = prices.values().any(|price| *price != Decimal::ZERO);
        if let Some(usd) = entry.number("input_cost_per_character").filter(|usd| *usd != Decimal::ZERO) {
            prices.insert(Class::Characters, usd.times(Decimal::from_scaled(1_000_000, 0))?);
        }
        // A transcription says the same price of its audio on both sides; speech only on the way out.
        let second = match entry.mode.as_str() {
            "audio_transcription" | "realtime" => entry.number("input_cost_per_second"),
            "audio_speech" => entry.number("output_cost_per_second"),
            _ => None,
        };
        if let Some(usd) = second {
            prices.insert(Class::Audio, per_minute(usd)?);
        }
        // Where the output has token prices the price of an image is the same money said twice.
        if let Some(usd) = entry.number("output_cost_per_image").filter(|_| !tokens_cost) {
            let class = if entry.mode == "image_generation" { Class::Image } else { Class::Request };
            prices.insert(class, usd);
        }
        let searches = entry.numbers("search_context_cost_per_query");
        if let Some(usd) = searches.into_values().reduce(dearer) {
            prices.insert(Class::WebSearch, usd);
        }
        if self.provider == "anthropic" {
            // $10 per 1,000 searches on every model, fetches free: the map leaves it out of some rows.
            prices.entry(Class::WebSearch).or_insert(Decimal::from_scaled(1, 2));
            prices.insert(Class::WebFetch, Decimal::ZERO);
        }
        Ok(())
    }

    fn take_facts(&mut self, entry: &Entry, id: &str) {
        for (name, factor) in entry.numbers("provider_specific_entry") {
            if matches!(name.as_str(), "us" | "fast") {
                self.multipliers.insert(name, factor);
            }
        }
        for (name, field) in [
            ("us", "regional_processing_uplift_multiplier_us"),
            ("eu", "regional_processing_uplift_multiplier_eu"),
            ("fedramp", "fedramp_uplift_multiplier"),
        ] {
            if let Some(factor) = entry.number(field) {
                self.multipliers.insert(name.to_owned(), factor);
            }
        }
        let positive = |name: &str| entry.number(name).filter(|count| *count != Decimal::ZERO);
        self.max_input_tokens = positive("max_input_tokens");
        self.max_output_tokens = positive("max_output_tokens");
        // OpenAI writes to its cache unasked; the others when the request marks what to keep.
        self.cache_auto = self.provider == "openai" && self.standard.prices.contains_key(&Class::CacheWrite);
        if id.starts_with("ft:") {
            // A fine-tuned model's id goes on with the owner's name: `ft:gpt-4o-2024-08-06:acme::id`.
            self.patterns.insert(format!("{id}:*"));
        }
    }

    /// Drops the tiers and steps that the map has no input price for: nothing says what the rest of a
    /// request costs there. Such a tier is reported as unknown, such a step is never reached.
    fn drop_partial(&mut self, id: &str, notes: &mut Notes) {
        let steps = self.standard.context.len();
        self.standard.context.retain(|_, step| step.contains_key(&Class::Input));
        if self.standard.context.len() < steps {
            notes.add("not carried over, a context step without an input price", id);
        }
        let tiers = self.tiers.len();
        self.tiers.retain(|_, tier| tier.prices.contains_key(&Class::Input));
        if self.tiers.len() < tiers {
            notes.add("not carried over, a tier without an input price", id);
        }
    }

    /// Completes the sets: providers publish a tier or a context step as "half" or "double", and
    /// the map leaves out some of the classes and steps that follow from it.
    fn fill(&mut self) {
        let base = &self.standard.prices;
        for step in self.standard.context.values_mut() {
            complete(step, base);
        }
        for tier in self.tiers.values_mut() {
            complete(&mut tier.prices, base);
            for (above, standard) in &self.standard.context {
                let step = tier.context.entry(*above).or_default();
                for class in [Class::Input, Class::Output] {
                    if let Some(price) =
                        scaled(standard.get(&class), tier.prices.get(&class), base.get(&class))
                    {
                        step.entry(class).or_insert(price);
                    }
                }
                complete(step, standard);
            }
        }
        drop_usual(&mut self.standard);
        self.tiers.values_mut().for_each(drop_usual);
    }

    /// Whether every request costs the same by both.
    pub(super) fn costs_like(&self, other: &Self) -> bool {
        self.standard == other.standard && self.tiers == other.tiers && self.multipliers == other.multipliers
    }
}

fn provider_and_id(entry: &Entry) -> Option<(&'static str, &str)> {
    let id = entry.id.as_str();
    match entry.provider.as_str() {
        "anthropic" => Some(("anthropic", id)),
        "openai" | "text-completion-openai" => Some(("openai", id)),
        "gemini" => Some(("gemini", id.strip_prefix("gemini/").unwrap_or(id))),
        "vertex_ai" | "vertex_ai-language-models" | "vertex_ai-embedding-models" => {
            let id = id.strip_prefix("vertex_ai/").unwrap_or(id);
            (id.starts_with("gemini-") || id.starts_with("text-embedding-")).then_some((VERTEX, id))
        }
        _ => None,
    }
}

/// USD per minute. A price per second that comes from a price per minute is periodic (0.01700000 / 60)
/// and cut off in the map: six digits after the point give back what was published.
fn per_minute(usd_per_second: Decimal) -> Result<Decimal, Box<dyn Error>> {
    let pico = usd_per_second.times(Decimal::from_scaled(60, 0))?.scaled_up(15)?;
    let (rounded, half) = (pico / 1_000_000_000, pico % 1_000_000_000 >= 500_000_000);
    Ok(Decimal::from_scaled(rounded + u128::from(half), 6))
}

/// Gives `set` the token classes of `like` that it lacks: at the ratio of the output prices on the
/// output's side, else at that of the input prices, unchanged where there is neither.
fn complete(set: &mut Prices, like: &Prices) {
    for (class, price) in like.iter().filter(|(class, _)| class.unit() == Unit::MillionTokens) {
        if set.contains_key(class) {
            continue;
        }
        let output =
            matches!(class, Class::Output | Class::Reasoning | Class::AudioOutput | Class::ImageOutput);
        let sides: &[Class] = if output { &[Class::Output, Class::Input] } else { &[Class::Input] };
        let by_ratio = sides.iter().find_map(|side| scaled(Some(price), set.get(side), like.get(side)));
        set.insert(*class, by_ratio.unwrap_or(*price));
    }
}

/// `price × to / from`, rounded up to what a price per million tokens can hold.
fn scaled(price: Option<&Decimal>, to: Option<&Decimal>, from: Option<&Decimal>) -> Option<Decimal> {
    let [price, to, from] = [price, to, from].map(|value| value.and_then(|value| value.scaled(6).ok()));
    let (price, from) = (price?, from?);
    if from == 0 {
        return Some(Decimal::from_scaled(price, 6));
    }
    Some(Decimal::from_scaled(price.checked_mul(to?)?.div_ceil(from), 6))
}

/// Reasoning at the output's price needs no line: that is how it is billed anyway.
fn drop_usual(set: &mut Set) {
    for prices in set.context.values_mut().chain([&mut set.prices]) {
        if prices.get(&Class::Reasoning) == prices.get(&Class::Output) {
            prices.remove(&Class::Reasoning);
        }
    }
}

fn dearer(left: Decimal, right: Decimal) -> Decimal {
    if left.scaled_up(12).unwrap_or(u128::MAX) >= right.scaled_up(12).unwrap_or(u128::MAX) {
        left
    } else {
        right
    }
}

/// Makes dated ids that cost what the undated one does aliases of it, and lets an undated id that has
/// no row of its own stand for the newest dated one.
pub(super) fn fold_dated(models: &mut BTreeMap<String, Model>) {
    let dated: Vec<(String, String)> =
        models.keys().filter_map(|id| Some((id.clone(), undated(id)?.to_owned()))).collect();
    // Ids ascend, so the newest date comes last and takes the alias from the ones before.
    for (id, plain) in dated {
        let same = match (models.get(&id), models.get(&plain)) {
            (Some(dated), Some(undated)) => Some(undated.costs_like(dated)),
            _ => None,
        };
        match same {
            Some(true) => {
                let dated = models.remove(&id).unwrap_or_default();
                if let Some(row) = models.get_mut(&plain) {
                    row.aliases.extend(dated.aliases);
                    row.aliases.insert(id);
                    row.patterns.extend(dated.patterns);
                }
            }
            Some(false) => {}
            None => {
                for other in models.values_mut() {
                    other.aliases.remove(&plain);
                }
                if let Some(row) = models.get_mut(&id) {
                    row.aliases.insert(plain);
                }
            }
        }
    }
}

fn undated(id: &str) -> Option<&str> {
    let digits = |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    let (rest, last) = id.rsplit_once(['-', '@'])?;
    if digits(last, 8) {
        return Some(rest);
    }
    let (rest, month) = rest.rsplit_once('-')?;
    let (rest, year) = rest.rsplit_once('-')?;
    (digits(last, 2) && digits(month, 2) && digits(year, 4)).then_some(rest)
}
