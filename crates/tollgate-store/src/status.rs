//! How a store is, for probes and metrics.

/// What a store knows of itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreStatus {
    /// Whether it answers.
    pub available: bool,
    /// How many times it ceased to.
    pub outages: u64,
    /// Settlements that wait for it.
    pub settlements_waiting: usize,
    /// Settlements that were given up, or that met what the store cannot read. What they could not settle stays charged.
    pub settlements_lost: u64,
    /// What an operator should know, in a few words.
    pub warning: Option<String>,
}

impl Default for StoreStatus {
    /// A store that is there.
    fn default() -> Self {
        Self { available: true, outages: 0, settlements_waiting: 0, settlements_lost: 0, warning: None }
    }
}
