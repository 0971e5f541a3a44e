"""The official OpenAI SDK through the proxy."""

import asyncio

import openai
import pytest

from costs import assert_openai_settled_as_seen
from gateway import mock

MODEL = "gpt-6-astra"
CALL = {"model": MODEL, "max_completion_tokens": 200, "messages": [{"role": "user", "content": "Say hello."}]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@pytest.fixture
def client(sdk):
    return sdk(openai.OpenAI)


def test_a_plain_completion_is_answered_and_settled(client, gateway):
    completion = client.chat.completions.create(**CALL, extra_headers=mock(input_tokens=70, output_tokens=33))
    assert completion.choices[0].message.content
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (70, 33)
    event = gateway.event(client.exchanges[-1].request_id)
    assert (event["outcome"], event["stream"], event["usage_estimated"]) == ("complete", False, False)
    assert_openai_settled_as_seen(event, completion.usage)


def test_cached_and_reasoning_tokens_are_told_apart(client, gateway):
    headers = mock(input_tokens=70, cache_read_tokens=500, output_tokens=90, reasoning_tokens=60)
    usage = client.chat.completions.create(**CALL, extra_headers=headers).usage
    event = gateway.event(client.exchanges[-1].request_id)
    assert event["input_tokens"] + event["cache_read_tokens"] == usage.prompt_tokens == 570
    assert event["cache_read_tokens"] == usage.prompt_tokens_details.cached_tokens == 500
    assert event["reasoning_tokens"] == usage.completion_tokens_details.reasoning_tokens == 60
    assert event["output_tokens"] == usage.completion_tokens == 90


def test_a_stream_that_asks_for_usage_gets_it(client, gateway):
    options = {"include_usage": True}
    stream = client.chat.completions.create(**CALL, stream=True, stream_options=options)
    chunks = list(stream)
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert_openai_settled_as_seen(gateway.event(client.exchanges[-1].request_id), chunks[-1].usage)


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}], ids=["unasked", "refused"])
def test_a_stream_without_usage_shows_none_and_is_metered_all_the_same(client, gateway, options):
    headers = mock(input_tokens=70, output_tokens=33)
    chunks = list(client.chat.completions.create(**CALL, stream=True, **options, extra_headers=headers))
    assert all(chunk.choices for chunk in chunks), "the usage chunk reached a client that did not ask for it"
    assert all(chunk.usage is None for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    event = gateway.event(client.exchanges[-1].request_id)
    assert (event["input_tokens"], event["output_tokens"], event["usage_estimated"]) == (70, 33, False)


def test_the_stream_helper_collects_the_answer(client):
    with client.chat.completions.stream(**CALL) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content


def test_a_tool_is_called_and_its_result_sent_back(client, gateway):
    first = client.chat.completions.create(**CALL, tools=TOOLS, extra_headers=mock(tool_use="yes"))
    call = first.choices[0].message.tool_calls[0]
    assert (first.choices[0].finish_reason, call.function.name) == ("tool_calls", "weather")
    turn = [
        *CALL["messages"],
        first.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    second = client.chat.completions.create(**{**CALL, "messages": turn}, tools=TOOLS)
    assert second.choices[0].finish_reason == "stop"
    assert_openai_settled_as_seen(gateway.event(client.exchanges[-1].request_id), second.usage)


def test_a_tool_call_is_streamed(client):
    chunks = list(client.chat.completions.create(**CALL, tools=TOOLS, stream=True, extra_headers=mock(tool_use="yes")))
    deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert deltas[0].function.name == "weather"


def test_models_are_listed(client):
    assert MODEL in [model.id for model in client.models.list()]


def test_async_plain_and_streamed(sdk, gateway):
    async def run():
        async with sdk(openai.AsyncOpenAI) as client:
            plain = await client.chat.completions.create(**CALL)
            stream = await client.chat.completions.create(**CALL, stream=True)
            return client.exchanges, plain, [chunk async for chunk in stream]

    exchanges, plain, chunks = asyncio.run(run())
    assert plain.choices[0].message.content and all(chunk.choices for chunk in chunks)
    assert_openai_settled_as_seen(gateway.event(exchanges[0].request_id), plain.usage)
    assert gateway.event(exchanges[1].request_id)["output_tokens"] > 0
