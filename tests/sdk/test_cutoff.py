"""A stream that is cut off reaches the official SDKs as their API error: neither as its end nor as a broken
connection."""

import anthropic
import openai
import pytest

from gateway import EVENT_SECONDS, Gateway, client_key, mock, wait_for

MESSAGES = [{"role": "user", "content": "Say hello."}]
RESERVATION = "[reservation]\noutput_tokens = 100\nextend_tokens = 100\n"


@pytest.fixture
def gateway(tmp_path):
    """A proxy of its own, whose streams are extended by small steps."""
    gateway = Gateway(tmp_path, RESERVATION)
    yield gateway
    assert gateway.stop() == 0, gateway.log_text()


LONG = mock(output_tokens=20_000, events=400, interval_ms=2)


def test_anthropic_raises_its_api_error(gateway):
    client = anthropic.Anthropic(api_key=client_key("purse"), base_url=gateway.url, max_retries=0)
    seen = []
    with client, pytest.raises(anthropic.APIStatusError) as cut_off:
        arguments = {"model": "claude-sonnet-5-5", "max_tokens": 32_000, "messages": MESSAGES}
        for event in client.messages.create(**arguments, stream=True, extra_headers=LONG):
            seen.append(event.type)
    check(cut_off.value, seen, gateway)


def test_openai_raises_its_api_error(gateway):
    client = openai.OpenAI(api_key=client_key("purse"), base_url=f"{gateway.url}/v1", max_retries=0)
    seen = []
    with client, pytest.raises(openai.APIError) as cut_off:
        arguments = {"model": "gpt-6-astra", "max_completion_tokens": 32_000, "messages": MESSAGES}
        for chunk in client.chat.completions.create(**arguments, stream=True, extra_headers=LONG):
            seen.append(chunk.object)
    assert not isinstance(cut_off.value, openai.APIConnectionError)
    check(cut_off.value, seen, gateway)


def check(error, seen, gateway):
    assert "budget_exceeded" in str(error.body)
    assert "budget of tenant `purse`" in error.message
    assert len(seen) > 3 and "message_stop" not in seen
    events = wait_for(gateway.events, EVENT_SECONDS, "the usage event")
    assert [event["outcome"] for event in events] == ["cut_off"]
    assert events[0]["usage_estimated"]
