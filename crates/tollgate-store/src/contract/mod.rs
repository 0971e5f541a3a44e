//! What every store keeps, as a list of tests.
//!
//! A store's own tests implement [`Harness`] and expand [`contract_tests!`](crate::contract_tests):
//! each entry becomes a test of its own.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "these are tests, in a library so that other stores can run them"
)]

mod admission;
mod desk;
mod parallel;
mod protocol;
mod rules;
mod time;

use std::{future::Future, pin::Pin, sync::Arc};

use crate::{ManualClock, Store};

/// One store under test, empty at the start, and the clock it tells the time by.
pub trait Harness: Sync {
    /// A handle to the store. Each call gives another one, as another copy of the program would
    /// have; all of them share the same counters.
    fn store(&self) -> Arc<dyn Store>;

    /// The clock of all handles.
    fn clock(&self) -> &ManualClock;

    /// Runs a future to its end. Called from several threads at once.
    fn run(&self, future: Pin<Box<dyn Future<Output = ()> + '_>>);
}

/// One test of the contract.
pub type Test = fn(&dyn Harness);

/// The one list of tests, as names or as `#[test]` functions.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_list {
    (@names [] $($module:ident :: $name:ident)*) => {
        &[$((stringify!($name), $module::$name)),*]
    };
    (@functions [$harness:expr] $($module:ident :: $name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::contract::run(stringify!($name), &$harness);
            }
        )*
    };
    ($make:ident $($with:expr)?) => {
        $crate::contract_list! {
            @$make [$($with)?]
            admission::c01_parallel_calls_hold_what_they_may_use
            admission::c04_one_of_twenty_fits_a_budget_of_one_request
            admission::c06_a_balance_above_zero_does_not_admit_what_it_cannot_pay
            admission::c17_c28_nothing_is_held_at_rest
            admission::c26_an_overage_goes_to_every_counter_in_full
            admission::c82_small_settles_add_up_exactly
            admission::c84_a_limit_of_zero_blocks_all_that_costs
            admission::c85_a_free_request_passes_an_exhausted_limit
            admission::c118_a_charge_is_what_it_needs_not_one
            admission::a_refusal_changes_nothing_and_names_who_refuses
            admission::a_soft_limit_is_charged_and_named
            admission::a_settle_is_never_refused_and_its_debt_carries
            admission::a_changed_limit_keeps_the_count
            parallel::one_hundred_and_eighty_parallel_requests_at_limit_50_admit_50
            parallel::c05_three_handles_share_one_limit
            parallel::plans_over_many_partitions_neither_deadlock_nor_lose_a_unit
            parallel::one_id_from_many_threads_charges_once
            protocol::a_repeated_reserve_charges_once_and_answers_the_same
            protocol::another_plan_under_the_same_id_is_a_mismatch
            protocol::a_refused_retry_stays_refused_and_a_first_refusal_is_forgotten
            protocol::a_release_before_its_reserve_wins
            protocol::a_settle_happens_once
            protocol::a_settle_without_a_reservation_charges_the_admission
            protocol::a_settle_of_what_is_held_charges_nothing_else
            protocol::an_extension_charges_once_per_step
            protocol::an_extension_is_all_or_nothing
            protocol::the_number_of_amounts_is_the_plans
            protocol::a_plan_without_limits_passes_and_ends_once
            rules::a_bucketed_window_holds_its_limit_wherever_it_starts
            rules::a_bucketed_window_announces_when_a_bucket_leaves
            rules::a_token_bucket_takes_a_burst_and_fills_continuously
            rules::c27_a_token_bucket_goes_negative_and_gives_back
            rules::what_has_drained_from_a_token_bucket_is_not_given_back
            rules::what_is_open_counts_until_it_is_settled
            rules::a_request_is_as_large_as_all_its_charges
            rules::c02_a_session_is_forgotten_after_its_last_use
            rules::a_settle_never_touches_a_later_session
            rules::a_run_ends_so_long_after_its_first_use
            rules::never_binds_before_a_wait_and_a_wait_before_what_is_open
            time::three_a_second_at_limit_50_admit_50_49_49_49
            time::the_announced_wait_is_exact
            time::a_window_keeps_what_a_clock_set_back_would_lose
            time::a_settle_never_touches_a_later_period
            time::an_extension_leaves_an_ended_period_alone
            time::unused_amounts_go_back_to_their_window
            time::c41_a_counter_and_its_end_change_together
            time::c42_each_window_resets_by_itself
            time::c49_no_counter_refuses_for_ever
        }
    };
}

/// All tests with their names.
pub fn all() -> &'static [(&'static str, Test)] {
    contract_list!(names)
}

/// Runs the test called `name`; what [`contract_tests!`](crate::contract_tests) expands to.
///
/// # Panics
///
/// If the store breaks the contract, or there is no such test.
pub fn run(name: &str, harness: &dyn Harness) {
    match all().iter().find(|(listed, _)| *listed == name) {
        Some((_, test)) => test(harness),
        None => panic!("the contract has no test called {name}"),
    }
}

/// A `#[test]` for each entry of the contract, on a fresh [`Harness`] made
/// by the expression: `contract_tests!(InMemory::new());`
#[macro_export]
macro_rules! contract_tests {
    ($harness:expr) => {
        $crate::contract_list! { functions $harness }
    };
}
