"""Replays the texts in scenarios/ and compares what the machine answers.

After a wanted change of behaviour run ``pytest tests/lease --rewrite`` and read the difference.
"""

from pathlib import Path

import pytest
from scenario_player import RULE, ScenarioPlayer

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_machine_answers_as_the_scenario_says(path: Path, pytestconfig: pytest.Config) -> None:
    expected = path.read_text()
    played = ScenarioPlayer().play(expected)
    if pytestconfig.getoption("--rewrite", default=False):
        path.write_text(played)
    else:
        assert played == expected


def test_there_are_scenarios_and_each_compares_something() -> None:
    assert len(SCENARIOS) >= 7
    assert all(path.read_text().count(RULE) >= 5 for path in SCENARIOS)
