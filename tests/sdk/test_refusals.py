"""Errors reach the official SDKs as their own typed exceptions."""

import anthropic
import openai
import pytest

from gateway import mock

HAIKU, SONNET, ASTRA = "claude-haiku-5-5", "claude-sonnet-5-5", "gpt-6-astra"
MESSAGES = [{"role": "user", "content": "Say hello."}]

BOTH = pytest.mark.parametrize("module", [anthropic, openai], ids=["anthropic", "openai"])


def make(sdk, module, *arguments, **options):
    return sdk(module.Anthropic if module is anthropic else module.OpenAI, *arguments, **options)


def call(client, **options):
    """One plain call with 100 output tokens at most, in the client's protocol."""
    if isinstance(client, anthropic.Anthropic):
        arguments = {"model": SONNET, "max_tokens": 100, "messages": MESSAGES, **options}
        return client.messages.create(**arguments)
    arguments = {"model": ASTRA, "max_completion_tokens": 100, "messages": MESSAGES, **options}
    return client.chat.completions.create(**arguments)


def error_of(error):
    """The error object of the body: the OpenAI SDK unwraps it by itself."""
    return error.body.get("error", error.body)


def without_request_id(body):
    """The mock, as a provider does, numbers its requests."""
    return {name: value for name, value in body.items() if name != "request_id"}


@BOTH
def test_400_of_the_proxy(sdk, module):
    limit = "max_tokens" if module is anthropic else "max_completion_tokens"
    client = make(sdk, module)
    with pytest.raises(module.BadRequestError) as refused:
        call(client, extra_body={limit: "many"})
    assert limit in error_of(refused.value)["message"]
    assert error_of(refused.value)["type"] == "invalid_request_error"


@BOTH
def test_401_for_an_unknown_key(sdk, module):
    client = make(sdk, module, key="tollgate-test-nobody", max_retries=2)
    with pytest.raises(module.AuthenticationError) as refused:
        call(client)
    assert len(client.exchanges) == 1
    assert client.exchanges[0].headers["x-tollgate-reason"] == "unauthenticated"
    assert "tollgate-test-nobody" not in str(refused.value)


@BOTH
def test_402_for_a_budget_without_money_is_not_retried(sdk, module, gateway):
    client = make(sdk, module, "broke", max_retries=2)
    with pytest.raises(module.APIStatusError) as refused:
        call(client)
    assert refused.value.status_code == 402
    assert error_of(refused.value)["type"] == "budget_exceeded"
    assert "broke" in error_of(refused.value)["message"]
    assert len(client.exchanges) == 1, "a 402 was retried"
    event = gateway.event(client.exchanges[0].request_id)
    assert (event["type"], event["reason"], event["status"]) == ("refusal", "budget_exceeded", 402)


@BOTH
def test_403_for_a_model_the_key_may_not_call(sdk, module):
    client = make(sdk, module, "restricted")
    with pytest.raises(module.PermissionDeniedError):
        call(client)
    assert client.exchanges[0].headers["x-tollgate-reason"] == "model_not_allowed"


def test_a_restricted_key_calls_the_models_it_may(sdk):
    assert call(sdk(anthropic.Anthropic, "restricted"), model=HAIKU).content


@BOTH
def test_404_for_a_path_that_cannot_be_metered(sdk, module):
    client = make(sdk, module, max_retries=2)
    path = "/v1/unknown" if module is anthropic else "/unknown"
    with pytest.raises(module.NotFoundError):
        client.post(path, body={}, cast_to=object)
    assert len(client.exchanges) == 1


@BOTH
def test_429_that_can_never_fit_is_not_retried(sdk, module, gateway):
    client = make(sdk, module, "small", max_retries=2)
    with pytest.raises(module.RateLimitError) as refused:
        call(client)
    assert "100" in error_of(refused.value)["message"]
    (only,) = client.exchanges
    assert (only.headers["x-should-retry"], only.headers["retry-after"]) == ("false", "60")
    event = gateway.event(only.request_id)
    assert (event["type"], event["status"]) == ("refusal", 429)


@BOTH
def test_429_that_passes_later_is_retried_when_it_said(sdk, module):
    client = make(sdk, module, "paced", max_retries=4)
    for _ in range(3):
        assert call(client)
    pairs = list(zip(client.exchanges, client.exchanges[1:]))
    waits = [(earlier, later) for earlier, later in pairs if earlier.status == 429]
    assert waits, "three calls at once never met a limit of one a second"
    for earlier, later in waits:
        assert int(later.retry) == int(earlier.retry) + 1
        assert later.at - earlier.at >= int(earlier.headers["retry-after"]) >= 1
    assert [exchange.status for exchange in client.exchanges].count(200) == 3


@BOTH
def test_503_is_the_sdk_s_server_error(sdk, module, gateway):
    client = make(sdk, module)
    with pytest.raises(module.InternalServerError) as failed:
        call(client, extra_headers=mock(status=503))
    assert failed.value.status_code == 503
    event = gateway.event(client.exchanges[0].request_id)
    assert (event["outcome"], event["cost_micro_usd"]) == ("upstream_error", 0)


@BOTH
@pytest.mark.parametrize("status", [400, 404, 413, 429, 500, 529])
def test_a_provider_s_error_passes_unchanged(sdk, module, gateway, status):
    raised = []
    for base_url in (None, gateway.mock_url):
        client = make(sdk, module, base_url=base_url)
        with pytest.raises(module.APIStatusError) as failed:
            call(client, extra_headers=mock(status=status))
        raised.append(failed.value)
    through, direct = raised
    assert through.status_code == direct.status_code == status
    assert type(through) is type(direct)
    assert without_request_id(through.body) == without_request_id(direct.body)
    assert through.response.headers.get("retry-after") == direct.response.headers.get("retry-after")


@BOTH
def test_a_provider_that_resets_is_a_502_in_the_client_s_protocol(sdk, module, gateway):
    client = make(sdk, module)
    with pytest.raises(module.InternalServerError) as failed:
        call(client, extra_headers=mock(start="reset"))
    assert failed.value.status_code == 502
    assert gateway.event(client.exchanges[0].request_id)["cost_micro_usd"] == 0
