"""The example configuration is one that runs."""

import os
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tollgate.toml"
SECRETS = {"ANTHROPIC_API_KEY": "sk-ant-example", "OPENAI_API_KEY": "sk-example"}


def run(command, **environment):
    return subprocess.run(
        [os.environ["TOLLGATE_BIN"], command, "--config", str(EXAMPLE)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_the_example_configuration_passes_its_check():
    checked = run("check", **SECRETS)
    assert checked.returncode == 0, checked.stderr
    assert "acme" in checked.stdout
    assert not [secret for secret in SECRETS.values() if secret in checked.stdout + checked.stderr]


@pytest.mark.parametrize(("command", "status"), [("check", 1), ("serve", 78)])
def test_a_missing_secret_is_named(command, status):
    refused = run(command, ANTHROPIC_API_KEY="sk-ant-example")
    assert refused.returncode == status
    assert "OPENAI_API_KEY" in refused.stderr
