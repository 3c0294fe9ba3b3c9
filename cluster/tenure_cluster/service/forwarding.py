"""Follower to leader and back, over the peer links.

A question is sent once, over one link. It ends with the leader's answer, or without one: as not executed if
it can't have left this node or the leader says so, as unknown as soon as the answer can't be expected any
more. That is when the link it was sent over breaks, when a newer connection of the leader shows that answers
on the old one are lost, and, for what can safely be asked again, when another leader is known. Whoever asked
decides whether to ask again.

A question names the term it is meant for. A leader of another term refuses it, so what lay in a stopped
process's buffers since its last time in office can't come to life in its next one.

S11: a node numbers its questions from a random number on. A leader may answer a question of the node's
previous life over the connection to its present one; had both counted from 1, that answer would be taken for
the answer to another question.

A question that arrives again over the same connection is not executed again. A connection that dies can bring
what it brought before once more (a proxy that repeats itself, somebody who plays back what he has heard), and
the asker has long been answered. The numbers of a connection rise, so one number is enough to tell.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from tenure_cluster.observe.request_context import REQUEST_ID, SPAN
from tenure_cluster.raft import Raft
from tenure_cluster.service import peer_messages
from tenure_cluster.service.asks import READS, Ask, NoAnswer, Outcome
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.leadership import Leadership
from tenure_cluster.service.office import Office
from tenure_cluster.service.peer_messages import Answered, Asked, Describe, Described
from tenure_cluster.service.polls import Polls
from tenure_cluster.service.validation import check
from tenure_cluster.settings import Leases

_log = logging.getLogger("tenure.service")

DoneAll: TypeAlias = Callable[[list[Outcome]], None]


class Traced(Protocol):
    """The span of a question, on either side."""

    @property
    def parent(self) -> object:
        """What is done for it belongs to this; for SPAN."""

    @property
    def traceparent(self) -> str:
        """The same, as it is told to another node."""

    def end(self) -> None:
        """The question has its answer, or nobody waits for it any more."""


class Traces(Protocol):
    """Makes them; see tracing."""

    def asks(self, parent: object, leader: str) -> Traced: ...

    def asked(self, peer: str, traceparent: str, operations: Sequence[str]) -> Traced: ...


class _Question:
    """Asked and not yet answered."""

    __slots__ = ("asks", "done", "peer", "span", "term")

    def __init__(
        self, asks: Sequence[Ask], peer: str, term: int, done: DoneAll, span: Traced | None = None
    ) -> None:
        self.asks = asks
        self.peer = peer
        self.term = term
        self.done = done
        self.span = span

    def over(self) -> None:
        """It is among the questions no more."""
        if self.span is not None:
            self.span.end()

    def end(self, outcome: NoAnswer) -> None:
        self.done([outcome] * len(self.asks))


class Forwarding:
    """Both sides: questions of this node's callers to the leader, and those of other nodes to this one."""

    def __init__(
        self,
        raft: Raft,
        leadership: Leadership,
        office: Office,
        polls: Polls,
        bounds: Leases,
        incarnation: str,
    ) -> None:
        """`incarnation` is an id that no other life of this node has had."""
        self._raft = raft
        self._leadership = leadership
        self._office = office
        self._polls = polls
        self._bounds = bounds
        self._questions: dict[int, _Question] = {}
        self._number = int.from_bytes(hashlib.blake2b(incarnation.encode(), digest_size=6).digest())
        self._epochs: dict[str, int] = {}
        self._asked_up_to: dict[str, int] = {}
        """The last question of each peer over its present connection."""
        self._waiting: dict[tuple[str, int], Ask] = {}
        """Acquires of other nodes' callers that may wait here, by peer and the question's number."""
        self.closing = False
        self.bad_messages = 0
        self.on_description: Callable[[str, Describe | Described], None] | None = None
        """Takes what isn't about operations but about the nodes themselves."""
        self.traces: Traces | None = None
        """Where questions are traced."""
        leadership.listeners.append(self._leader_changed)

    def __len__(self) -> int:
        return len(self._questions)

    def ask(self, leader: str, asks: Sequence[Ask], done: DoneAll) -> int:
        """Ask the leader. `done` is called at most once, unless `forget` is called with the number
        returned."""
        self._number += 1
        number = self._number
        term = self._leadership.term
        span = None
        if self.traces is not None and asks[0].span is not None:
            span = self.traces.asks(asks[0].span, leader)
        question = _Question(asks, leader, term, done, span)
        payload = peer_messages.encode_asked(
            number, term, asks[0].tenant, list(asks), "" if span is None else span.traceparent
        )
        if self._raft.send(leader, payload) is None:
            question.over()
            done([NoAnswer.NOT_EXECUTED] * len(asks))
            return number
        for ask in asks:
            ask.sent = True
        self._questions[number] = question
        return number

    def forget(self, number: int) -> None:
        """Nobody waits for this answer any more. A leader that keeps a poll for it is told."""
        question = self._questions.pop(number, None)
        if question is None:
            return
        question.over()
        if any(ask.wait_ms for ask in question.asks):
            self._raft.send(question.peer, peer_messages.encode_forgotten(number))

    def on_peer_message(self, peer: str, epoch: int, payload: bytes) -> None:
        """Take a message of another node's service, which came over its connection `epoch`."""
        self.on_heard_anew(peer, epoch)
        try:
            message = peer_messages.decode(payload)
            if isinstance(message, Asked):
                self._asked(peer, message)
            elif isinstance(message, Answered):
                self._answered(peer, message)
            elif isinstance(message, Describe | Described):
                if self.on_description is not None:
                    self.on_description(peer, message)
            elif (ask := self._waiting.get((peer, message.number))) is not None:
                self._polls.drop(ask, left=True)
        except peer_messages.BadMessage:
            # Its question ends by its own time-out. Only a version that can't run beside this one sends such.
            self.bad_messages += 1

    def on_link(self, peer: str, up: bool) -> None:
        """The link to `peer` is up or down."""
        self._leadership.on_link(peer, up)
        if not up:
            self._end(lambda question: question.peer == peer, NoAnswer.UNKNOWN)
            self._drop_polls(peer)

    def on_heard_anew(self, peer: str, epoch: int) -> None:
        """`peer` sends over its connection `epoch`. Answers to what was asked before may have been lost with
        the one before that, and so may polls' hearers."""
        if self._epochs.get(peer) == epoch:
            return
        if peer in self._epochs:
            self._end(lambda question: question.peer == peer, NoAnswer.UNKNOWN)
            self._drop_polls(peer)
        self._epochs[peer] = epoch
        self._asked_up_to.pop(peer, None)

    def _drop_polls(self, peer: str) -> None:
        """Nobody is within reach behind this peer's polls, so nothing is claimed for them."""
        for ask in [ask for (asker, _), ask in self._waiting.items() if asker == peer]:
            self._polls.drop(ask)

    def _leader_changed(self) -> None:
        leadership = self._leadership
        if leadership.leader_id is None:
            return

        def is_past(question: _Question) -> bool:
            past = question.peer != leadership.leader_id or question.term != leadership.term
            return past and all(ask.idempotent for ask in question.asks)

        self._end(is_past, NoAnswer.UNKNOWN)

    def _end(self, which: Callable[[_Question], bool], outcome: NoAnswer) -> None:
        for number, question in [item for item in self._questions.items() if which(item[1])]:
            self._questions.pop(number, None)
            question.over()
            question.end(outcome)

    def _answered(self, peer: str, message: Answered) -> None:
        question = self._questions.get(message.number)
        if question is None or question.peer != peer:
            return
        outcomes = peer_messages.outcomes_of(message)
        if len(outcomes) != len(question.asks):
            raise peer_messages.BadMessage(f"{len(outcomes)} answers to {len(question.asks)} operations")
        del self._questions[message.number]
        question.over()
        question.done(outcomes)

    def _asked(self, peer: str, message: Asked) -> None:
        number = message.number
        if number <= self._asked_up_to.get(peer, -1):
            return
        self._asked_up_to[peer] = number
        # What is done for it here is told and traced with the request that it came with at the other node.
        span = None
        if message.traceparent and self.traces is not None:
            operations = [item.operation for item in message.items]
            span = self.traces.asked(peer, message.traceparent, operations)
        of_request = REQUEST_ID.set(message.request_id)
        of_span = SPAN.set(None if span is None else span.parent)
        try:
            self._execute(peer, message, span)
        finally:
            SPAN.reset(of_span)
            REQUEST_ID.reset(of_request)

    def _execute(self, peer: str, message: Asked, span: Traced | None) -> None:
        number = message.number
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s asks for %s", peer, ", ".join(item.operation for item in message.items))

        def done(outcomes: list[Outcome]) -> None:
            self._waiting.pop((peer, number), None)
            # Without a link the answer is lost, and the asker learns that from its own side of it.
            looks = [] if len(asks) == 1 else [n for n, ask in enumerate(asks) if ask.operation in READS]
            sent = self._raft.send(peer, peer_messages.encode_answered(number, outcomes, frozenset(looks)))
            if sent is None and looks:
                # There may be room for less, and what only looks can be asked again alone.
                for place in looks:
                    outcomes[place] = NoAnswer.NOT_EXECUTED
                self._raft.send(peer, peer_messages.encode_answered(number, outcomes))
            if span is not None:
                span.end()

        asks = peer_messages.asks_of(message)
        if message.term != self._leadership.term:
            self._leadership.refresh()
        if self.closing or not self._raft.is_leader() or message.term != self._leadership.term:
            done([NoAnswer.NOT_EXECUTED] * len(asks))
            return
        refusals = [check(ask.request, self._bounds) for ask in asks]
        if len(asks) == 1:
            if refusals[0] is not None:
                done([refusals[0]])
                return
            if asks[0].wait_ms:
                self._waiting[peer, number] = asks[0]
            self._office.execute(asks[0], lambda outcome: done([outcome]))
        else:
            self._execute_valid(asks, refusals, done)

    def _execute_valid(self, asks: list[Ask], refusals: list[Problem | None], done: DoneAll) -> None:
        """Execute those of a batch that this node's bounds allow; they are the asker's, unless configured
        unlike."""
        valid = [ask for ask, refusal in zip(asks, refusals, strict=True) if refusal is None]

        def executed(outcomes: list[Outcome]) -> None:
            rest = iter(outcomes)
            done([refusal if refusal is not None else next(rest) for refusal in refusals])

        self._office.execute_all(valid, executed)
