"""Histories of which it is known what they break: ``breaks`` and ``keeps`` make a test of a function that
tells a story.
"""

from collections.abc import Callable

from chaos_story import Story

from tenure_chaos.checkers import rules
from tenure_chaos.history import History

KNOWN_BAD: dict[int, list[str]] = {}
KNOWN_GOOD: dict[int, list[str]] = {}

Teller = Callable[[], Story]


def broken_by(history: History) -> set[int]:
    """Numbers of the properties that the history breaks."""
    return {verdict.number for verdict in rules.judge(history) if verdict.wrongs}


def breaks(number: int) -> Callable[[Teller], Callable[[], None]]:
    """The story breaks this property, and no other."""

    def make(tell: Teller) -> Callable[[], None]:
        KNOWN_BAD.setdefault(number, []).append(tell.__name__)

        def test() -> None:
            verdicts = rules.judge(tell().history)
            found = {verdict.number: verdict.wrongs for verdict in verdicts if verdict.wrongs}
            assert set(found) == {number}, found

        return _named(test, tell)

    return make


def keeps(number: int) -> Callable[[Teller], Callable[[], None]]:
    """The story breaks no property, and this one had something to look at in it."""

    def make(tell: Teller) -> Callable[[], None]:
        KNOWN_GOOD.setdefault(number, []).append(tell.__name__)

        def test() -> None:
            verdicts = rules.judge(tell().history)
            assert not [verdict for verdict in verdicts if verdict.wrongs]
            assert any(verdict.looked_at for verdict in verdicts if verdict.number == number)

        return _named(test, tell)

    return make


def _named(test: Callable[[], None], tell: Teller) -> Callable[[], None]:
    test.__name__, test.__doc__, test.__module__ = tell.__name__, tell.__doc__, tell.__module__
    test.tell = tell  # type: ignore[attr-defined]
    return test
