"""The table of properties is complete, and each has histories that are known to keep it or to break it."""

import inspect

import pytest
import test_chaos_properties_cluster
import test_chaos_properties_effects
import test_chaos_properties_leases
import test_chaos_properties_modes
import test_chaos_properties_pools
import test_chaos_properties_views
from chaos_known import KNOWN_BAD, KNOWN_GOOD
from chaos_story import Story

from tenure_chaos.checkers import rules
from tenure_chaos.history import History

KNOWN = (
    test_chaos_properties_leases,
    test_chaos_properties_modes,
    test_chaos_properties_pools,
    test_chaos_properties_effects,
    test_chaos_properties_views,
    test_chaos_properties_cluster,
)

NUMBERS = range(1, 21)


def test_no_property_is_missing() -> None:
    assert list(rules.PROPERTIES) == list(rules.TITLES) == list(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_property_has_a_known_good_and_two_known_bad_histories(number: int) -> None:
    assert len(KNOWN_GOOD[number]) >= 1
    assert len(KNOWN_BAD[number]) >= 2


def test_every_function_says_which_property_it_is_and_what_that_demands() -> None:
    for number, functions in rules.PROPERTIES.items():
        for function in functions:
            said = inspect.getdoc(function) or ""
            assert said.startswith(f"{number}: "), function.__name__
            assert said.endswith("."), function.__name__


def test_every_function_refuses_one_of_the_known_bad_histories() -> None:
    refused = set()
    bad = {name for names in KNOWN_BAD.values() for name in names}
    for module in KNOWN:
        for name, test in vars(module).items():
            if name in bad:
                verdicts = rules.judge(test.tell().history)
                refused |= {verdict.name for verdict in verdicts if verdict.wrongs}
    functions = {function.__name__ for functions in rules.PROPERTIES.values() for function in functions}
    assert functions - refused == set()


def test_an_empty_history_breaks_nothing_and_is_seen_to_be_empty() -> None:
    verdicts = rules.judge(History(complete=True))
    assert [verdict for verdict in verdicts if verdict.wrongs or verdict.looked_at] == []


def test_what_is_wrong_is_told_with_the_property_that_it_breaks() -> None:
    story = Story()
    story.acquire("a", "k", token=9)
    story.acquire("b", "other", token=5)
    assert list(rules.check(story.history)) == [
        ("property 3, tokens rise along the log", "effect 1 grants token 5 of other after token 9")
    ]


def test_a_key_that_a_cheaper_check_has_accused_is_not_searched() -> None:
    story = Story()
    story.release(story.acquire("a", "k", token=9))
    story.acquire("b", "k", token=1)
    story.acquire("c", "other", token=10)
    [search] = [verdict for verdict in rules.judge(story.history) if verdict.number == 1]
    assert search.looked_at == 1
    assert search.wrongs == ()
