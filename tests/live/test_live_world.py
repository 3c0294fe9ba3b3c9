"""The world of a live client's work."""

import time

import pytest

from tenure_chaos.live.work.world import LiveWorld
from tenure_chaos.sim.options import Options


async def test_a_fault_of_the_work_is_in_the_log_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    world = LiveWorld(seed=1, began_at=time.monotonic(), options=Options(), nodes={"http://n1": "n1"})
    world.violation("the workload runs", "c1: AttributeError: no such thing")
    assert world.violations == ["the workload runs: c1: AttributeError: no such thing"]
    assert "the workload runs: c1: AttributeError" in capsys.readouterr().err
