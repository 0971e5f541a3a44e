"""The example configuration is one that runs."""

import os
import subprocess
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "tollgate.toml"
SECRETS = {"ANTHROPIC_API_KEY": "sk-ant-example", "OPENAI_API_KEY": "sk-example"}


def check(**environment):
    return subprocess.run(
        [os.environ["TOLLGATE_BIN"], "check", "--config", str(EXAMPLE)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_the_example_configuration_passes_its_check():
    checked = check(**SECRETS)
    assert checked.returncode == 0, checked.stderr
    assert "acme" in checked.stdout
    assert not [secret for secret in SECRETS.values() if secret in checked.stdout + checked.stderr]


def test_a_missing_secret_is_bad_configuration_and_is_named():
    checked = check(ANTHROPIC_API_KEY="sk-ant-example")
    assert checked.returncode == 78
    assert "OPENAI_API_KEY" in checked.stderr
