//! What is counted, in Prometheus' text format. Labels come from the configuration or are fixed
//! words: a client cannot make new series.

use std::sync::atomic::AtomicU64;

use http::StatusCode;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tollgate_providers::Protocol;
use tollgate_usage::Outcome;

use crate::{call::Admitted, policy::AppliedLimit, settle::Bill};

/// Upper bounds in seconds for work of ours: 1 µs to 16 ms.
const FAST_SECONDS: [f64; 8] = [1e-6, 4e-6, 16e-6, 64e-6, 256e-6, 1e-3, 4e-3, 16e-3];

/// Upper bounds in seconds for waiting on a provider.
const SLOW_SECONDS: [f64; 10] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// Upper bounds of reported over estimated input: 1 is exact, above 1 the estimate was too low.
const RATIOS: [f64; 9] = [0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0];

type Labelled<L> = Family<L, Counter<u64, AtomicU64>>;

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct Answered {
    protocol: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct ByOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct ByResult {
    result: &'static str,
}

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct ByLimit {
    scope: &'static str,
    id: String,
    /// The model filter, empty without one.
    models: String,
    unit: &'static str,
    window: &'static str,
}

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct ByThreshold {
    scope: &'static str,
    id: String,
    window: &'static str,
    percent: u64,
}

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct ByTenant {
    tenant: String,
}

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct ByClass {
    tenant: String,
    class: &'static str,
}

/// What is counted for one tenant.
pub(crate) struct TenantSeries {
    input: Counter,
    cache_read: Counter,
    cache_write: Counter,
    output: Counter,
    cost: Counter,
}

impl TenantSeries {
    /// A call of the tenant was settled.
    pub(crate) fn settled(&self, bill: &Bill) {
        let tokens = &bill.tokens;
        let written = tokens.cache_write_5m.saturating_add(tokens.cache_write_1h);
        self.input.inc_by(tokens.input);
        self.cache_read.inc_by(tokens.cache_read);
        self.cache_write.inc_by(tokens.cache_write.saturating_add(written));
        self.output.inc_by(tokens.output);
        self.cost.inc_by(u64::try_from(bill.amounts.cost.get()).unwrap_or(u64::MAX));
    }
}

/// The proxy's counters, gauges and histograms.
pub(crate) struct Metrics {
    registry: Registry,
    answered: Labelled<Answered>,
    /// The series of `answered` and `outcomes` that nearly every request counts in.
    answered_well: [(Protocol, Counter); 2],
    complete: Counter,
    outcomes: Labelled<ByOutcome>,
    refusals: Labelled<ByReason>,
    limit_refusals: Labelled<ByLimit>,
    over_soft: Labelled<ByLimit>,
    extensions: Labelled<ByResult>,
    cut_offs: Labelled<ByReason>,
    thresholds: Labelled<ByThreshold>,
    pub(crate) alert_posts: Counter,
    pub(crate) alert_failures: Counter,
    tokens: Labelled<ByClass>,
    cost: Labelled<ByTenant>,
    estimate: Histogram,
    /// Reservations that are not settled yet.
    pub(crate) open: Gauge,
    pub(crate) settle_failures: Counter,
    pub(crate) decision: Histogram,
    pub(crate) overhead: Histogram,
    pub(crate) ttfb: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let histogram = |bounds: &[f64]| Histogram::new(bounds.iter().copied());
        let answered = Labelled::<Answered>::default();
        let outcomes = Labelled::<ByOutcome>::default();
        let well =
            |protocol: Protocol| Answered { protocol: protocol.name(), status: StatusCode::OK.as_u16() };
        let mut metrics = Self {
            registry: Registry::with_prefix("tollgate"),
            answered_well: [Protocol::Anthropic, Protocol::OpenAi]
                .map(|protocol| (protocol, answered.get_or_create_owned(&well(protocol)))),
            complete: outcomes.get_or_create_owned(&ByOutcome { outcome: Outcome::Complete.name() }),
            answered,
            outcomes,
            refusals: Family::default(),
            limit_refusals: Family::default(),
            over_soft: Family::default(),
            extensions: Family::default(),
            cut_offs: Family::default(),
            thresholds: Family::default(),
            alert_posts: Counter::default(),
            alert_failures: Counter::default(),
            tokens: Family::default(),
            cost: Family::default(),
            estimate: histogram(&RATIOS),
            open: Gauge::default(),
            settle_failures: Counter::default(),
            decision: histogram(&FAST_SECONDS),
            overhead: histogram(&FAST_SECONDS),
            ttfb: histogram(&SLOW_SECONDS),
        };
        metrics.register();
        metrics
    }

    /// The series of one tenant, made if they are not there.
    pub(crate) fn series(&self, tenant: &str) -> TenantSeries {
        let class = |class| self.tokens.get_or_create_owned(&ByClass { tenant: tenant.to_owned(), class });
        TenantSeries {
            input: class("input"),
            cache_read: class("cache_read"),
            cache_write: class("cache_write"),
            output: class("output"),
            cost: self.cost.get_or_create_owned(&ByTenant { tenant: tenant.to_owned() }),
        }
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Requests answered, by protocol and status", self.answered.clone());
        registry.register("calls", "Calls settled, by how they ended", self.outcomes.clone());
        registry.register("refusals", "Requests refused here, by reason", self.refusals.clone());
        registry.register("limit_refusals", "Requests refused, by the limit", self.limit_refusals.clone());
        registry.register(
            "soft_budget_exceeded",
            "Requests that passed a spent budget",
            self.over_soft.clone(),
        );
        let name = "stream_extensions";
        registry.register(
            name,
            "Times a stream's reservation was to grow, by result",
            self.extensions.clone(),
        );
        registry.register("cut_offs", "Answers cut off here, by reason", self.cut_offs.clone());
        let help = "Budgets that were used up to a part, by budget and percent";
        registry.register("budget_thresholds", help, self.thresholds.clone());
        registry.register("alert_posts", "Alerts that a receiver has taken", self.alert_posts.clone());
        let help = "Posts of alerts that a receiver did not take";
        registry.register("alert_post_failures", help, self.alert_failures.clone());
        registry.register("tokens", "Tokens settled, by tenant and class", self.tokens.clone());
        registry.register("cost_pico_usd", "Cost settled in 10^-12 USD, by tenant", self.cost.clone());
        registry.register("input_estimate_ratio", "Reported over estimated input", self.estimate.clone());
        registry.register("open_reservations", "Reservations not settled yet", self.open.clone());
        registry.register("settle_failures", "Settlements the store refused", self.settle_failures.clone());
        registry.register("decision_seconds", "Time of one decision in the store", self.decision.clone());
        registry.register(
            "overhead_seconds",
            "From a request's head to its forwarding",
            self.overhead.clone(),
        );
        registry.register(
            "upstream_ttfb_seconds",
            "From a request's head to the answer's",
            self.ttfb.clone(),
        );
    }

    /// A response has left.
    pub(crate) fn answered(&self, protocol: Protocol, status: StatusCode) {
        let mut well = self.answered_well.iter().filter(|_| status == StatusCode::OK);
        if let Some((_, series)) = well.find(|(of, _)| *of == protocol) {
            series.inc();
            return;
        }
        let labels = Answered { protocol: protocol.name(), status: status.as_u16() };
        self.answered.get_or_create(&labels).inc();
    }

    /// A request was answered by ourselves.
    pub(crate) fn own_answer(&self, reason: &'static str) {
        self.refusals.get_or_create(&ByReason { reason }).inc();
    }

    /// A limit refused a request.
    pub(crate) fn refused(&self, limit: &AppliedLimit) {
        self.limit_refusals.get_or_create(&by_limit(limit)).inc();
    }

    /// A request passed although a soft budget was spent.
    pub(crate) fn over_soft(&self, limit: &AppliedLimit) {
        self.over_soft.get_or_create(&by_limit(limit)).inc();
    }

    /// A stream has asked for more: `granted`, `refused`, or `failed` where the store gave no verdict.
    pub(crate) fn extended(&self, result: &'static str) {
        self.extensions.get_or_create(&ByResult { result }).inc();
    }

    /// An answer was cut off.
    pub(crate) fn cut_off(&self, reason: &'static str) {
        self.cut_offs.get_or_create(&ByReason { reason }).inc();
    }

    /// A budget was used up to a part.
    pub(crate) fn budget_threshold(&self, limit: &AppliedLimit, percent: u64) {
        let (scope, id, window) = (limit.rule.scope.name(), limit.bounded_id().to_owned(), limit.rule.window);
        self.thresholds.get_or_create(&ByThreshold { scope, id, window, percent }).inc();
    }

    /// A call was settled.
    pub(crate) fn settled(&self, admitted: &Admitted, bill: &Bill, outcome: Outcome) {
        if outcome == Outcome::Complete {
            self.complete.inc();
        } else {
            self.outcomes.get_or_create(&ByOutcome { outcome: outcome.name() }).inc();
        }
        self.estimated(admitted, bill);
    }

    fn estimated(&self, admitted: &Admitted, bill: &Bill) {
        let estimated = u32::try_from(admitted.quote.estimated_input.get()).unwrap_or(u32::MAX);
        let reported = u32::try_from(bill.amounts.input_tokens).unwrap_or(u32::MAX);
        if estimated > 0 && reported > 0 && !bill.usage_estimated {
            self.estimate.observe(f64::from(reported) / f64::from(estimated));
        }
    }

    /// All of it as text.
    pub(crate) fn encode(&self) -> String {
        let mut out = String::new();
        // Writing into a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

fn by_limit(limit: &AppliedLimit) -> ByLimit {
    ByLimit {
        scope: limit.rule.scope.name(),
        id: limit.bounded_id().to_owned(),
        models: limit.rule.models.as_ref().map_or_else(String::new, |globs| globs.patterns().join(",")),
        unit: limit.rule.measure.name(),
        window: limit.rule.window,
    }
}
