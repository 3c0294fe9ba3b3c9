"""Real histories are accepted, and refused once they are changed: each systematic change by some property.

The histories are those of simulated seeds. A change that a history has no place for is tried on the next;
each must have had its place.
"""

import copy
from functools import lru_cache

import pytest
from chaos_changes import CHANGES, Change, NoPlace

from tenure_chaos.checkers import rules
from tenure_chaos.history import History
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed

SEEDS = range(1, 33)

PLACES = 2
"""Histories on which each change is tried."""


@lru_cache
def recorded(seed: int) -> History:
    return run_seed(seed, Options.for_seed(seed, {"safety_s": "30"})).history


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_what_was_recorded_is_accepted(seed: int) -> None:
    verdicts = rules.judge(recorded(seed))
    assert [verdict for verdict in verdicts if verdict.wrongs] == []
    assert [verdict for verdict in verdicts if verdict.undecided] == []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_history_is_refused(change: Change) -> None:
    tried = 0
    for seed in SEEDS:
        history = copy.deepcopy(recorded(seed))
        try:
            change(history)
        except NoPlace:
            continue
        assert list(rules.check(history)) != [], f"seed {seed}"
        tried += 1
        if tried == PLACES:
            return
    assert tried > 0
