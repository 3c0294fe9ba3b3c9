"""Which node to ask next.

A client stays with one node as long as it answers, so that its connection is used again; it goes straight
to the leader once an answer named it, which saves the hop from follower to leader. A node that failed is
left out for a moment. All that is only preference: when nothing better is left, every node is asked again,
so a wrong hint or a wrong suspicion costs time and never an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from tenure.errors import InvalidRequest

DEFAULT_ENDPOINTS: Final = "http://127.0.0.1:7601,http://127.0.0.1:7602,http://127.0.0.1:7603"

ENDPOINTS_MAX: Final = 100
"""Most endpoints of one client."""

SUSPICION_S: Final = 1.0
"""How long a configured node that failed is asked last."""

HINT_SUSPICION_S: Final = 60.0
"""The same for a hinted leader that isn't among the configured endpoints: it may be an address that only
the nodes can reach, and every try of it would cost a connection's time-out."""


def parse_endpoints(endpoints: str | Sequence[str]) -> list[str]:
    """Base URLs without a trailing slash, in the given order, each once. Raises InvalidRequest naming the
    faulty one."""
    given = endpoints.split(",") if isinstance(endpoints, str) else endpoints
    parts = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(part, str) for part in parts):
        raise InvalidRequest(detail=f"endpoints are URLs in a text or a list, not {endpoints!r}")
    urls = list(dict.fromkeys(parse_endpoint(part) for part in parts if part.strip()))
    if not urls:
        raise InvalidRequest(detail="no endpoint given: name at least one URL such as http://127.0.0.1:7601")
    if len(urls) > ENDPOINTS_MAX:
        raise InvalidRequest(detail=f"{len(urls)} endpoints given, more than {ENDPOINTS_MAX}")
    return urls


def parse_endpoint(text: str) -> str:
    url = text.strip()
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise InvalidRequest(detail=f"endpoint {text.strip()!r} is not a URL such as http://127.0.0.1:7601")
    return url.rstrip("/")


class Endpoints:
    """The nodes that a client knows, shared by all its calls. Times are seconds of one monotonic clock."""

    def __init__(self, urls: Sequence[str], *, first: int = 0) -> None:
        """``first`` is where to begin: drawn at random, so that many clients spread over the nodes."""
        self.urls = tuple(urls)
        self.leader: str | None = None
        self._cursor = first % len(self.urls)
        self._suspected_until: dict[str, float] = {}

    def choose(self, now: float, tried: Collection[str] = ()) -> str | None:
        """The best node that isn't in ``tried``: the leader, then the others in turn, suspects last. None
        if all were tried."""
        candidates = [url for url in self._in_order() if url not in tried]
        if not candidates:
            return None
        return min(candidates, key=lambda url: self._suspicion_s(url, now))

    def hint(self, answered: str, leader: str | None) -> None:
        """An answer of ``answered`` named ``leader``. Ignored if unusable, or if it would leave TLS."""
        if leader is None:
            return
        try:
            url = parse_endpoint(leader)
        except InvalidRequest:
            return
        if answered.startswith("https:") and not url.startswith("https:"):
            return
        self.leader = url

    def served(self, url: str) -> None:
        """``url`` answered as it should: stay with it."""
        self._suspected_until.pop(url, None)
        if url in self.urls:
            self._cursor = self.urls.index(url)

    def failed(self, url: str, now: float, suspicion_s: float = SUSPICION_S) -> None:
        """``url`` did not answer, or said that it cannot serve."""
        if url == self.leader:
            self.leader = None
        if url in self.urls:
            self._suspected_until[url] = now + suspicion_s
            if self.urls[self._cursor] == url:
                self._cursor = (self._cursor + 1) % len(self.urls)
        else:
            # Only the last hinted stranger is kept, so hints cannot fill the memory.
            self._suspected_until = {k: v for k, v in self._suspected_until.items() if k in self.urls}
            self._suspected_until[url] = now + max(suspicion_s, HINT_SUSPICION_S)

    def _in_order(self) -> list[str]:
        turn = [*self.urls[self._cursor :], *self.urls[: self._cursor]]
        if self.leader is None:
            return turn
        return [self.leader, *(url for url in turn if url != self.leader)]

    def _suspicion_s(self, url: str, now: float) -> float:
        return max(0.0, self._suspected_until.get(url, now) - now)
