//! One key: what it may do, and the limits that its calls meet whatever they are.

use std::sync::Arc;

use tollgate_config::{Key, KeyHash, ModelGlobs, Scope, Tenant, Unpriced};
use tollgate_pricing::PriceTable;
use tollgate_usage::Attributes;

use super::{AppliedLimit, LimitRule, reach::Reach, recent::Recent, rules::Rules};

/// What one key may do.
pub(crate) struct KeyPolicy {
    /// The key's tenant.
    pub(crate) tenant: Arc<str>,
    /// The key's name.
    pub(crate) key: Arc<str>,
    /// Its hash: what nobody knows who has only seen events.
    pub(crate) hash: KeyHash,
    /// The models it may call.
    pub(crate) models: Option<ModelGlobs>,
    /// What its calls carry.
    pub(crate) attributes: Attributes,
    /// What a call may add to that.
    pub(crate) caller_attributes: Arc<[Scope]>,
    /// What happens to a model without a price, whatever else a call is.
    pub(crate) unpriced: Unpriced,
    /// Limits that every call meets.
    pub(super) fixed: Arc<[AppliedLimit]>,
    /// Those of them that a call meets which costs nothing.
    pub(super) fixed_unbilled: Arc<[AppliedLimit]>,
    /// Limits that the key's calls meet in some sessions or with some models; where each session has a
    /// counter of its own, it is not named yet.
    pub(super) bound: Box<[AppliedLimit]>,
    /// Limits of its latest calls.
    pub(super) recent: Recent,
}

/// Whose call it is.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(super) tenant: &'a str,
    pub(super) key: &'a str,
}

impl KeyPolicy {
    /// Compiles what every call of `key` meets. `unpriced` is the deployment's rule.
    pub(super) fn new(
        tenant: &Tenant,
        key: &Key,
        rules: &Rules,
        prices: &PriceTable,
        unpriced: Unpriced,
    ) -> Self {
        let owner = Owner { tenant: &tenant.id, key: &key.id };
        let (mut fixed, mut bound) = (Vec::new(), Vec::new());
        let attributes = Scope::ATTRIBUTES
            .into_iter()
            .filter_map(|scope| key.attributes.get(scope.name()).map(|value| (scope, value)));
        let global = Arc::from(Scope::Global.name());
        // The tenant's own first: a store that asks in steps asks these first, and what they refuse never charges what
        // tenants share.
        let own = [(Scope::Tenant, &tenant.id), (Scope::Key, &key.id), (Scope::Global, &global)];
        for (scope, value) in own.into_iter().chain(attributes) {
            for rule in rules.of(scope, value) {
                let limit = rule.applied(value.clone(), owner, None);
                if rule.models.is_some() || rule.is_per_session() {
                    bound.push(limit);
                } else {
                    fixed.push(limit);
                }
            }
        }
        let demands = fixed.iter().chain(&bound).map(|limit: &AppliedLimit| &limit.rule);
        let unpriced = demanded(key, demands, rules, prices).fold(unpriced, Unpriced::max);
        let fixed_unbilled = fixed.iter().filter(|limit| limit.rule.measure.counts_unbilled());
        Self {
            tenant: tenant.id.clone(),
            key: key.id.clone(),
            hash: key.hash,
            models: key.models.clone(),
            attributes: key.attributes.clone(),
            unpriced,
            caller_attributes: key.caller_attributes.clone(),
            fixed_unbilled: fixed_unbilled.cloned().collect(),
            fixed: fixed.into(),
            bound: bound.into(),
            recent: Recent::default(),
        }
    }

    /// Whose calls they are.
    pub(super) fn owner(&self) -> Owner<'_> {
        Owner { tenant: &self.tenant, key: &self.key }
    }
}

/// What budgets demand of models without a price: those that every call meets, and those about models that
/// the key's calls can meet. Any name without a price may be another one for such a model.
fn demanded<'a>(
    key: &'a Key,
    of_key: impl Iterator<Item = &'a Arc<LimitRule>> + 'a,
    rules: &'a Rules,
    prices: &'a PriceTable,
) -> impl Iterator<Item = Unpriced> + 'a {
    let reach = Reach::new(key.models.as_ref(), prices);
    let callers = key.caller_attributes.iter().copied();
    let open = [Scope::Provider, Scope::Model, Scope::Session].into_iter().chain(callers);
    let open = open.flat_map(|scope| rules.demanding(scope)).filter(|rule| rule.is_of_models());
    let is_per_call = |rule: &Arc<LimitRule>| rule.is_per_session() && !rule.is_of_models();
    let of_key = of_key.filter(move |rule| !is_per_call(rule));
    of_key.chain(open).filter(move |rule| reach.meets(rule)).filter_map(|rule| rule.unpriced)
}
