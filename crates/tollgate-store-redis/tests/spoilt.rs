//! Counters that somebody has overwritten: nothing is decided by them, and what lies beside them is given back.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::sync::Arc;

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId,
    Rule, Verdict,
};
use tollgate_store::{Attempt, Held, Settled, Store, StoreError};
use tollgate_store_redis::{RedisStore, testing::RedisServer};

const MINUTE: DurationMs = DurationMs::new(60_000);

fn limit(name: &str, rule: Rule) -> Arc<Limit> {
    let (key, amount) = (CounterKey::new("acme", name), Amount::new(1_000));
    Arc::new(Limit { key, rule, amount, enforcement: Enforcement::Hard })
}

fn plan(limits: &[&Arc<Limit>]) -> Arc<Plan> {
    let entry = |limit: &&Arc<Limit>| Entry { limit: Arc::clone(limit), charge: Amount::new(10) };
    Arc::new(Plan::new(limits.iter().map(entry).collect()).unwrap())
}

fn key(limit: &Limit) -> String {
    format!("tollgate:{{acme}}:c:{}", limit.key.name())
}

async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.settings("tollgate")).unwrap();
    store.connected().await.unwrap();
    store
}

async fn reserve(store: &RedisStore, id: u128, plan: &Arc<Plan>) -> Result<Held, StoreError> {
    let id = ReservationId::new(id);
    match store.reserve(id, Arc::clone(plan), Attempt::First).await? {
        Verdict::Admitted(admission) => Ok(Held { id, plan: Arc::clone(plan), at: admission.at }),
        Verdict::Refused(_) => unreachable!("it fits"),
    }
}

async fn settle(store: &RedisStore, held: &Held) -> Result<Settled, StoreError> {
    store.settle(held, &vec![ExactAmount::whole(3); held.plan.entries().len()]).await
}

/// (spent, held) of each.
async fn stand(store: &RedisStore, limits: &[&Arc<Limit>]) -> Vec<(u64, u64)> {
    let limits: Vec<_> = limits.iter().map(|limit| Arc::clone(limit)).collect();
    let views = store.inspect(&limits).await.unwrap();
    views.iter().map(|view| (view.spent.units(), view.held.get())).collect()
}

fn is_corrupt<T>(answer: &Result<T, StoreError>, limit: &Limit) -> bool {
    matches!(answer, Err(StoreError::Corrupt(reason)) if reason.contains(&key(limit)))
}

/// Makes of a counter what a text of Lua says of its value `v`.
fn overwrite(server: &RedisServer, limit: &Limit, with: &str) {
    let script = format!(
        "local v = redis.call('GET', KEYS[1]) local cut, pack, rep = string.sub, struct.pack, string.rep \
         local seed = 1 local function noise(length) local bytes = {{}} for place = 1, length do \
         seed = (seed * 16807) % 2147483647 bytes[place] = string.char(seed % 256) end return table.concat(bytes) end \
         redis.call('SET', KEYS[1], {with}, 'KEEPTTL')"
    );
    server.command(&["EVAL", &script, "1", &key(limit)]).unwrap();
}

/// Its bytes, in hexadecimal digits.
fn bytes(server: &RedisServer, limit: &Limit) -> String {
    let script = "return (string.gsub(redis.call('GET', KEYS[1]), '.', function(byte) \
                  return string.format('%02x', string.byte(byte)) end))";
    server.command(&["EVAL", script, "1", &key(limit)]).unwrap()
}

/// What lies under a counter's key instead.
const VALUES: &[&str] = &[
    "v .. 'x'",
    "v .. rep('x', 8)",
    "cut(v, 1, -2)",
    "cut(v, 1, -9)",
    "cut(v, 1, 9)",
    "cut(v, 1, 1)",
    "''",
    "'{\"spent\":0}'",
    "'{' .. rep(' ', #v - 2) .. '}'",
    "'12345'",
    "rep('0', #v)",
    "noise(#v)",
    "cut(v, 1, 1) .. noise(#v - 1)",
    "cut(v, 1, 9) .. noise(#v - 9)",
    // The last number.
    "cut(v, 1, -9) .. pack('<l', -2^62)",
    "cut(v, 1, -9) .. pack('<l', -1)",
    "cut(v, 1, -9) .. pack('<l', 2^60)",
];

/// Of counters whose last but one is what is spent.
const SPENT: &[&str] = &[
    "cut(v, 1, 33) .. pack('<l', -2^62) .. cut(v, 42)",
    "cut(v, 1, 33) .. pack('<l', -1) .. cut(v, 42)",
    "cut(v, 1, 33) .. pack('<l', 2^60) .. cut(v, 42)",
    "cut(v, 1, 33) .. pack('<ll', -2^62, -2^62)",
];

/// Of counters that each call reads in full.
const FIRST: &[&str] =
    &["cut(v, 1, 9) .. pack('<l', -2^62) .. cut(v, 18)", "cut(v, 1, 9) .. pack('<l', 2^60) .. cut(v, 18)"];

/// Of hard budgets, which count from a moment on.
const OF_BUDGETS: &[&str] = &["cut(v, 1, 1) .. rep('\\0', #v - 1)", "cut(v, 1, 9) .. rep('\\0', #v - 9)"];

#[tokio::test]
async fn what_lies_under_a_counters_key_decides_nothing_unless_a_rule_has_written_it() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let window = MINUTE;
    let rules = [
        (Rule::Calendar(Period::Total), [VALUES, SPENT, OF_BUDGETS].concat()),
        (Rule::Calendar(Period::Day), [VALUES, SPENT, OF_BUDGETS].concat()),
        (Rule::Idle { after: MINUTE }, [VALUES, SPENT].concat()),
        (Rule::Elapsed { after: MINUTE }, [VALUES, FIRST, OF_BUDGETS].concat()),
        (Rule::Concurrent, [VALUES, SPENT].concat()),
        (Rule::SlidingWindow { window }, [VALUES, SPENT].concat()),
        (Rule::BucketedWindow { window }, [VALUES, SPENT].concat()),
        (Rule::TokenBucket { window }, [VALUES, FIRST].concat()),
    ];
    let mut id = 0;
    for (number, (rule, values)) in rules.into_iter().enumerate() {
        let limit = limit(&format!("limit {number}"), rule);
        let plan = plan(&[&limit]);
        for value in values {
            id += 2;
            let case = format!("{rule:?}: {value}");
            let held = reserve(&store, id, &plan).await.unwrap();
            overwrite(&server, &limit, value);
            let spoilt = bytes(&server, &limit);
            let answer = store.reserve(ReservationId::new(id + 1), Arc::clone(&plan), Attempt::First).await;
            assert!(is_corrupt(&answer, &limit), "{case}: {answer:?}");
            let answer = store.extend(&held, 1, &[Amount::new(1)]).await;
            assert!(is_corrupt(&answer, &limit), "{case}: {answer:?}");
            let answer = store.inspect(&[Arc::clone(&limit)]).await;
            assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{case}: {answer:?}");
            let answer = settle(&store, &held).await;
            assert!(is_corrupt(&answer, &limit), "{case}: {answer:?}");
            assert_eq!(bytes(&server, &limit), spoilt, "{case}");
            server.command(&["DEL", &key(&limit)]).unwrap();
            let held = reserve(&store, id + 1, &plan).await.unwrap();
            assert_eq!(settle(&store, &held).await.unwrap(), Settled::Applied, "{case}");
            server.command(&["DEL", &key(&limit)]).unwrap();
        }
    }
}

/// A bucketed window whose buckets are in use is longer, and a part of that is not what it was.
#[tokio::test]
async fn buckets_that_are_not_whole_or_not_in_order_decide_nothing() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let limit = limit("buckets", Rule::BucketedWindow { window: DurationMs::new(86_400_000) });
    let plan = plan(&[&limit]);
    // Of three and of nine buckets before the latest one, 10 are used.
    let older = "pack('<llllll', 3, 10, 0, 9, 10, 0)";
    let with = |before: &str, older: &str| {
        format!("cut(v, 1, 17) .. pack('<ll', {before}) .. cut(v, 34, 49) .. {older}")
    };
    let held = reserve(&store, 1, &plan).await.unwrap();
    overwrite(&server, &limit, &with("20, 0", older));
    settle(&store, &held).await.unwrap();
    assert_eq!(stand(&store, &[&limit]).await, [(23, 0)]);
    for (id, value) in (2..).zip([
        with("20, 0", &format!("{older} .. 'x'")),
        with("20, 0", &format!("cut({older}, 1, -9)")),
        with("10, 0", older),
        with("20, 1", older),
        with("20, 0", "pack('<llllll', 9, 10, 0, 3, 10, 0)"),
        with("20, 0", "pack('<llllll', 3, 10, 0, 3, 10, 0)"),
        with("20, 0", "pack('<llllll', 3, 10, 0, 61, 10, 0)"),
        with("20, 0", "pack('<lllllllll', 3, 10, 0, 9, 10, 0, 10, 0, 0)"),
        with("0, 0", "pack('<llllll', 3, 10, 0, 9, -10, 0)"),
    ]) {
        server.command(&["DEL", &key(&limit)]).unwrap();
        reserve(&store, id, &plan).await.unwrap();
        // So that the latest part is none that room is looked for in beside it.
        overwrite(&server, &limit, &value);
        overwrite(&server, &limit, "cut(v, 1, 33) .. pack('<l', 0) .. cut(v, 42)");
        let answer = store.reserve(ReservationId::new(100 + id), Arc::clone(&plan), Attempt::First).await;
        assert!(is_corrupt(&answer, &limit), "{value}: {answer:?}");
    }
}

#[tokio::test]
async fn a_settlement_beside_a_counter_that_cannot_be_read_settles_all_others() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let rules = [Rule::Calendar(Period::Day), Rule::Concurrent, Rule::TokenBucket { window: MINUTE }];
    let others = ["day", "open", "rate"].into_iter().zip(rules).map(|(name, rule)| limit(name, rule));
    let (others, spoilt) = (others.collect::<Vec<_>>(), limit("spoilt", Rule::Calendar(Period::Hour)));
    let others: Vec<_> = others.iter().collect();
    let plan = plan(&[others[0], &spoilt, others[1], others[2]]);
    let mut helds = Vec::new();
    for id in 0..8 {
        helds.push(reserve(&store, id, &plan).await.unwrap());
    }
    overwrite(&server, &spoilt, "'something else'");
    assert!(is_corrupt(&settle(&store, &helds[0]).await, &spoilt), "by itself");
    // In one command, the answer of each its own.
    let together = helds[1..7].iter().map(|held| {
        let (store, held) = (store.clone(), held.clone());
        tokio::spawn(async move { settle(&store, &held).await })
    });
    for answer in together.collect::<Vec<_>>() {
        assert!(is_corrupt(&answer.await.unwrap(), &spoilt));
    }
    let used = vec![ExactAmount::whole(3); 4];
    assert!(is_corrupt(&store.settle_held(&helds[7], &used).await, &spoilt));
    let stands = stand(&store, &others).await;
    assert_eq!((stands[0], stands[1]), ((24, 0), (0, 0)));
    assert_eq!(stands[2].1, 0);
    assert_eq!(server.command(&["GET", &key(&spoilt)]).unwrap(), "something else");
    for held in &helds {
        assert_eq!(settle(&store, held).await.unwrap(), Settled::Already);
        assert_eq!(store.settle_held(held, &used).await.unwrap(), Settled::Already);
    }
    // Without a reservation.
    let unseen = Held { id: ReservationId::new(99), ..helds[0].clone() };
    assert!(is_corrupt(&settle(&store, &unseen).await, &spoilt));
    assert_eq!(settle(&store, &unseen).await.unwrap(), Settled::Already);
    assert_eq!(stand(&store, &others).await[0], (27, 0));
}

/// Numbers at the ends of what a field may hold, and beyond.
const ODD: [i64; 10] =
    [-1, 0, 1, 1_000_000, -1_000_000_000_000_000, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX, i64::MIN];

/// The number in the text of Lua that has its bytes.
fn in_lua(number: i64) -> String {
    let bytes: String = number.to_le_bytes().iter().map(|byte| format!("\\{byte:03}")).collect();
    format!("'{bytes}'")
}

/// To look at a counter takes the functions of the rules, to decide by it and to settle does not where it can.
#[tokio::test]
async fn odd_numbers_in_a_counter_are_taken_for_one_by_the_quick_way_only_if_the_rules_do() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let window = MINUTE;
    let periods = [Period::Minute, Period::Hour, Period::Day, Period::Week, Period::Month, Period::Total];
    let mut rules = vec![
        Rule::Idle { after: MINUTE },
        Rule::Elapsed { after: MINUTE },
        Rule::Concurrent,
        Rule::SlidingWindow { window },
        Rule::BucketedWindow { window },
        Rule::TokenBucket { window },
    ];
    rules.extend(periods.map(Rule::Calendar));
    let (mut id, mut readable, mut spoilt) = (0, 0, 0);
    for (number, rule) in rules.into_iter().enumerate() {
        let limit = limit(&format!("limit {number}"), rule);
        let (plan, only) = (plan(&[&limit]), [Arc::clone(&limit)]);
        let held = reserve(&store, u128::MAX - u128::try_from(number).unwrap(), &plan).await.unwrap();
        let fields = (bytes(&server, &limit).len() / 2 - 1) / 8;
        settle(&store, &held).await.unwrap();
        for (field, odd) in (0..fields).flat_map(|field| ODD.map(|odd| (field, odd))) {
            id += 2;
            let case = format!("{rule:?}: {odd} in field {field}");
            server.command(&["DEL", &key(&limit)]).unwrap();
            let held = reserve(&store, id, &plan).await.unwrap();
            let (from, after) = (1 + 8 * field, 10 + 8 * field);
            overwrite(&server, &limit, &format!("cut(v, 1, {from}) .. {} .. cut(v, {after})", in_lua(odd)));
            let before = bytes(&server, &limit);
            let is_spoilt = matches!(store.inspect(&only).await, Err(StoreError::Corrupt(_)));
            let answer = store.reserve(ReservationId::new(id + 1), Arc::clone(&plan), Attempt::First).await;
            assert_eq!(is_corrupt(&answer, &limit), is_spoilt, "{case}: {answer:?}");
            assert!(is_spoilt || answer.is_ok(), "{case}: {answer:?}");
            assert!(is_spoilt || store.inspect(&only).await.is_ok(), "{case}: as reserved");
            let answer = settle(&store, &held).await;
            assert_eq!(is_corrupt(&answer, &limit), is_spoilt, "{case}: {answer:?}");
            assert!(is_spoilt || answer.is_ok(), "{case}: {answer:?}");
            assert!(is_spoilt || store.inspect(&only).await.is_ok(), "{case}: as settled");
            assert!(!is_spoilt || bytes(&server, &limit) == before, "{case}: it was changed");
            *(if is_spoilt { &mut spoilt } else { &mut readable }) += 1;
        }
    }
    assert!(readable > 100 && spoilt > 100, "{readable} can be read, {spoilt} cannot");
}

/// What makes something of each type but a text.
const OTHER_TYPES: [&[&str]; 5] = [
    &["HSET", "key", "field", "value"],
    &["RPUSH", "key", "value"],
    &["SADD", "key", "value"],
    &["ZADD", "key", "1", "value"],
    &["XADD", "key", "*", "field", "value"],
];

/// Puts something of another type under a key.
fn replace(server: &RedisServer, key: &str, with: &[&str]) {
    server.command(&["DEL", key]).unwrap();
    let words: Vec<_> = with.iter().map(|word| if *word == "key" { key } else { *word }).collect();
    server.command(&words).unwrap();
}

/// Tells what lies under a key from anything else, whatever its type.
fn dump(server: &RedisServer, key: &str) -> String {
    let script = "return redis.sha1hex(redis.call('DUMP', KEYS[1]) or '')";
    server.command(&["EVAL", script, "1", key]).unwrap()
}

#[tokio::test]
async fn what_is_of_another_type_than_a_counter_decides_nothing_and_is_not_replaced() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let (window, other) = (MINUTE, limit("other", Rule::Concurrent));
    let rules = [
        Rule::Calendar(Period::Total),
        Rule::Calendar(Period::Day),
        Rule::Idle { after: MINUTE },
        Rule::Elapsed { after: MINUTE },
        Rule::Concurrent,
        Rule::SlidingWindow { window },
        Rule::BucketedWindow { window },
        Rule::TokenBucket { window },
    ];
    let mut id = 0;
    for (number, rule) in rules.into_iter().enumerate() {
        let limit = limit(&format!("limit {number}"), rule);
        let plan = plan(&[&other, &limit]);
        for with in OTHER_TYPES {
            id += 2;
            let case = format!("{rule:?}: {}", with[0]);
            let held = reserve(&store, id, &plan).await.unwrap();
            replace(&server, &key(&limit), with);
            let before = dump(&server, &key(&limit));
            let answer = store.reserve(ReservationId::new(id + 1), Arc::clone(&plan), Attempt::First).await;
            assert!(is_corrupt(&answer, &limit), "{case}: {answer:?}");
            let answer = store.extend(&held, 1, &[Amount::new(1); 2]).await;
            assert!(is_corrupt(&answer, &limit), "{case}: {answer:?}");
            let answer = store.inspect(&[Arc::clone(&limit)]).await;
            assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{case}: {answer:?}");
            let answer = settle(&store, &held).await;
            assert!(is_corrupt(&answer, &limit), "{case}: {answer:?}");
            assert_eq!(stand(&store, &[&other]).await, [(0, 0)], "{case}");
            assert_eq!(dump(&server, &key(&limit)), before, "{case}");
            server.command(&["DEL", &key(&limit)]).unwrap();
        }
    }
}

/// By the quick way, by the rules, and where a refusal is kept.
#[tokio::test]
async fn what_is_of_another_type_than_a_reservation_stops_its_call_only() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let day = limit("day", Rule::Calendar(Period::Day));
    let bucket = limit("bucket", Rule::TokenBucket { window: MINUTE });
    for (id, plan) in [(1, plan(&[&day])), (2, plan(&[&day, &bucket]))] {
        for with in OTHER_TYPES {
            let held = reserve(&store, id, &plan).await.unwrap();
            let record = server.command(&["KEYS", "*:r:*"]).unwrap();
            replace(&server, &record, with);
            let (before, stands) = (dump(&server, &record), stand(&store, &[&day, &bucket]).await);
            let answer = store.reserve(held.id, Arc::clone(&plan), Attempt::First).await;
            assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{}: {answer:?}", with[0]);
            let answer = store.extend(&held, 1, &vec![Amount::new(1); plan.entries().len()]).await;
            assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{}: {answer:?}", with[0]);
            let answer = settle(&store, &held).await;
            assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{}: {answer:?}", with[0]);
            let entry = Entry { limit: Arc::clone(&day), charge: Amount::new(1_001) };
            let large = Arc::new(Plan::new(vec![entry]).unwrap());
            let answer = store.reserve(held.id, large, Attempt::Retry).await;
            assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{}: {answer:?}", with[0]);
            assert_eq!(stand(&store, &[&day, &bucket]).await, stands, "{}", with[0]);
            assert_eq!(dump(&server, &record), before, "{}", with[0]);
            server.command(&["DEL", &record]).unwrap();
        }
    }
}

/// A reservation knows by itself what its extensions have charged.
#[tokio::test]
async fn a_reservation_whose_extensions_are_gone_is_settled_in_full() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let (day, open) = (limit("day", Rule::Calendar(Period::Day)), limit("open", Rule::Concurrent));
    let plan = plan(&[&day, &open]);
    for (id, with) in (1..).zip(OTHER_TYPES.into_iter().chain([&["HSET", "key", "1", "x"][..], &["PING"]])) {
        let held = reserve(&store, id, &plan).await.unwrap();
        let verdict = store.extend(&held, 1, &[Amount::new(5), Amount::new(1)]).await.unwrap();
        assert!(matches!(verdict, Verdict::Admitted(_)));
        let extensions = server.command(&["KEYS", "*:x:*"]).unwrap();
        replace(&server, &extensions, with);
        let (before, spent) = (dump(&server, &extensions), 3 * (u64::try_from(id).unwrap() - 1));
        if !matches!(with[0], "HSET" | "PING") {
            let answer = store.extend(&held, 2, &[Amount::new(5), Amount::new(1)]).await;
            assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{with:?}: {answer:?}");
        }
        assert_eq!(stand(&store, &[&day, &open]).await, [(spent, 15), (0, 11)], "{with:?}");
        let answer = settle(&store, &held).await;
        assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{with:?}: {answer:?}");
        assert_eq!(stand(&store, &[&day, &open]).await, [(spent + 3, 0), (0, 0)], "{with:?}");
        assert_eq!(dump(&server, &extensions), before, "{with:?}");
        assert_eq!(settle(&store, &held).await.unwrap(), Settled::Already);
        server.command(&["DEL", &extensions]).unwrap();
    }
}

#[tokio::test]
async fn a_settlement_that_meets_a_record_that_cannot_be_read_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let day = limit("day", Rule::Calendar(Period::Day));
    let held = reserve(&store, 1, &plan(&[&day])).await.unwrap();
    let record = server.command(&["KEYS", "*:r:*"]).unwrap();
    server.command(&["SET", &record, "something else"]).unwrap();
    let answer = settle(&store, &held).await;
    assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{answer:?}");
    assert_eq!(stand(&store, &[&day]).await, [(0, 10)]);
}
