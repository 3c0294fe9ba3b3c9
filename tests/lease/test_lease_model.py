"""The lease machine agrees with an independently written model over random histories.

Continuous integration plays a fixed set of histories. For a longer campaign with fresh ones:

    TENURE_MODEL_EXAMPLES=20000 pytest -s tests/lease/test_lease_model.py
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from model_compare import COMMANDS, Comparison
from model_coverage import AT_BOUNDS_ONLY, everything
from model_coverage import COMMANDS as EVERY_COMMAND
from model_scripts import OPERATIONS, STEPS, scripts

from tenure_cluster.lease import limits

STEPS_MIN = 200_000
EXAMPLES = 1_000
EXAMPLES_AT_BOUNDS = 120

CAMPAIGN = int(os.environ.get("TENURE_MODEL_EXAMPLES", "0"))

SETTINGS = settings(
    max_examples=CAMPAIGN or EXAMPLES,
    derandomize=not CAMPAIGN,
    database=None,
    deadline=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)

MARKS = [
    *everything(),
    "acquire Deadlock",
    "acquire Held",
    "acquire Lost reason=abandoned",
    "acquire Lost reason=broken",
    "acquire Lost reason=expired",
    "acquire Lost reason=released",
    "acquire SessionExpired",
    "acquire Waiting",
    "acquire Granted replayed=True claimed=True",
    "acquire Granted replayed=False claimed=True",
    "claim Granted replayed=False claimed=True",
    "claim Lost reason=expired",
    "renew Lost reason=expired",
    "renew Lost reason=released",
    "renew Renewed",
    "renew SessionExpired",
    "renew SessionIs",
    "release Lost reason=expired",
    "release Released already=False",
    "release Released already=True",
    "abandon Abandoned had=True",
    "break_ Broken",
    "commit Committed",
    "commit CommitRefused code=stale_token",
    "commit CommitRefused code=token_used",
    "commit CommitRefused code=seq_replayed",
    "commit CommitRefused code=not_live",
    "commit CommitRefused code=revision_conflict",
    "commit GuardConflict",
    "commit Invalid",
    "close_session SessionClosed",
    "delete_record RecordDeleted",
    "released then granted",
    "expired then granted",
    "broken then granted",
    "queue_left then granted",
    "granted then granted",
    "acquire ModeConflict",
    "handover HandedOver replayed=False",
    "handover HandedOver replayed=True",
    "handover Deadlock",
    "handover Held",
    "unpark Unparked replayed=False",
    "unpark Unparked replayed=True",
    "park Lost reason=expired",
    "unpark Lost reason=expired",
    "handed_over then granted",
    "restarts",
]
"""What a campaign must have met at least MARK_MIN times; one that stayed too tame has shown little."""

MARK_MIN = 10
MARK_MIN_AT_BOUNDS = 10

NARROW = {"tokens": 15, "waiters": 2, "ended": 3, "answers": 2, "idle_keys": 2, "endings": 2}
NARROW |= {"grants": 1, "events": 2, "close": 1}
"""Bounds that random histories reach, and the limits of the machine that they stand for."""

LIMITS = {
    "tokens": "TOKEN_MAX",
    "waiters": "WAITERS_PER_KEY_MAX",
    "ended": "ENDED_LEASES_MAX",
    "answers": "OPERATIONS_MAX",
    "idle_keys": "IDLE_KEYS_MAX",
    "endings": "EXPIRE_BATCH_MAX",
    "grants": "GRANTS_PER_ENTRY_MAX",
    "events": "EVENTS_PER_EXPIRE_MAX",
    "close": "CLOSE_AT_ONCE_MAX",
}


def test_every_command_of_the_machine_is_known_to_the_model_and_written_by_the_scripts() -> None:
    assert sorted(kind.__name__ for kind in COMMANDS.values()) == sorted(EVERY_COMMAND)
    assert {make.__name__ for make in OPERATIONS} == set(COMMANDS)


def test_the_machine_agrees_with_the_model_over_200_000_random_steps() -> None:
    counts: Counter[str] = Counter()

    @SETTINGS
    @given(scripts())
    def agrees(script: list[bytes]) -> None:
        Comparison(counts=counts).play(script)

    agrees()
    print(f"{counts['steps']} steps in histories of at most {STEPS}")  # noqa: T201
    tame = [mark for mark in MARKS if counts[mark] < MARK_MIN]
    assert not tame, f"met too rarely: {tame}"
    assert counts["steps"] >= STEPS_MIN


def test_the_machine_agrees_with_the_model_at_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in LIMITS.items():
        monkeypatch.setattr(limits, limit, NARROW[name])
    counts: Counter[str] = Counter()

    @settings(SETTINGS, max_examples=CAMPAIGN or EXAMPLES_AT_BOUNDS)
    @given(scripts())
    def agrees(script: list[bytes]) -> None:
        Comparison(counts=counts, bounds=NARROW).play(script)

    agrees()
    for mark in (
        *(f"result {name}" for name in AT_BOUNDS_ONLY),
        *("acquire QueueFull", "acquire TokensExhausted", "break_ TokensExhausted"),
        *("a session is closed bit by bit", "an entry has granted enough"),
    ):
        assert counts[mark] >= MARK_MIN_AT_BOUNDS, f"met too rarely: {mark}"
    assert counts["handover TokensExhausted"], "never met"
