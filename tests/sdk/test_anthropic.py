"""The official Anthropic SDK through the proxy."""

import asyncio

import anthropic
import pytest

from costs import assert_settled_as_seen
from gateway import client_key, mock

MODEL = "claude-sonnet-5-5"
CALL = {"model": MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": "Say hello."}]}
TOOLS = [
    {
        "name": "weather",
        "description": "The weather of a city.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]


@pytest.fixture
def client(sdk):
    return sdk(anthropic.Anthropic)


def test_a_plain_message_is_answered_and_settled(client, gateway):
    headers = mock(input_tokens=120, output_tokens=45, cache_read_tokens=1000, cache_write_5m_tokens=30)
    message = client.messages.create(**CALL, extra_headers=headers)
    assert message.content[0].text
    assert (message.usage.input_tokens, message.usage.output_tokens) == (120, 45)
    event = gateway.event(client.exchanges[-1].request_id)
    assert (event["outcome"], event["stream"], event["usage_estimated"]) == ("complete", False, False)
    assert_settled_as_seen(event, message.usage)


def test_a_streamed_message_is_answered_and_settled(client, gateway):
    with client.messages.stream(**CALL, extra_headers=mock(output_tokens=60)) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text and message.content[0].text == text
    event = gateway.event(client.exchanges[-1].request_id)
    assert (event["outcome"], event["stream"]) == ("complete", True)
    assert_settled_as_seen(event, message.usage)


def test_raw_stream_events_arrive_in_order(client, gateway):
    stream = client.messages.create(**CALL, stream=True, extra_headers=mock(output_tokens=30, events=5))
    kinds = [event.type for event in stream]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert kinds.count("content_block_delta") == 5
    assert gateway.event(client.exchanges[-1].request_id)["output_tokens"] == 30


def test_a_tool_is_called_and_its_result_sent_back(client, gateway):
    first = client.messages.create(**CALL, tools=TOOLS, extra_headers=mock(tool_use="yes"))
    call = next(block for block in first.content if block.type == "tool_use")
    assert (first.stop_reason, call.name) == ("tool_use", "weather")
    turn = [
        *CALL["messages"],
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]},
    ]
    second = client.messages.create(**{**CALL, "messages": turn}, tools=TOOLS)
    assert second.stop_reason == "end_turn"
    assert_settled_as_seen(gateway.event(client.exchanges[-1].request_id), second.usage)


def test_a_tool_call_is_streamed(client):
    with client.messages.stream(**CALL, tools=TOOLS, extra_headers=mock(tool_use="yes")) as stream:
        message = stream.get_final_message()
    assert message.content[0].type == "tool_use" and isinstance(message.content[0].input, dict)


def test_tokens_are_counted_at_no_cost(client, gateway):
    call = {"model": MODEL, "messages": CALL["messages"], "tools": TOOLS}
    assert client.messages.count_tokens(**call).input_tokens > 0
    spent = [event for event in gateway.events() if event.get("path") == "/v1/messages/count_tokens"]
    assert all(event["cost_micro_usd"] == 0 for event in spent)


def test_models_are_listed(client):
    assert MODEL in [model.id for model in client.models.list()]


def test_the_key_may_come_as_a_bearer_token(gateway):
    client = anthropic.Anthropic(auth_token=client_key("generous"), base_url=gateway.url, max_retries=0)
    with client:
        assert client.messages.create(**CALL).content


def test_async_plain_and_streamed(sdk, gateway):
    async def run():
        async with sdk(anthropic.AsyncAnthropic) as client:
            plain = await client.messages.create(**CALL)
            async with client.messages.stream(**CALL) as stream:
                text = "".join([text async for text in stream.text_stream])
                streamed = await stream.get_final_message()
            return client.exchanges, plain, text, streamed

    exchanges, plain, text, streamed = asyncio.run(run())
    assert plain.content[0].text and text
    assert_settled_as_seen(gateway.event(exchanges[0].request_id), plain.usage)
    assert_settled_as_seen(gateway.event(exchanges[1].request_id), streamed.usage)


def test_async_calls_run_side_by_side(sdk, gateway):
    async def run():
        async with sdk(anthropic.AsyncAnthropic) as client:
            calls = [client.messages.create(**CALL, extra_headers=mock(output_tokens=n)) for n in range(1, 21)]
            return client.exchanges, await asyncio.gather(*calls)

    exchanges, messages = asyncio.run(run())
    events = [gateway.event(exchange.request_id) for exchange in exchanges]
    assert sum(event["output_tokens"] for event in events) == sum(m.usage.output_tokens for m in messages) == 210
