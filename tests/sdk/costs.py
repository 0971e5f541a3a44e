"""What a call must cost by the usage the SDK saw, at the reference prices."""

from fractions import Fraction
from math import ceil

# Micro-USD a token, which is USD a million tokens.
SONNET = {
    "input_tokens": Fraction(2),
    "output_tokens": Fraction(10),
    "cache_read_tokens": Fraction(1, 10),
    "cache_write_5m_tokens": Fraction(5, 2),
    "cache_write_1h_tokens": Fraction(4),
}
ASTRA = {"input_tokens": Fraction(10), "output_tokens": Fraction(50)}


def assert_settled_as_seen(event, usage):
    """An Anthropic `usage` and the event of the same call agree, to the last pico-USD."""
    created = usage.cache_creation
    seen = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_input_tokens or 0,
        "cache_write_5m_tokens": created.ephemeral_5m_input_tokens if created else usage.cache_creation_input_tokens or 0,
        "cache_write_1h_tokens": created.ephemeral_1h_input_tokens if created else 0,
    }
    assert_priced(event, seen, SONNET)


def assert_openai_settled_as_seen(event, usage):
    """An OpenAI `usage` without cached tokens and the event of the same call agree."""
    assert_priced(event, {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}, ASTRA)


def assert_priced(event, seen, rates):
    assert {name: event[name] for name in seen} == seen
    cost = sum(rates[name] * count for name, count in seen.items())
    assert event["cost_micro_usd"] == ceil(cost)
    if cost.denominator != 1:
        assert event["cost_pico_usd"] == cost * 1_000_000
