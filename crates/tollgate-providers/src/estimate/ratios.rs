//! How far estimates of the input were from what was reported: a small histogram of ratios, and the
//! correction that it calls for.

use tollgate_limiter::Tokens;

/// The most and the least of a correction, in thousandths: a tokenizer is not four times as fine as its
/// family's ratios, and no history makes half an estimate of a prompt that was never seen.
const FACTOR_PERMILLE: (u64, u64) = (500, 4_000);

/// With fewer samples nothing is corrected.
const SAMPLES_MIN: u32 = 20;

/// A shorter prompt teaches nothing: what providers put around it is most of it, and it costs next to nothing.
const ESTIMATED_MIN: u64 = 128;

/// With so many all counts are halved: what is older weighs less and less.
const SAMPLES_MAX: u32 = 1_024;

/// Of so many in a hundred requests the corrected estimate is not too low.
const QUANTILE_PERCENT: u32 = 90;

/// Buckets of 5 %, from a quarter to four times and beyond.
const BUCKETS: usize = 58;

/// The bucket that ends at an exact estimate.
const EXACT: usize = 28;

/// The upper bounds of the buckets in thousandths, each 5 % above the one before.
const BOUNDS: [u64; BUCKETS] = {
    let mut bounds = [1_000_u64; BUCKETS];
    let mut index = EXACT + 1;
    while index < BUCKETS {
        bounds[index] = (bounds[index - 1] * 105).div_ceil(100);
        index += 1;
    }
    let mut index = EXACT;
    while index > 0 {
        index -= 1;
        bounds[index] = (bounds[index + 1] * 100).div_ceil(105);
    }
    bounds
};

/// The ratios of reported to estimated input of some model's latest requests.
#[derive(Clone, Debug)]
pub struct InputRatios {
    /// How many ratios are up to each bound and above the one before.
    counts: [u32; BUCKETS],
    samples: u32,
}

impl Default for InputRatios {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], samples: 0 }
    }
}

impl InputRatios {
    /// Takes a request whose input was estimated by [`estimate_input`](crate::estimate_input), uncorrected,
    /// and whose provider has reported it. What has neither changes nothing.
    pub fn add(&mut self, estimated: Tokens, reported: Tokens) {
        if reported == Tokens::ZERO || estimated.get() < ESTIMATED_MIN {
            return;
        }
        let Some(ratio) = reported.get().saturating_mul(1_000).checked_div(estimated.get()) else { return };
        let bucket = BOUNDS.partition_point(|bound| *bound < ratio).min(BUCKETS - 1);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.samples = self.samples.saturating_add(1);
        if self.samples >= SAMPLES_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.samples = self.counts.iter().sum();
        }
    }

    /// What estimates are to be multiplied by, in thousandths: the upper bound of the bucket in which the
    /// 90th percentile lies, between a half and four times. `None` as long as there are too few samples.
    pub fn factor_permille(&self) -> Option<u64> {
        if self.samples < SAMPLES_MIN {
            return None;
        }
        let wanted = self.samples.saturating_mul(QUANTILE_PERCENT).div_ceil(100);
        let mut seen = 0_u32;
        let reached = self.counts.iter().position(|count| {
            seen = seen.saturating_add(*count);
            seen >= wanted
        });
        let bound = reached.and_then(|bucket| BOUNDS.get(bucket)).copied().unwrap_or(FACTOR_PERMILLE.1);
        Some(bound.clamp(FACTOR_PERMILLE.0, FACTOR_PERMILLE.1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(ratios: impl IntoIterator<Item = u64>) -> InputRatios {
        let mut all = InputRatios::default();
        ratios.into_iter().for_each(|permille| all.add(Tokens::new(1_000), Tokens::new(permille)));
        all
    }

    #[test]
    fn few_samples_correct_nothing_and_bounds_hold() {
        assert_eq!(of([900; 19]).factor_permille(), None);
        assert_eq!(of([1; 20]).factor_permille(), Some(500));
        assert_eq!(of([90_000; 20]).factor_permille(), Some(4_000));
        let mut nothing = of([]);
        (0..40).for_each(|_| nothing.add(Tokens::ZERO, Tokens::new(5)));
        (0..40).for_each(|_| nothing.add(Tokens::new(500), Tokens::ZERO));
        (0..40).for_each(|_| nothing.add(Tokens::new(12), Tokens::new(8)));
        assert_eq!(nothing.factor_permille(), None);
    }

    #[test]
    fn what_is_older_weighs_less() {
        let mut ratios = of([2_000; 1_000]);
        (0..3_000).for_each(|_| ratios.add(Tokens::new(1_000), Tokens::new(800)));
        assert!(ratios.factor_permille().is_some_and(|factor| (800..=850).contains(&factor)));
    }

    proptest! {
        /// Of the requests that it has learned from, nine in ten are estimated high enough, by at most a bucket too
        /// much.
        #[test]
        fn nine_in_ten_are_covered_and_no_more_than_needed(ratios in prop::collection::vec(500_u64..3_900, 20..500)) {
            let factor = of(ratios.iter().copied()).factor_permille().unwrap();
            let covered = ratios.iter().filter(|ratio| **ratio <= factor).count();
            prop_assert!(covered * 10 >= ratios.len() * 9);
            let below = ratios.iter().filter(|ratio| **ratio < factor * 94 / 100).count();
            prop_assert!(below * 10 <= ratios.len() * 9, "{} of {}", below, ratios.len());
        }
    }
}
