"""Whom a node lets in of whom its own log says nothing.

A node that is behind may be greeted by a member that it does not know yet, which may even lead: without its
entries it would never come to know it. But whoever holds some certificate of the cluster's authority could
claim to be such a member. So where there is TLS a stranger is let in only if a member that this node knows
says that it is one: members tell each other whom they count in their greetings and in the
answers to them. A stranger that says that it is ahead is refused, and a known member asked, by dialling it
anew; when the stranger greets again, a moment later, it is known whether that was true.
"""

from collections.abc import Collection, Iterable
from typing import Final

ASK_AGAIN_S: Final = 1.0
"""Strangers make this node dial a member anew at most this often."""


class Vouching:
    """What known members have last said of whom they count. Pure."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, frozenset[str]]] = {}
        self._asked_s = float("-inf")
        self._last_asked = ""

    def told(self, by: str, names: Iterable[str], index: int) -> None:
        """A known member counts these, by its entry at `index`."""
        self._told[by] = (index, frozenset(names))

    def keep(self, known: Collection[str]) -> None:
        """Only the word of these counts."""
        self._told = {name: told for name, told in self._told.items() if name in known}

    def vouches(self, name: str, above: int) -> bool:
        """Whether some known member counts it, by an entry past `above`."""
        return any(index > above and name in names for index, names in self._told.values())

    def whom_to_ask(self, linked: Iterable[str], now_s: float) -> str | None:
        """Whom to dial anew because of a stranger, if it is time: one after the other."""
        if now_s < self._asked_s + ASK_AGAIN_S:
            return None
        names = sorted(linked)
        if not names:
            return None
        self._asked_s = now_s
        self._last_asked = next((name for name in names if name > self._last_asked), names[0])
        return self._last_asked
