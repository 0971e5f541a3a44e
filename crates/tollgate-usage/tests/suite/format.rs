//! The lines as people and tools see them.

use crate::common::{line, refusal, usage};
use tollgate_limiter::{ExactAmount, MicroUsd, TimestampMs, Tokens};
use tollgate_usage::{Event, FirstReserved, ModelUse, Outcome, TokenCounts};

#[test]
fn a_usage_event_has_the_specified_fields_in_the_specified_order() {
    let expected = concat!(
        r#"{"v":1,"type":"usage","ts":"2026-11-29T10:04:00.123Z","request_id":"r-1","tenant":"acme","key":"ci","#,
        r#""attributes":{"team":"ml"},"session":"s-1","session_derived":true,"provider":"anthropic","#,
        r#""model":"claude-sonnet-5-5","path":"/v1/messages","stream":true,"status":200,"outcome":"complete","#,
        r#""input_tokens":12,"cache_read_tokens":0,"cache_write_5m_tokens":0,"cache_write_1h_tokens":0,"#,
        r#""output_tokens":34,"reasoning_tokens":0,"usage_estimated":false,"service_tier":"standard","#,
        r#""reserved_micro_usd":41000,"reserved_output_tokens":4096,"cost_micro_usd":364,"#,
        r#""estimated_input_tokens":11,"duration_ms":1840,"ttfb_ms":320}"#,
        "\n",
    );
    assert_eq!(line(&Event::Usage(usage("r-1"))), expected);
}

#[test]
fn optional_fields_appear_when_they_say_something() {
    let mut event = usage("r-1");
    event.ts = TimestampMs::new(1_795_946_640_000);
    event.session = None;
    event.service_tier = None;
    event.ttfb = None;
    event.caller_attributes = vec!["team"];
    event.requested_model = Some("sonnet".into());
    event.outcome = Outcome::CutOff;
    event.cost = ExactAmount::from_millionths(1_000_001);
    event.first_reserved =
        Some(Box::new(FirstReserved { cost: MicroUsd::new(2_050), output: Tokens::new(1_024) }));
    event.flags = vec!["price_fallback", "usage_clamped"];
    event.tokens = TokenCounts {
        cache_write: 1,
        audio_input: 2,
        cached_audio_input: 3,
        image_input: 4,
        audio_output: 5,
        image_output: 6,
        web_searches: 7,
        web_fetches: 8,
        ..TokenCounts::default()
    };
    event.others =
        vec![ModelUse { model: "small".into(), tokens: TokenCounts { input: 9, ..TokenCounts::default() } }];
    let expected = concat!(
        r#"{"v":1,"type":"usage","ts":"2026-11-29T10:04:00.000Z","request_id":"r-1","tenant":"acme","key":"ci","#,
        r#""attributes":{"team":"ml"},"caller_attributes":["team"],"provider":"anthropic","#,
        r#""model":"claude-sonnet-5-5","requested_model":"sonnet","path":"/v1/messages","stream":true,"status":200,"outcome":"cut_off","input_tokens":0,"cache_read_tokens":0,"#,
        r#""cache_write_5m_tokens":0,"cache_write_1h_tokens":0,"output_tokens":0,"reasoning_tokens":0,"#,
        r#""cache_write_tokens":1,"audio_input_tokens":2,"cached_audio_input_tokens":3,"image_input_tokens":4,"#,
        r#""audio_output_tokens":5,"image_output_tokens":6,"web_search_requests":7,"web_fetch_requests":8,"#,
        r#""usage_estimated":false,"reserved_micro_usd":41000,"reserved_output_tokens":4096,"#,
        r#""first_reserved_micro_usd":2050,"first_reserved_output_tokens":1024,"cost_micro_usd":2,"#,
        r#""cost_pico_usd":1000001,"estimated_input_tokens":11,"duration_ms":1840,"flags":["price_fallback","usage_clamped"],"#,
        r#""others":[{"model":"small","input_tokens":9,"cache_read_tokens":0,"cache_write_5m_tokens":0,"#,
        r#""cache_write_1h_tokens":0,"output_tokens":0,"reasoning_tokens":0}]}"#,
        "\n",
    );
    assert_eq!(line(&Event::Usage(event)), expected);
}

#[test]
fn a_refusal_names_the_limit_and_the_charge() {
    let expected = concat!(
        r#"{"v":1,"type":"refusal","ts":"2026-11-29T10:04:00.000Z","request_id":"r-1","tenant":"acme","key":"ci","#,
        r#""attributes":{},"provider":"anthropic","model":"claude-sonnet-5-5","path":"/v1/messages","status":402,"#,
        r#""reason":"budget_exceeded","limit":{"scope":"tenant","id":"acme","unit":"micro_usd","window":"day","#,
        r#""limit":10000,"spent":9900,"held":50},"charge":223,"retry_after_ms":1000}"#,
        "\n",
    );
    assert_eq!(line(&Event::Refusal(refusal("r-1"))), expected);
    let mut bare = refusal("r-1");
    (bare.provider, bare.limit, bare.retry_after) = (None, None, None);
    let text = line(&Event::Refusal(bare));
    assert!(
        text.contains(r#""attributes":{},"model""#)
            && text.ends_with("\"reason\":\"budget_exceeded\",\"charge\":223}\n")
    );
}

#[test]
fn no_text_breaks_a_line() {
    let mut event = usage("a\nb\r\u{2028}\u{0}\"\\");
    event.model = "\u{85}\u{b}\n".into();
    let text = line(&Event::Usage(event));
    assert_eq!(text.matches(['\n', '\r', '\0']).count(), 1, "{text:?}");
}
