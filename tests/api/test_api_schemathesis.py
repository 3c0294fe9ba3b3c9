"""Schemathesis against a real node: no 5xx, and no answer outside of the document."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from api_node import RunningNode

HERE = Path(__file__).parent
EXAMPLES_PER_CALL = 40
TIMEOUT_S = 180


@pytest.mark.slow
@pytest.mark.process
def test_generated_requests_find_nothing_outside_the_document(node: RunningNode, tmp_path: Path) -> None:
    """Every call by examples, by coverage of its schema, by random bodies both valid and not, and by the
    links from answers to further calls; in JSON and in MessagePack. The checks are in schemathesis.toml."""
    run = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            f"--config-file={HERE / 'schemathesis.toml'}",
            "run",
            f"{node.url}/openapi.json",
            f"--max-examples={EXAMPLES_PER_CALL}",
            "--generation-database=none",
            "--no-color",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE), "SCHEMATHESIS_HOOKS": "schemathesis_hooks"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Tested: 37" in run.stdout, run.stdout
    assert node.get("/readyz")[0] == 200
