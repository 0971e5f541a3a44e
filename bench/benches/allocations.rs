//! How often a request allocates, once a store has warmed up.
//!
//!     cargo bench --manifest-path bench/Cargo.toml --bench allocations

use std::{alloc::System, sync::Arc};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollgate_bench::{Tenant, store};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    const CALLS: u32 = 100_000;
    for limits in [1, 4, 6] {
        let (store, tenant) = (store(), Tenant::new("acme", limits));
        (0..CALLS).for_each(|_| tenant.call(&store));
        let mut counts = [0; 3];
        for _ in 0..CALLS {
            let mut region = Region::new(ALLOCATOR);
            let mut spent = [0; 3];
            let plan = tenant.plan();
            spent[0] = region.change_and_reset().allocations;
            let held = tenant.reserve(&store, Arc::clone(&plan));
            spent[1] = region.change_and_reset().allocations;
            tenant.settle(&store, &held);
            spent[2] = region.change_and_reset().allocations;
            for (count, spent) in counts.iter_mut().zip(spent) {
                *count += spent;
            }
        }
        let [plan, reserve, settle] = counts.map(|count| count as f64 / f64::from(CALLS));
        println!("{limits} limits: plan {plan} + reserve {reserve} + settle {settle} allocations");
    }
}
