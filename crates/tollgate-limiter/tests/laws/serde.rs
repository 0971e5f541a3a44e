//! What is written is read back as it was.

use std::fmt::Debug;

use serde_json::json;
use tollgate_limiter::{CounterView, DurationMs, Enforcement, ExactAmount, Limit, Period, Rule, TimestampMs};

use crate::support::{Desk, limit, plan, soft};

fn same<T: serde::Serialize + serde::de::DeserializeOwned + Debug + PartialEq>(
    value: &T,
    json: serde_json::Value,
) {
    assert_eq!(serde_json::to_value(value).unwrap(), json);
    assert_eq!(&serde_json::from_value::<T>(json).unwrap(), value);
}

#[test]
fn rules_are_written_by_name() {
    let minute = DurationMs::new(60_000);
    same(&Rule::SlidingWindow { window: minute }, json!({ "sliding_window": { "window": 60_000 } }));
    same(&Rule::BucketedWindow { window: minute }, json!({ "bucketed_window": { "window": 60_000 } }));
    same(&Rule::TokenBucket { window: minute }, json!({ "token_bucket": { "window": 60_000 } }));
    same(&Rule::Calendar(Period::Month), json!({ "calendar": "month" }));
    same(&Rule::Idle { after: minute }, json!({ "idle": { "after": 60_000 } }));
    same(&Rule::Elapsed { after: minute }, json!({ "elapsed": { "after": 60_000 } }));
    same(&Rule::Concurrent, json!("concurrent"));
    same(&Rule::PerRequest, json!("per_request"));
}

#[test]
fn limits_and_views_are_written_in_plain_numbers() {
    let usd = soft(&limit("usd", Rule::Calendar(Period::Total), 100));
    let key = json!({ "partition": "acme", "name": "usd" });
    let written =
        json!({ "key": key, "rule": { "calendar": "total" }, "amount": 100, "enforcement": "soft" });
    same::<Limit>(&usd, written);
    assert_eq!(usd.enforcement, Enforcement::Soft);

    let mut desk = Desk::default();
    let held = desk.reserve(0, &plan(&[(&usd, 7)])).unwrap();
    desk.ledger.settle(TimestampMs::EPOCH, &held, &[ExactAmount::from_millionths(2_240_001)]).unwrap();
    desk.reserve(0, &plan(&[(&usd, 3)])).unwrap();
    let written = json!({ "key": key, "spent": 2_240_001, "held": 3, "remaining": 94, "resets_at": null });
    same::<CounterView>(&desk.view(0, &usd), written);
}
