"""The example configurations are ones that run."""

import json
import os
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRETS = {"ANTHROPIC_API_KEY": "sk-ant-example", "OPENAI_API_KEY": "sk-example"}


def run(command, *arguments, example="tollgate.toml", **environment):
    return subprocess.run(
        [os.environ["TOLLGATE_BIN"], command, "--config", str(EXAMPLES / example), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize("example", ["tollgate.toml", "limits.toml"])
def test_the_example_configurations_pass_their_check(example):
    checked = run("check", example=example, **SECRETS)
    assert checked.returncode == 0, checked.stderr
    assert "acme" in checked.stdout
    # A budget of sessions bounds no call without one, and the check says so whatever else bounds it.
    warnings = [line for line in checked.stdout.splitlines() if line.startswith("warning")]
    assert all("x-tollgate-session" in warning for warning in warnings), warnings
    assert not [secret for secret in SECRETS.values() if secret in checked.stdout + checked.stderr]


@pytest.mark.parametrize(("command", "status"), [("check", 1), ("serve", 78)])
def test_a_missing_secret_is_named(command, status):
    refused = run(command, ANTHROPIC_API_KEY="sk-ant-example")
    assert refused.returncode == status
    assert "OPENAI_API_KEY" in refused.stderr


def test_a_request_is_explained_without_being_sent():
    request = str(EXAMPLES / "request.json")
    explained = run("explain", "--key", "agents", request, example="limits.toml", **SECRETS)
    assert explained.returncode == 0, explained.stderr
    for part in ["POST /v1/messages (anthropic)", "user ann", "reserves"]:
        assert part in explained.stdout
    as_json = run("explain", "--key", "agents", "--json", request, example="limits.toml", **SECRETS)
    limits = json.loads(as_json.stdout)["limits"]
    assert {"global", "team", "user", "provider", "model", "session"} == {limit["scope"] for limit in limits}
    header = ["--header", "x-tollgate-team: other"]
    refused = run("explain", "--key", "agents", *header, request, example="limits.toml", **SECRETS)
    assert refused.returncode == 1 and "attribute_not_allowed" in refused.stderr
