"""The line: a dictionary that knows its first entry, whatever has left it in what order."""

import random
from collections import OrderedDict

from tenure_cluster.lease.line import LEFT_MAX, Line


def test_it_is_an_ordered_dictionary_for_whoever_joins_leaves_and_is_taken_from_its_front() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        line: Line[int, int] = Line()
        plain: OrderedDict[int, int] = OrderedDict()
        for number in range(300):
            key = rng.randrange(25)
            match rng.randrange(5):
                case 0 | 1:
                    line.join(key, number)
                    plain.pop(key, None)
                    plain[key] = number
                case 2:
                    line.leave(key)
                    plain.pop(key, None)
                case 3 if plain:
                    assert line.pop_first() == plain.popitem(last=False)[1]
                case 4 if key in plain:
                    line[key] = plain[key] = -number
            assert list(line.items()) == list(plain.items())
            if plain:
                assert line.first() == next(iter(plain))
    assert len(plain) > 2  # the last one was no empty line


def test_who_joins_and_leaves_for_ever_behind_one_who_stays_takes_no_more_room() -> None:
    line: Line[str, None] = Line()
    line.join("stays", None)
    for number in range(20 * LEFT_MAX):
        line.join(f"guest {number % 7}", None)
        line.leave(f"guest {number % 7}")
        assert len(line._queue) <= LEFT_MAX + 3
    assert line.first() == "stays"
    assert line.pop_first() is None
    assert not line


def test_finding_the_first_does_not_depend_on_how_many_have_gone_before() -> None:
    """What a plain dictionary can't: its first entry lies behind all places that were deleted."""
    line: Line[int, int] = Line()
    for number in range(50_000):
        line.join(number, number)
    taken = [line.pop_first() for _ in range(49_000)]
    assert taken == list(range(49_000))
    assert len(line._queue) == 1_000
