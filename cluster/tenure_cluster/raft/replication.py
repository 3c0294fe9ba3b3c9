"""What a leader knows of one follower's log, and how much it may send.

A follower is in one of three modes:

- PROBE: where its log meets ours is not known. One message without entries at a time asks; a refusal
  answers with where to ask next.
- STREAM: entries go out as they are appended, without waiting for answers, up to a window of unanswered
  bytes.
- SNAPSHOT: it needs entries that are compacted; the snapshot's file goes first, under the same window.

Several messages may be under way, and after one refusal all the later ones of that flight are refused too.
Only the first may move `next_index`; the stock engine lets each do so, and can step back and forth for ever
(L1). So a refusal closes the flight: refusals of numbers up to the last one sent are then consequences.
"""

from collections import deque
from enum import Enum
from typing import NamedTuple

UNANSWERED_MAX = 1024
"""Messages that may wait for the answer of one follower; beyond it gets only heartbeats until it answers or
connects anew. Without them it would have nothing to answer, if answers were lost that long on a broken way
back."""


FIRST_NEXT_INDEX = 2
"""Entry 1 is the same in every log, so there is never a need to send it."""


class Mode(Enum):
    PROBE = "probe"
    STREAM = "stream"
    SNAPSHOT = "snapshot"


class _Sent(NamedTuple):
    number: int
    size: int
    sent_s: float


class Progress:
    """One follower as the leader of one term sees it."""

    def __init__(self, next_index: int, window_bytes: int, filter_flights: bool = True) -> None:
        self.mode = Mode.STREAM
        self.match_index = 0
        self.next_index = next_index
        self.commit_sent = 0
        self.answered_number = 0
        self.answered_sent_s = float("-inf")
        self.in_flight_bytes = 0
        self._window_bytes = window_bytes
        self._filter_flights = filter_flights
        self._sent: deque[_Sent] = deque()
        self._flight_end = 0
        self._probe: int | None = None

    # -- sending

    @property
    def may_send(self) -> bool:
        """Whether another message with content may leave now."""
        if len(self._sent) >= UNANSWERED_MAX:
            return False
        if self.mode is Mode.PROBE:
            return self._probe is None
        return self.in_flight_bytes < self._window_bytes

    def sent(self, number: int, size: int, now_s: float) -> None:
        """A message left; `size` counts against the window, 0 for a heartbeat."""
        if len(self._sent) >= UNANSWERED_MAX:
            # The first is answered with the second, or with any later one.
            first, second = self._sent.popleft(), self._sent.popleft()
            self._sent.appendleft(second._replace(size=first.size + second.size))
        self._sent.append(_Sent(number, size, now_s))
        self.in_flight_bytes += size
        if self.mode is Mode.PROBE:
            self._probe = number

    # -- answers

    def answered(self, number: int) -> bool:
        """Any answer to `number` has come. False if that number was not sent on this connection in this
        term."""
        if not self._sent or not self._sent[0].number <= number <= self._sent[-1].number:
            return False
        while self._sent and self._sent[0].number <= number:
            sent = self._sent.popleft()
            self.in_flight_bytes -= sent.size
            self.answered_number = sent.number
            self.answered_sent_s = sent.sent_s
        if self._probe is not None and self._probe <= number:
            self._probe = None
        return True

    def matched(self, match_index: int) -> None:
        """The follower's log is ours up to `match_index`."""
        self.match_index = max(self.match_index, match_index)
        if self.mode is Mode.PROBE or (self.mode is Mode.SNAPSHOT and match_index + 1 >= self.next_index):
            self.mode = Mode.STREAM
            self.next_index = self.match_index + 1
        self.next_index = max(self.next_index, self.match_index + 1)

    def refused(self, number: int, hint_index: int, last_number: int) -> None:
        """The log of the follower does not meet ours where message `number` asked. `last_number`: the last
        one sent."""
        if self.mode is Mode.SNAPSHOT:
            return
        if self._filter_flights and number <= self._flight_end:
            return
        self._flight_end = last_number
        self.mode = Mode.PROBE
        self._probe = None
        self.next_index = max(FIRST_NEXT_INDEX, self.match_index + 1, min(hint_index, self.next_index - 1))

    def begin_snapshot(self, index: int) -> None:
        """Entries up to `index` are compacted; from now on only the snapshot at `index` is sent."""
        self.mode = Mode.SNAPSHOT
        self.next_index = index + 1

    def reconnected(self, last_number: int) -> None:
        """A new connection: what was under way on the old one may never arrive."""
        self._sent.clear()
        self.in_flight_bytes = 0
        self._probe = None
        self._flight_end = last_number
        self.commit_sent = 0
        if self.mode is Mode.SNAPSHOT or self.match_index:
            self.next_index = max(FIRST_NEXT_INDEX, self.match_index + 1)
        self.mode = Mode.PROBE
