"""The usage file adds up to what the SDKs saw."""

import anthropic
import openai
import pytest

from gateway import mock

MESSAGES = [{"role": "user", "content": "Say hello."}]


def test_the_events_sum_up_to_the_usage_the_sdks_saw(sdk, gateway):
    claude, gpt = sdk(anthropic.Anthropic), sdk(openai.OpenAI)
    tokens_seen = 0
    for n in range(1, 11):
        headers = mock(input_tokens=10 * n, output_tokens=n)
        message = claude.messages.create(
            model="claude-sonnet-5-5", max_tokens=50, messages=MESSAGES, extra_headers=headers
        )
        tokens_seen += message.usage.input_tokens + message.usage.output_tokens
        completion = gpt.chat.completions.create(
            model="gpt-6-astra", max_completion_tokens=50, messages=MESSAGES, extra_headers=headers
        )
        tokens_seen += completion.usage.total_tokens
    events = [gateway.event(exchange.request_id) for exchange in [*claude.exchanges, *gpt.exchanges]]
    assert sum(event["input_tokens"] + event["output_tokens"] for event in events) == tokens_seen == 1210
    # Sums 1 to 10: 550 input and 55 output tokens at 2 and 10, and at 10 and 50 micro-USD.
    assert sum(event["cost_micro_usd"] for event in events) == 550 * 2 + 55 * 10 + 550 * 10 + 55 * 50


def test_a_hard_budget_is_spent_and_never_passed(sdk, gateway):
    client = sdk(anthropic.Anthropic, "purse")
    call = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": MESSAGES}
    headers = mock(input_tokens=10, output_tokens=100)
    with pytest.raises(anthropic.APIStatusError) as refused:
        for _ in range(20):
            client.messages.create(**call, extra_headers=headers)
    assert refused.value.status_code == 402
    events = [gateway.event(exchange.request_id) for exchange in client.exchanges]
    spent = sum(event["cost_micro_usd"] for event in events if event["type"] == "usage")
    # 0.01 USD; each call really costs 1,020 micro-USD.
    assert 0 < spent <= 10_000 and spent % 1_020 == 0
    assert client.exchanges[-1].headers["x-tollgate-reason"] == "budget_exceeded"


def test_a_soft_budget_lets_pass(sdk, gateway):
    client = sdk(anthropic.Anthropic, "lenient")
    for _ in range(2):
        assert client.messages.create(model="claude-sonnet-5-5", max_tokens=100, messages=MESSAGES).content


def test_a_stream_the_client_leaves_is_charged(sdk, gateway):
    client = sdk(anthropic.Anthropic)
    call = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": MESSAGES, "stream": True}
    headers = mock(input_tokens=10, events=50, hang_after=10)
    stream = client.messages.create(**call, extra_headers=headers)
    assert next(iter(stream)).type == "message_start"
    stream.close()
    event = gateway.event(client.exchanges[-1].request_id)
    assert (event["outcome"], event["usage_estimated"]) == ("client_gone", True)
    assert event["cost_micro_usd"] >= event["reserved_micro_usd"] > 0
