//! What a window, or a part of one, has admitted.

/// Units that were charged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) used: u64,
    /// The part of `used` that open reservations hold. Reported, never compared.
    pub(crate) held: u64,
}

impl Counts {
    pub(crate) fn book(&mut self, charge: u64) {
        self.used = self.used.saturating_add(charge);
        self.held = self.held.saturating_add(charge);
    }

    /// Adds what nobody holds.
    pub(crate) fn add(&mut self, used: u64) {
        self.used = self.used.saturating_add(used);
    }

    /// Ends a booking of which `unused` was not needed.
    pub(crate) fn settle(&mut self, booked: u64, unused: u64) {
        self.held = self.held.saturating_sub(booked);
        self.used = self.used.saturating_sub(unused);
    }

    pub(crate) fn settled(self) -> u64 {
        self.used.saturating_sub(self.held)
    }
}

pub(crate) fn wide(count: u64, parts: u64) -> u128 {
    u128::from(count).saturating_mul(u128::from(parts))
}

pub(crate) fn narrow(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// `count / parts`, rounded down; 0 if there are no parts.
#[inline]
pub(crate) fn quotient(count: u128, parts: u64) -> u128 {
    // A division of 128 bits takes some ten times as long, and is seldom needed.
    match u64::try_from(count) {
        Ok(count) => count.checked_div(parts).unwrap_or(0).into(),
        Err(_) => count.checked_div(parts.into()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::quotient;

    const NARROW_MAX: u128 = u64::MAX as u128;

    proptest! {
        /// Both ways to divide are a division, where they meet too.
        #[test]
        fn a_quotient_is_that_of_128_bits(
            count in prop_oneof![any::<u128>(), 0..=NARROW_MAX, NARROW_MAX.saturating_sub(9)..=NARROW_MAX.saturating_add(9)],
            parts in prop_oneof![any::<u64>(), 0_u64..4, Just(60_000)],
        ) {
            let wanted = count.checked_div(parts.into()).unwrap_or(0);
            prop_assert_eq!(quotient(count, parts), wanted);
        }
    }
}
