//! What one call used, in disjoint billing classes.

/// Token counts and billable events of one call, after normalisation.
///
/// `input`, the `cache_*` classes and `output` are disjoint: the bill is a sum over them. The
/// fields under "subsets" say how much of those classes has another price; they are never added.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Input that was neither read from nor written to a cache.
    pub input: u64,
    /// Input read from a cache.
    pub cache_read: u64,
    /// Input written to a cache for five minutes.
    pub cache_write_5m: u64,
    /// Input written to a cache for one hour.
    pub cache_write_1h: u64,
    /// Input written to a cache whose lifetime the provider does not tell.
    pub cache_write: u64,
    /// Everything billed at the output rate, reasoning included.
    pub output: u64,

    /// Subset of `output`: reasoning or thinking.
    pub reasoning: u64,
    /// Subset of `input`: audio.
    pub audio_input: u64,
    /// Subset of `cache_read`: audio.
    pub cached_audio_input: u64,
    /// Subset of `input`: images.
    pub image_input: u64,
    /// Subset of `output`: audio.
    pub audio_output: u64,
    /// Subset of `output`: images.
    pub image_output: u64,

    /// Web searches the provider ran and bills.
    pub web_searches: u64,
    /// Web fetches the provider ran.
    pub web_fetches: u64,

    /// Images that are billed by the piece, not by tokens.
    pub images: u64,
    /// Audio that is billed by its length, not by tokens.
    pub audio_ms: u64,
    /// Text that is billed by its length, not by tokens.
    pub characters: u64,
}

impl Usage {
    /// All input tokens, however they are billed.
    pub const fn input_total(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write_5m)
            .saturating_add(self.cache_write_1h)
            .saturating_add(self.cache_write)
    }

    /// All tokens: what a token limit counts.
    pub const fn total(&self) -> u64 {
        self.input_total().saturating_add(self.output)
    }
}
