"""What it takes to break the lease machine on purpose, and to see whether the comparison notices.

A mutant's own check of invariants is switched off, so what catches it is the comparison: the model, the rules
of the ledger, or the second replica.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from model_compare import Comparison
from model_rules import Diverged
from model_scripts import scripts

from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.types import ClusterTime

EXAMPLES_MAX = 300
"""Within so many random histories a mutant must be caught. Most take fewer than five."""


class Unchecked(LeaseMachine):
    """A machine that does not check itself, to be broken by subclasses."""

    def check(self) -> None:
        pass

    def now_ms(self, at_ms: ClusterTime) -> ClusterTime:
        return max(at_ms, self.table.time_ms)


Patch = Callable[[pytest.MonkeyPatch], None]


def replace_function(patch: pytest.MonkeyPatch, name: str, wrong: Callable[..., object]) -> None:
    """Put another function in place of one of the machine's, wherever it was imported by name."""
    modules = [module for path, module in sys.modules.items() if path.startswith("tenure_cluster.lease.")]
    users = [module for module in modules if hasattr(module, name)]
    assert users, f"the machine has no function {name} any more: this mutant must be written anew"
    for module in users:
        patch.setattr(module, name, wrong)


QUICK = settings(
    max_examples=EXAMPLES_MAX,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def histories_until_caught(
    make: Callable[..., LeaseMachine], bounds: dict[str, int] | None = None
) -> int | None:
    """How many random histories it took to tell a machine from the model; None if it was not told. ``bounds``
    are the model's where the machine's limits are not the usual ones."""
    played = 0

    @QUICK
    @given(scripts())
    def agrees(script: list[bytes]) -> None:
        nonlocal played
        played += 1
        Comparison(make, bounds=bounds).play(script)

    try:
        agrees()
    except Diverged as found:
        if not isinstance(found.__cause__, Diverged):
            raise  # The mutant stumbled over its own code, which tells nothing of the comparison.
        return played
    return None
