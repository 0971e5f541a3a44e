"""Start, stop and what is remembered in between. Each test runs a proxy of its own."""

import json
import signal
import urllib.error
import urllib.request

import anthropic
import pytest

from gateway import EVENT_SECONDS, STOP_SECONDS, Gateway, client_key, mock, wait_for

# The files are looked at every second, and read once two looks agree.
RELOAD_SECONDS = 15

CALL = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Say hello."}],
}


@pytest.fixture
def start(tmp_path):
    """Starts proxies that share a folder, and with it the usage file."""
    started = []

    def start():
        started.append(Gateway(tmp_path))
        return started[-1]

    yield start
    for gateway in started:
        gateway.kill()


def connect(gateway, tenant):
    exchanges = gateway.exchanges()
    client = anthropic.Anthropic(
        api_key=client_key(tenant),
        base_url=gateway.url,
        max_retries=0,
        http_client=anthropic.DefaultHttpxClient(event_hooks={"response": [exchanges.record]}),
    )
    client.exchanges = exchanges
    return client


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_stream_that_is_open_at_sigterm_is_finished_and_settled(start):
    gateway = start()
    assert (status(f"{gateway.admin_url}/healthz"), status(f"{gateway.admin_url}/readyz")) == (200, 200)
    client = connect(gateway, "generous")
    headers = mock(output_tokens=50, events=50, interval_ms=40)
    stream = iter(client.messages.create(**CALL, stream=True, extra_headers=headers))
    assert next(stream).type == "message_start"
    gateway.process.send_signal(signal.SIGTERM)
    wait_for(lambda: status(f"{gateway.admin_url}/readyz") == 503, 10, "readiness to end")
    assert status(f"{gateway.admin_url}/healthz") == 200, "a process that drains is healthy"
    assert [event.type for event in stream][-1] == "message_stop"
    client.close()
    assert gateway.process.wait(STOP_SECONDS) == 0, gateway.log_text()
    event = gateway.event(client.exchanges[-1].request_id)
    assert (event["outcome"], event["output_tokens"]) == ("complete", 50)


@pytest.mark.parametrize("end", ["stopped", "killed", "killed within a line"])
def test_a_budget_is_not_forgotten_at_a_restart(start, end):
    first = start()
    client = connect(first, "purse")
    spend_it_all(client)
    for exchange in client.exchanges:
        first.event(exchange.request_id)
    client.close()
    if end == "stopped":
        assert first.stop() == 0
    else:
        first.kill()
    if end == "killed within a line":
        with open(first.usage_file, "a") as usage:
            usage.write('{"v":1,"type":"usage","ts":"2026-')
    client = connect(start(), "purse")
    with pytest.raises(anthropic.APIStatusError) as refused:
        client.messages.create(**CALL)
    client.close()
    assert refused.value.status_code == 402


def spend_it_all(client):
    with pytest.raises(anthropic.APIStatusError) as refused:
        for _ in range(20):
            client.messages.create(**CALL, extra_headers=mock(input_tokens=10, output_tokens=100))
    assert refused.value.status_code == 402


def test_a_changed_configuration_is_taken_over_and_a_wrong_one_is_not(start):
    gateway = start()
    client = connect(gateway, "paced")
    before = gateway.config.read_text()

    # By SIGHUP, without a change: the running configuration in place of itself.
    gateway.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "configuration reloaded" in gateway.log_text(), EVENT_SECONDS, "a reload")

    # By a change of the file alone: the tenant's budget is gone.
    assert connect(gateway, "generous").messages.create(**CALL).id
    gateway.config.write_text(before.replace("limit_usd = 100_000", "limit_usd = 0"))
    wait_for(lambda: refused(gateway, "generous") == 402, RELOAD_SECONDS, "the new budget")

    # A file that cannot be read as a configuration leaves everything as it is, and says so.
    gateway.config.write_text(before.replace("limit_usd = 100_000", "limit_usd = false"))
    wait_for(lambda: readiness(gateway)["config"] == "rejected", RELOAD_SECONDS, "the refusal of a wrong file")
    assert "limit_usd" in readiness(gateway)["config_problem"]
    assert "configuration not reloaded" in gateway.log_text()
    assert refused(gateway, "generous") == 402

    gateway.config.write_text(before)
    wait_for(lambda: readiness(gateway)["config"] == "ok", RELOAD_SECONDS, "the old file")
    assert client.messages.create(**CALL).id
    assert gateway.stop() == 0


def refused(gateway, tenant):
    """The status of a call that may be refused."""
    try:
        connect(gateway, tenant).messages.create(**CALL)
        return 200
    except anthropic.APIStatusError as error:
        return error.status_code


def readiness(gateway):
    with urllib.request.urlopen(f"{gateway.admin_url}/readyz", timeout=5) as answer:
        return json.load(answer)
