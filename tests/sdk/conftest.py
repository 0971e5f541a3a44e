"""Fixtures: one proxy for the whole run, SDK clients for any tenant of it."""

import anthropic
import openai
import pytest

from gateway import PROVIDER_KEY, TENANTS, Gateway, client_key

# Answers of these are refusals or bills, and each has a line in the usage file.
RECORDED_STATUSES = {200, 402, 429}
BILLED_PATHS = ("/v1/messages", "/v1/chat/completions")


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    gateway = Gateway(tmp_path_factory.mktemp("gateway"))
    try:
        yield gateway
        assert gateway.stop() == 0, gateway.log_text()
        assert_usage_file_is_complete(gateway)
        assert_no_credential_was_written(gateway)
    finally:
        gateway.kill()


def assert_usage_file_is_complete(gateway):
    assert gateway.usage_file.read_text().endswith("\n")
    written = [event["request_id"] for event in gateway.events()]
    assert len(written) == len(set(written)), "a call has two lines"
    seen = [exchange for exchanges in gateway.clients for exchange in exchanges]
    billed = [e for e in seen if e.path in BILLED_PATHS and e.status in RECORDED_STATUSES]
    assert billed and {e.request_id for e in billed} <= set(written), "a call has no line"


def assert_no_credential_was_written(gateway):
    secrets = [PROVIDER_KEY, *map(client_key, TENANTS)]
    for text in (gateway.usage_file.read_text(), gateway.log_text()):
        assert not [secret for secret in secrets if secret in text]


@pytest.fixture
def sdk(gateway):
    """Makes SDK clients and closes the synchronous ones."""
    made = []

    def make(kind, tenant="generous", key=None, base_url=None, **options):
        exchanges = gateway.exchanges()
        if base_url is not None:
            gateway.clients.remove(exchanges)
        client = kind(
            api_key=key or client_key(tenant),
            base_url=(base_url or gateway.url) + ("/v1" if "OpenAI" in kind.__name__ else ""),
            http_client=http_client(kind, exchanges),
            **{"max_retries": 0, "timeout": 30, **options},
        )
        client.exchanges = exchanges
        made.append(client)
        return client

    yield make
    for client in made:
        if isinstance(client, (anthropic.Anthropic, openai.OpenAI)):
            client.close()


def http_client(kind, exchanges):
    module = openai if "OpenAI" in kind.__name__ else anthropic
    if "Async" in kind.__name__:
        return module.DefaultAsyncHttpxClient(event_hooks={"response": [exchanges.record_async]})
    return module.DefaultHttpxClient(event_hooks={"response": [exchanges.record]})
