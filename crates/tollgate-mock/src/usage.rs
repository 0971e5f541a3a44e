//! Token counts in disjoint classes, and the bill a provider would write.

/// What one answer used. The classes are disjoint, except that reasoning is part of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input that was neither read from nor written to the cache.
    pub input_tokens: u64,
    /// Input read from the cache.
    pub cache_read_tokens: u64,
    /// Input written to the 5-minute cache.
    pub cache_write_5m_tokens: u64,
    /// Input written to the 1-hour cache.
    pub cache_write_1h_tokens: u64,
    /// Output, reasoning included.
    pub output_tokens: u64,
    /// The part of the output that was reasoning.
    pub reasoning_tokens: u64,
    /// Web searches the server ran.
    pub web_searches: u64,
}

impl Usage {
    /// Everything the model read.
    pub fn prompt_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_write_tokens())
    }

    /// Both kinds of cache writes.
    pub fn cache_write_tokens(&self) -> u64 {
        self.cache_write_5m_tokens.saturating_add(self.cache_write_1h_tokens)
    }

    /// The usage when only `sent` of `total` pieces of the answer were produced: the whole input, and the
    /// output in proportion, rounded down.
    pub(crate) fn cut(&self, sent: u64, total: u64) -> Self {
        if total == 0 || sent >= total {
            return *self;
        }
        let part = |tokens: u64| {
            u64::try_from(u128::from(tokens) * u128::from(sent) / u128::from(total)).unwrap_or(tokens)
        };
        Self {
            output_tokens: part(self.output_tokens),
            reasoning_tokens: part(self.reasoning_tokens),
            ..*self
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, value) in [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.cache_read_tokens, other.cache_read_tokens),
            (&mut self.cache_write_5m_tokens, other.cache_write_5m_tokens),
            (&mut self.cache_write_1h_tokens, other.cache_write_1h_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.reasoning_tokens, other.reasoning_tokens),
            (&mut self.web_searches, other.web_searches),
        ] {
            *sum = sum.saturating_add(value);
        }
    }
}

/// What the calls of one model come to.
///
/// A call is billed when its answer succeeds. One that broke off is billed its whole input and the part of
/// the output that had been sent; an error, or an answer that never began, costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// How many calls were billed.
    pub calls: u64,
    /// Their sums.
    pub usage: Usage,
}

impl Bill {
    pub(crate) fn add(&mut self, usage: &Usage) {
        self.calls = self.calls.saturating_add(1);
        self.usage.add(usage);
    }
}
