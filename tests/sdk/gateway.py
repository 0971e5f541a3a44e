"""The binary under test and the mock provider behind it, each a process of its own."""

import dataclasses
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

START_SECONDS = 20
STOP_SECONDS = 40
EVENT_SECONDS = 10

PROVIDER_KEY = "provider-key-that-no-client-knows"

# What each tenant is for: the limits below it are the ones its tests run into.
TENANTS = {
    "generous": """
        requests_per_minute = 1_000_000
        tokens_per_minute = 1_000_000_000
        budgets = [{ window = "month", limit_usd = 100_000, mode = "hard" }]
    """,
    "paced": "requests_per_second = 1",
    "small": "tokens_per_minute = 100",
    "broke": 'budgets = [{ window = "month", limit_usd = 0, mode = "hard" }]',
    "purse": 'budgets = [{ window = "total", limit_usd = "0.01", mode = "hard" }]',
    "lenient": 'budgets = [{ window = "month", limit_usd = "0.000001", mode = "soft" }]',
    "restricted": "requests_per_minute = 1_000_000",
}
KEY_MODELS = {"restricted": 'models = ["claude-haiku-*"]'}


def client_key(tenant: str) -> str:
    """The virtual key that a client of `tenant` sends."""
    return f"tollgate-test-{tenant}"


def mock(**behaviour) -> dict:
    """Headers that tell the mock provider how to answer one request."""
    return {f"x-mock-{name.replace('_', '-')}": str(value) for name, value in behaviour.items()}


@dataclasses.dataclass
class Exchange:
    """One HTTP exchange an SDK had with the proxy."""

    path: str
    status: int
    headers: dict
    retry: str | None
    at: float

    @property
    def request_id(self) -> str:
        return self.headers["x-tollgate-request-id"]


class Exchanges(list):
    """Everything one SDK client sent, retries included: what it does not tell by itself."""

    def record(self, response) -> None:
        request = response.request
        retry = request.headers.get("x-stainless-retry-count")
        headers = {name.lower(): value for name, value in response.headers.items()}
        self.append(Exchange(request.url.path, response.status_code, headers, retry, time.monotonic()))

    async def record_async(self, response) -> None:
        self.record(response)


class Gateway:
    """A running mock provider and a running proxy."""

    def __init__(self, folder: Path, more: str = ""):
        self.binary = os.environ["TOLLGATE_BIN"]
        self.usage_file = folder / "usage.jsonl"
        self.clients: list[Exchanges] = []
        self.mock_process, self.mock_url = self._start_mock()
        try:
            port, admin_port = free_ports(2)
            self.url = f"http://127.0.0.1:{port}"
            self.admin_url = f"http://127.0.0.1:{admin_port}"
            self.config = folder / "tollgate.toml"
            self.config.write_text(config_text(self.mock_url, port, admin_port, self.usage_file) + more)
            self.log = open(folder / "tollgate.log", "w+")
            self.process = subprocess.Popen(
                [self.binary, "serve", "--config", str(self.config)],
                cwd=folder,
                env={**os.environ, "TEST_PROVIDER_KEY": PROVIDER_KEY},
                stdout=self.log,
                stderr=subprocess.STDOUT,
            )
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def exchanges(self) -> Exchanges:
        """A record for one SDK client; what it saw is compared with the usage file at the end."""
        self.clients.append(Exchanges())
        return self.clients[-1]

    def events(self) -> list[dict]:
        """Every complete line of the usage file."""
        if not self.usage_file.exists():
            return []
        lines = self.usage_file.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def event(self, request_id: str) -> dict:
        """The event of one call, waited for: the writer batches."""
        found = lambda: [event for event in self.events() if event["request_id"] == request_id]
        events = wait_for(found, EVENT_SECONDS, f"the usage event of {request_id}")
        assert len(events) == 1, events
        return events[0]

    def stop(self) -> int:
        """Asks the proxy to finish and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """Ends whatever still runs."""
        for process in (getattr(self, "process", None), self.mock_process):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(STOP_SECONDS)

    def log_text(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text()

    def _start_mock(self):
        process = subprocess.Popen(
            [self.binary, "mock", "--listen", "127.0.0.1:0", "--print-address"],
            stdout=subprocess.PIPE,
            text=True,
        )
        readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline() if readable else ""
        if not line.startswith("listening on "):
            process.kill()
            raise AssertionError(f"the mock did not say where it listens: {line!r}")
        return process, line.removeprefix("listening on ").strip()

    def _wait_until_ready(self) -> None:
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"the proxy ended with {self.process.returncode}:\n{self.log_text()}")
            try:
                with urllib.request.urlopen(f"{self.admin_url}/readyz", timeout=1) as answer:
                    return json.load(answer)["status"] == "ready"
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return False

        wait_for(ready, START_SECONDS, "the proxy to be ready")


def wait_for(condition, seconds: float, what: str):
    """The first true answer of `condition`, asked until a deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError(f"waited {seconds} s for {what}")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def config_text(mock_url: str, port: int, admin_port: int, usage_file: Path) -> str:
    """A configuration with one tenant for each kind of limit."""
    providers = "".join(
        f"""
[[providers]]
id = "{protocol}"
protocol = "{protocol}"
base_url = "{mock_url}"
api_key_env = "TEST_PROVIDER_KEY"
"""
        for protocol in ("anthropic", "openai")
    )
    tenants = "".join(tenant_text(tenant, limits) for tenant, limits in TENANTS.items())
    return f"""
[server]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin_port}"

[usage]
file = "{usage_file}"
{providers}{tenants}"""


def tenant_text(tenant: str, limits: str) -> str:
    digest = hashlib.sha256(client_key(tenant).encode()).hexdigest()
    lines = "\n".join(line.strip() for line in limits.strip().splitlines())
    return f"""
[[tenants]]
id = "{tenant}"
{lines}
[[tenants.keys]]
id = "{tenant}-key"
hash = "sha256:{digest}"
{KEY_MODELS.get(tenant, "")}
"""
