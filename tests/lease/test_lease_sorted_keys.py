"""Keys in order: like a sorted list, whatever was added and removed."""

import random

import pytest

from tenure_cluster.lease import sorted_keys
from tenure_cluster.lease.sorted_keys import SortedKeys


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("chunk_max", [2, 7, 1_000])
def test_it_is_a_sorted_list(monkeypatch: pytest.MonkeyPatch, seed: int, chunk_max: int) -> None:
    monkeypatch.setattr(sorted_keys, "CHUNK_MAX", chunk_max)
    pick = random.Random(seed)
    known = {f"{pick.choice('aäz/')}{pick.randrange(200)}" for _ in range(seed * 10)}
    keys = SortedKeys(known)
    for _ in range(400):
        key = f"{pick.choice('aäz/')}{pick.randrange(200)}"
        if key in known and pick.random() < 0.7:
            known.remove(key)
            keys.remove(key)
        elif key not in known:
            known.add(key)
            keys.add(key)
        look = f"{pick.choice('aäz/')}{pick.randrange(200)}"
        ordered = sorted(known, key=str.encode)
        assert list(keys.after(None)) == ordered
        assert list(keys.after(look)) == [each for each in ordered if each.encode() > look.encode()]
        assert list(keys.starting(look)) == [each for each in ordered if each.encode() >= look.encode()]
        assert len(keys) == len(known)
        assert keys == SortedKeys(known)
