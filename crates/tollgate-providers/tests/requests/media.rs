//! Images, documents and recordings count by what they are, never by their base64.

use super::*;

/// Base64 of the header of a 1000 × 600 px PNG, and as much after it as is wanted.
fn png(bytes: usize) -> String {
    format!("iVBORw0KGgoAAAANSUhEUgAAA+gAAAJYCAIAAAC5{}", "QUJD".repeat(bytes / 3))
}

/// A 36 × 22 grid of 28 px patches.
const PNG_TOKENS: u64 = 36 * 22;

#[test]
fn c34_a_large_inline_image_counts_as_an_image() {
    let body = messages(&format!(
        r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{}"}}}}"#,
        png(1_900_000)
    ));
    let tokens = tokens(MESSAGES, &body);
    assert!((PNG_TOKENS..PNG_TOKENS + 50).contains(&tokens), "{tokens}");
}

#[test]
fn c35_every_inline_shape_counts_as_an_image() {
    let data = png(300_000);
    let url = format!("data:image/png;base64,{data}");
    for block in [
        format!(
            r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}"#
        ),
        // Fields in another order, and without a media type.
        format!(
            r#"{{"source":{{"data":"{data}","media_type":"image/png","type":"base64"}},"type":"image"}}"#
        ),
        format!(r#"{{"type":"image","source":{{"type":"base64","data":"{data}"}}}}"#),
        format!(r#"{{"type":"image","source":{{"type":"url","url":"{url}"}}}}"#),
        format!(
            r#"{{"type":"tool_result","tool_use_id":"t","content":[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}]}}"#
        ),
        format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#),
        format!(r#"{{"type":"input_image","image_url":"{url}"}}"#),
    ] {
        let tokens = tokens(MESSAGES, &messages(&block));
        assert!((PNG_TOKENS..PNG_TOKENS + 60).contains(&tokens), "{tokens}: {block:.120}");
    }
}

#[test]
fn openai_images_follow_the_rule_of_the_model_and_the_detail() {
    let part = |detail: &str| {
        format!(
            r#"{{"type":"image_url","image_url":{{"detail":"{detail}","url":"data:image/png;base64,{}"}}}}"#,
            png(9_000)
        )
    };
    let of = |model: &str, detail: &str| {
        let with = tokens(CHAT, &chat(&part(detail)).replace("gpt-4o", model));
        with - tokens(CHAT, &chat("").replace("gpt-4o", model))
    };
    assert_eq!(of("gpt-4o", "auto"), 85 + 4 * 170);
    assert_eq!(of("gpt-4o", "low"), 85);
    assert_eq!(of("gpt-4o-mini", "high"), 2_833 + 4 * 5_667);
    assert_eq!(of("gpt-4.1-mini", "high"), (32 * 19 * 162_u64).div_ceil(100));
    assert_eq!(of("o3", "high"), 75 + 4 * 150);
}

#[test]
fn an_image_that_cannot_be_read_counts_as_the_largest() {
    let block = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}"#;
    let tokens = tokens(MESSAGES, &messages(block));
    assert!((1_568..1_600).contains(&tokens), "{tokens}");
}

#[test]
fn text_cannot_pass_for_an_image() {
    let text = "many words in a long row ".repeat(4_000);
    for block in [
        format!(r#"{{"type":"text","text":"{text}"}}"#),
        format!(r#"{{"type":"text","text":"data:image/png;base64,{text}"}}"#),
        format!(
            r#"{{"type":"document","source":{{"type":"text","media_type":"image/png","data":"{text}"}}}}"#
        ),
        format!(r#"{{"type":"document","source":{{"type":"text","data":"iVBORw0KGgo{text}"}}}}"#),
        format!(
            r#"{{"type":"tool_use","id":"t","name":"n","input":{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{text}"}}}}}}"#
        ),
    ] {
        assert!(tokens(MESSAGES, &messages(&block)) > 20_000, "{block:.90}");
    }
}

#[test]
fn pdfs_count_by_page() {
    // "%PDF-1.4 ", then one page object to each twelve characters of base64.
    let document = |pages: usize| {
        // "/Type/Page \n" is "L1R5cGUvUGFnZSAK".
        format!("JVBERi0xLjQg{}", "L1R5cGUvUGFnZSAK".repeat(pages))
    };
    let of = |data: &str| {
        let block = format!(
            r#"{{"type":"document","source":{{"type":"base64","media_type":"application/pdf","data":"{data}"}}}}"#
        );
        tokens(MESSAGES, &messages(&block)) - tokens(MESSAGES, &messages(""))
    };
    let page = of(&document(1));
    assert!((4_500..4_600).contains(&page), "{page}");
    assert_eq!(of(&document(30)), 30 * page);
    let file = format!(
        r#"{{"type":"file","file":{{"filename":"a.pdf","file_data":"data:application/pdf;base64,{}"}}}}"#,
        document(2)
    );
    assert!(tokens(CHAT, &chat(&file)) > 2 * 3_000);
}

#[test]
fn recordings_count_by_length() {
    // 16 kHz, 16 bit, mono: 32,000 bytes a second; ten seconds.
    let header = "UklGRgAAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YQAA";
    let part =
        |data: &str| format!(r#"{{"type":"input_audio","input_audio":{{"format":"wav","data":"{data}"}}}}"#);
    let body = chat(&part(&format!("{header}{}", "AAAA".repeat(320_000 / 3))));
    assert!(facts(CHAT, &body).audio);
    let tokens = tokens(CHAT, &body) - tokens(CHAT, &chat(""));
    assert!((100..130).contains(&tokens), "{tokens}");
}

#[test]
fn a_thirty_megabyte_body_is_read() {
    let block = format!(
        r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{}"}}}}"#,
        png(22 << 20)
    );
    let body = messages(&block);
    assert!(body.len() > 30_000_000);
    assert!(tokens(MESSAGES, &body) < 1_000);
}

#[test]
fn documents_that_are_not_in_the_body_count_as_ten_pages() {
    let of = |body: &str, empty: &str, endpoint| tokens(endpoint, body) - tokens(endpoint, empty);
    for block in [
        r#"{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"}}"#,
        r#"{"source":{"type":"url","url":"https://example.com/a.pdf"},"type":"document"}"#,
        r#"{"type":"document","source":{"type":"file","file_id":"file_1"}}"#,
        r#"{"source":{"file_id":"file_1","type":"file"},"type":"document"}"#,
        r#"{"type":"container_upload","file_id":"file_1"}"#,
        r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"document","source":{"type":"url","url":"https://a"}}]}"#,
        // A block that says it is two things is the larger.
        r#"{"type":"image","source":{"type":"url","url":"https://a"},"type":"document"}"#,
    ] {
        let tokens = of(&messages(block), &messages(""), MESSAGES);
        assert!((25_000..25_100).contains(&tokens), "{tokens}: {block}");
    }
    let part = r#"{"type":"file","file":{"file_id":"file-1"}}"#;
    let tokens = of(&chat(&format!("{part},{part}")), &chat(""), CHAT);
    assert!((50_000..50_100).contains(&tokens), "{tokens}");
}

#[test]
fn images_that_are_not_in_the_body_count_as_the_largest() {
    for source in
        [r#"{"type":"url","url":"https://example.com/a.png"}"#, r#"{"type":"file","file_id":"file_1"}"#]
    {
        for block in [
            format!(r#"{{"type":"image","source":{source}}}"#),
            format!(r#"{{"source":{source},"type":"image"}}"#),
        ] {
            let tokens = tokens(MESSAGES, &messages(&block)) - tokens(MESSAGES, &messages(""));
            assert!((1_568..1_600).contains(&tokens), "{tokens}: {block}");
        }
    }
    // A document beside an image does not make it one, nor the other way round.
    let both = r#"{"type":"tool_result","content":[
        {"type":"image","source":{"type":"url","url":"https://a"}},
        {"type":"document","source":{"type":"url","url":"https://b"}}]}"#;
    let tokens = tokens(MESSAGES, &messages(both)) - tokens(MESSAGES, &messages(""));
    assert!((26_568..26_650).contains(&tokens), "{tokens}");
}

#[test]
fn recordings_that_are_not_in_the_body_count_as_five_minutes() {
    let spoken = r#"{"model":"gpt-audio","messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}"#;
    let facts = facts(CHAT, spoken);
    assert!(facts.audio && facts.hidden_input);
    assert!((3_000..3_050).contains(&tokens(CHAT, spoken)));
    let unspoken = spoken.replace(r#"{"id":"audio_1"}"#, "null");
    assert!(tokens(CHAT, &unspoken) < 50);
}
