"""Random stories (raft_fuzz.py): nothing acknowledged is lost, one log everywhere, and all nodes agree in
the end."""

import pytest
from raft_fuzz import run_story
from raft_handkit import Violation

from tenure_cluster.raft import mitigations

PROFILES = {
    "links in order": {},
    "links lose, repeat and reorder": {"disorder": True},
    "power fails": {"power": True},
    "power fails, links lose, repeat and reorder": {"disorder": True, "power": True},
}
SEEDS_PER_PROFILE = 8


@pytest.mark.parametrize("profile", PROFILES)
def test_random_stories_end_well(profile: str) -> None:
    acknowledged = offices = crashes = installed = 0
    for seed in range(SEEDS_PER_PROFILE):
        try:
            net = run_story(seed, **PROFILES[profile])
        except Exception as error:
            raise AssertionError(f"run_story({seed}, **{PROFILES[profile]}): {error}") from error
        acknowledged += len(net.acknowledged)
        offices += len(net.leaders)
        crashes += net.crashes
        installed += sum(node.snapshots.installed for node in net.nodes.values())
    # A batch that stays too tame proves nothing.
    assert acknowledged > 40 * SEEDS_PER_PROFILE
    assert offices > 2 * SEEDS_PER_PROFILE
    assert crashes > 2 * SEEDS_PER_PROFILE
    assert installed > 0


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = (run_story(3, disorder=True, power=True, duration_s=5.0) for _ in range(2))
    assert first.acknowledged == second.acknowledged
    assert first.committed == second.committed
    assert first.clock.now_s == second.clock.now_s


def test_the_stories_go_wrong_without_the_trimming_of_appends() -> None:
    def ten_stories() -> None:
        for seed in range(10):
            run_story(seed, on=mitigations.ALL - {mitigations.APPEND_TRIM}, disorder=True)

    with pytest.raises(Violation):
        ten_stories()
