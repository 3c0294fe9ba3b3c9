"""The use cases: every operation, on any node.

The leader executes an operation, the others hand it on and pass the leader's answer back. A call lives at the
node that it came to: there it is checked, gets a request_id if its acquire has none, and is attempted until
it is answered or its time is over:

    leader here        execute it: stamp, propose, answer (office.py)
    leader elsewhere   ask it over the peer link, unstamped (forwarding.py)
    no leader known    wait a little for one, then refuse: not executed

An attempt that ends without an answer is made again, at once if that was not executed, and after an unknown
outcome only for what is idempotent. Once an attempt's outcome was unknown, the call can no longer end in an
answer that means "not executed": what would be one becomes `outcome_unknown`.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, cast

import msgspec

from tenure_cluster import __version__
from tenure_cluster.lease import limits
from tenure_cluster.lease.events import Event
from tenure_cluster.lease.quota import Quota
from tenure_cluster.raft import Raft, Role
from tenure_cluster.service import reads
from tenure_cluster.service.admission import Admission
from tenure_cluster.service.answers import RETRY_S
from tenure_cluster.service.asks import READS, Answer, Ask, NoAnswer, Outcome
from tenure_cluster.service.audit import AuditOffice
from tenure_cluster.service.changing_members import note_of
from tenure_cluster.service.cluster_requests import CLUSTER_OPERATIONS
from tenure_cluster.service.deadlines import Deadlines
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.forwarding import Forwarding
from tenure_cluster.service.frames import Answered, Frame, FrameOffice
from tenure_cluster.service.leadership import Leadership
from tenure_cluster.service.members import MembersView
from tenure_cluster.service.nodes import Nodes
from tenure_cluster.service.office import Office
from tenure_cluster.service.polls import Polls
from tenure_cluster.service.proposals import Proposer
from tenure_cluster.service.quotas import Quotas
from tenure_cluster.service.reader import Reader
from tenure_cluster.service.reaper import Reaper
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.replies import ClusterReply, MemberBody, NodesReply, OwnBody
from tenure_cluster.service.requests import (
    BATCH_OPERATIONS,
    OPERATIONS,
    AbandonRequest,
    AcquireRequest,
    EventsRequest,
    Request,
)
from tenure_cluster.service.validation import BATCH_MAX, check
from tenure_cluster.service.versions import BASE, Kept, Versions
from tenure_cluster.service.watch import Subscription, Watches
from tenure_cluster.service.watch_log import EventLog
from tenure_cluster.service.watch_messages import Encoder
from tenure_cluster.settings import Config

ATTEMPTS_PER_CALL: Final = 2
"""An attempt at another node ends after this part of a call's time, so that there is time for a second
one."""

PAUSE_S: Final = 0.05
"""Pause before the next attempt if nothing has changed since the last one was refused as not the leader's."""

GIVE_UPS_MAX: Final = 2_000
"""Abandons under way for callers who are gone. Beyond it an acquire is left to end at its TTL."""

_NOT_EXECUTED: Final = frozenset({"overloaded", "no_leader", "no_quorum", "shutting_down", "mixed_versions"})
"""Codes that promise that nothing was executed, and so can't end a call with an unknown attempt behind it."""


class Readiness(msgspec.Struct, frozen=True):
    """Whether this node can serve, and if not, why: one sentence. True iff ready."""

    ready: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ready


class _Call:
    """What one or several operations, asked together, have behind them."""

    __slots__ = ("deadline", "give_up_at", "slice_ends", "unsure")

    def __init__(self, now: float, wait_ms: int, timeout_s: float) -> None:
        self.slice_ends = now + min(wait_ms, limits.POLL_SLICE_MS) / 1000
        self.deadline = self.slice_ends + timeout_s
        self.give_up_at: float | None = None
        """When to stop waiting for a leader, once none was known."""
        self.unsure = False
        """Whether an attempt's outcome was unknown."""


class LeaseService:
    """Every operation, on any node."""

    def __init__(
        self,
        *,
        config: Config,
        raft: Raft,
        replica: Replica,
        mint: Callable[[], str],
        wall_ms: Callable[[], int],
        free_bytes: Callable[[], int],
        on_crash: Callable[[BaseException], None],
        kept_versions: Kept | None = None,
    ) -> None:
        """`mint` draws an unguessable id, `free_bytes` measures the data directory's file system; `on_crash`
        is told when a part of the service has failed in a way that it can't go on from."""
        self._config = config
        self._raft = raft
        self._replica = replica
        self._mint = mint
        self._on_crash = on_crash
        self.admission = Admission(config.admission)
        self.leadership = Leadership(raft, config.calls.leader_waiters_max)
        self.members = MembersView(raft, config.node_id, config.members)
        self.versions = Versions(raft, config.node_id, self.members.all, kept_versions)
        self.proposer = Proposer(raft, mint, wall_ms, self.versions.refusal)
        self.polls = Polls(raft, replica, self.proposer, self.admission)
        self.reader = Reader(raft, replica, self.proposer, on_crash)
        self.quotas = Quotas(
            Quota(**msgspec.structs.asdict(config.quotas)),
            lambda: replica.table,
            lambda: asyncio.get_running_loop().time(),
        )
        self._office = Office(raft, self.proposer, self.reader, self.polls, self.admission, self.quotas)
        self.forwarding = Forwarding(
            raft, self.leadership, self._office, self.polls, config.leases, incarnation=mint()
        )
        self.reaper = Reaper(raft, replica, self.proposer, self.leadership, self.admission, free_bytes)
        self._free_bytes = free_bytes
        self._nodes = Nodes(raft, config.node_id, self.members.all, lambda: self._describe(wall_ms()))
        self.forwarding.on_description = self._nodes.on_message
        log = EventLog(config.watch.history_events)
        self.watches = Watches(log, config.watch.watchers_max, lambda: self.elsewhere)
        self.audit = AuditOffice(
            raft,
            replica,
            self.proposer,
            self.versions,
            config.audit,
            wall_ms,
            lambda request: self.call("note_audit", "", request),
        )
        self._frames = FrameOffice(raft, self.proposer, self._office, self.polls, self.admission, self.quotas)
        self._under_way: Deadlines[list[Outcome]] = Deadlines([NoAnswer.UNKNOWN])
        self._give_ups: set[asyncio.Task[None]] = set()
        self._reaping: asyncio.Task[None] | None = None
        self._auditing: asyncio.Task[None] | None = None
        self._closing = False

        self.leadership.listeners.append(self._role_changed)
        replica.on_events = self._on_events
        replica.on_restored = self._on_restored
        raft.on_role = self.leadership.on_role
        raft.on_link = self.forwarding.on_link
        raft.on_peer_message = self.forwarding.on_peer_message

    def start(self) -> None:
        """Begin the housekeeping; call it when consensus has started."""
        self.leadership.refresh()
        self._reaping = asyncio.get_running_loop().create_task(self.reaper.run())
        self._reaping.add_done_callback(self._reaper_ended)
        self._auditing = asyncio.get_running_loop().create_task(self.audit.run(), name="audit")
        self._auditing.add_done_callback(self._reaper_ended)

    async def stop(self) -> None:
        """Answer what waits, refuse what comes, and return when every call has its answer or a second is
        over.

        Call it before consensus stops: withdrawing the polls of callers that can't ask again needs it.
        """
        self._closing = True
        self.forwarding.closing = True
        self.polls.close()
        self.watches.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + 1
        while self.proposer.pending and loop.time() < until:  # noqa: ASYNC110 -- once per process, at its end
            await asyncio.sleep(0.01)
        self._under_way.settle_all()
        await self.reader.stop()
        await self._nodes.stop()
        tasks = [task for task in (self._reaping, self._auditing, *self._give_ups) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def call(
        self, operation: str, tenant: str, request: Request, actor: str = "", origin: str = ""
    ) -> Answer:
        """Have one operation of requests.ALL_OPERATIONS answered. `actor` is the id of the credential that
        asks, empty where none is needed; the tenant is the credential's. `origin` is where it asks from.

        Never raises for anything that the caller sent: refusals and failures are Problems, and
        `outcome_unknown` alone says that the operation may have been executed.

        Cancel the task when the caller's connection has closed. An acquire without a request_id of the
        caller's own is then abandoned. One with it is left as it is: a grant ends by its TTL, a place
        in the queue by silence, and nothing is claimed for it meanwhile; the caller may ask again, here
        or elsewhere.
        """
        refusal = self._refusal(request)
        if refusal is None and operation not in OPERATIONS:
            refusal = self._not_understood(operation)
        if refusal is not None:
            return refusal
        if getattr(request, "consistency", "") == "stale":
            return self._read_stale(Ask(operation, tenant, request))
        ask = self._ask(operation, tenant, request, actor, origin)
        call = _Call(asyncio.get_running_loop().time(), ask.wait_ms, self._config.calls.timeout_ms / 1000)
        try:
            [outcome] = await self._attempt([ask], call)
            if isinstance(outcome, NoAnswer):
                outcome = await self._persist(ask, outcome, call)
        except asyncio.CancelledError:
            self.polls.drop(ask, left=True)
            self._give_up(ask)
            raise
        if (note := note_of(ask, outcome)) is not None:
            await self.audit.done(note)
        return outcome

    async def batch(
        self, tenant: str, operations: Sequence[tuple[str, Request]], actor: str = "", origin: str = ""
    ) -> list[Answer]:
        """Have several operations of requests.BATCH_OPERATIONS proposed together, in order, and answered in
        order.

        Each is answered as it would be alone. What only looks sees the effects of all the others. An acquire
        can't wait here. Cancelling does to each acquire what it does in `call`.
        """
        if len(operations) > BATCH_MAX:
            problem = Problem(
                "out_of_range",
                f"ops must hold at most {BATCH_MAX} operations, not {len(operations)}",
                {"path": "$.ops", "max": BATCH_MAX},
            )
            return [problem] * len(operations)
        answers: list[Answer | None] = [
            self._batch_refusal(position, operation, request)
            for position, (operation, request) in enumerate(operations)
        ]
        asks = {
            position: self._ask(operation, tenant, request, actor, origin)
            for position, (operation, request) in enumerate(operations)
            if answers[position] is None
        }
        try:
            for position, answer in (await self._batch(asks)).items():
                answers[position] = answer
        except asyncio.CancelledError:
            for ask in asks.values():
                self._give_up(ask)
            raise
        return cast("list[Answer]", answers)

    def submit(
        self,
        tenant: str,
        operations: Sequence[tuple[str, Request]],
        answered: Answered,
        actor: str = "",
        origin: str = "",
    ) -> Frame:
        """As `call`, for operations that came together and don't wait: without a task for each, and those
        that change something in one entry of the log.

        `answered` is called with each one's place and answer, in no particular order, perhaps before this
        returns. Give the result to `leave` when the caller's connection has closed.
        """
        loop = asyncio.get_running_loop()
        started, timeout_s = loop.time(), self._config.calls.timeout_ms / 1000
        asks: dict[int, Ask] = {}
        for place, (operation, request) in enumerate(operations):
            if (refusal := self._refusal(request)) is not None:
                answered(place, refusal)
            elif operation in READS and getattr(request, "consistency", "") == "stale":
                answered(place, self._read_stale(Ask(operation, tenant, request)))
            else:
                asks[place] = self._ask(operation, tenant, request, actor, origin)

        def go_on(ask: Ask, outcome: NoAnswer) -> asyncio.Task[Answer]:
            return loop.create_task(self._persist(ask, outcome, _Call(started, 0, timeout_s)))

        frame = Frame(dict(asks), answered, go_on, self._attempted)
        if not asks:
            return frame
        self._under_way.add(frame, started + timeout_s)
        if self._raft.is_leader():
            self._frames.execute(frame)
        elif (leader := self.leadership.reachable) is not None:
            settle = partial(frame.settle_all, list(asks))
            frame.number = self.forwarding.ask(leader, list(asks.values()), settle)
            if not frame.left:
                self.forwarding.forget(frame.number)
        else:
            frame.set_result([NoAnswer.NOT_EXECUTED])
        return frame

    def refused(
        self, problem: Problem, operation: str, *, tenant: str, actor: str, origin: str, key: str
    ) -> None:
        """The front has refused a call by itself."""
        self.audit.refused(problem, operation, tenant=tenant, actor=actor, origin=origin, key=key)

    def leave(self, frame: Frame) -> None:
        """Nobody wants the answers of a frame any more: its acquires are given up as in `call`."""
        frame.over = True
        self._attempted(frame)
        for ask in frame.waiting():
            self._give_up(ask)
        for task in list(frame.tasks.values()):
            task.cancel()

    def _attempted(self, frame: Frame) -> None:
        self._under_way.remove(frame)
        if frame.number is not None:
            self.forwarding.forget(frame.number)

    def watch(
        self,
        tenant: str,
        request: EventsRequest,
        encoder: Encoder,
        write: Callable[[Any], bool],
        ended: Callable[[], None],
    ) -> Subscription | Problem:
        """Tell what happens from now on or after a revision, as this node's replica learns of it.

        What is told goes through `encoder` to `write`, which says whether more can be taken; see
        watch.Subscription.
        """
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        exceeded = self.quotas.watch_refusal(tenant, self.watches.of(tenant))
        if exceeded is not None:
            return exceeded
        return self.watches.subscribe(tenant, request.prefix, request.after, encoder, write, ended)

    def cluster(self) -> ClusterReply:
        """This node's view of the cluster."""
        status = self._raft.status()
        leads = status.role == "leader"
        members = []
        for member_id, member in self.members.all().items():
            match: int | None = None
            if leads:
                match = (
                    status.last_index if member_id == status.node_id else status.match_index.get(member_id)
                )
            role: Role | Literal["unknown"] = "unknown"
            if member_id == status.node_id:
                role = status.role
            elif member_id in status.connected and status.leader_id is not None:
                role = "leader" if member_id == status.leader_id else "follower"
            members.append(
                MemberBody(
                    id=member_id,
                    role=role,
                    http=member.http,
                    peer=member.peer,
                    match_index=match,
                    lag=None if match is None else max(0, status.last_index - match),
                    voter=self.members.is_voter(member_id),
                )
            )
        return ClusterReply(
            cluster_id=self._config.cluster_id,
            node=status.node_id,
            role=status.role,
            leader=status.leader_id,
            leader_url=self.leader_url,
            term=status.term,
            commit_index=status.commit_index,
            applied_index=status.applied_index,
            last_index=status.last_index,
            cluster_time_ms=self._raft.now_ms(),
            durability=self._config.durability,
            version=__version__,
            members=members,
        )

    async def nodes(self) -> NodesReply:
        """All members, each as it describes itself; see nodes.py."""
        return await self._nodes.all()

    def _describe(self, wall_ms: int) -> OwnBody:
        status, readiness = self._raft.status(), self.ready()
        return OwnBody(
            role=status.role,
            term=status.term,
            last_index=status.last_index,
            applied_index=status.applied_index,
            ready=readiness.ready,
            reason=readiness.reason,
            version=__version__,
            disk_free_bytes=self._free_bytes(),
            disk_reserve_bytes=self._config.admission.disk_reserve_bytes,
            wall_ms=wall_ms,
        )

    def ready(self) -> Readiness:
        """Whether this node serves: a leader in office with a quorum, or a follower in contact with its
        leader, which has caught up with where the cluster was when it began."""
        if self._closing:
            return Readiness(ready=False, reason="the node is shutting down")
        status = self._raft.status()
        if status.role == "leader":
            if not self._raft.serving():
                return Readiness(ready=False, reason="the leader has not taken office yet")
            if not status.quorum:
                return Readiness(ready=False, reason="the leader is out of contact with a quorum")
        elif status.leader_id is None:
            return Readiness(ready=False, reason="no leader is known")
        elif not status.quorum or status.leader_id not in status.connected:
            return Readiness(ready=False, reason="the node is out of contact with its leader")
        elif not status.caught_up:
            return Readiness(ready=False, reason="the node has not caught up with its leader yet")
        return Readiness(ready=True, reason="serving")

    @property
    def elsewhere(self) -> Sequence[str]:
        """URLs of the other nodes' fronts, the leader's first."""
        url, others = self.leader_url, self.members.others()
        return [url, *(other for other in others if other != url)] if url in others else others

    @property
    def leader_url(self) -> str | None:
        """URL of the leader's front, as far as this node knows."""
        return self.members.http(self._raft.leader_id)

    # One call

    def _refusal(self, request: Request | EventsRequest) -> Problem | None:
        if self._closing:
            return Problem("shutting_down", "this node is shutting down", {}, RETRY_S)
        return check(request, self._config.leases)

    def _not_understood(self, operation: str) -> Problem | None:
        """An older leader would not understand the question. For one about the cluster itself no other node's
        version matters."""
        leader = self._raft.leader_id
        if operation in CLUSTER_OPERATIONS and leader is not None:
            return self.versions.refusal(BASE + 1, [leader])
        return self.versions.refusal(BASE + 1)

    def _batch_refusal(self, position: int, operation: str, request: Request) -> Problem | None:
        if operation not in BATCH_OPERATIONS:
            path = f"$.ops[{position}].op"
            return Problem("invalid", f"{operation!r} can't be part of a batch", {"path": path})
        if isinstance(request, AcquireRequest) and request.wait_ms:
            path = f"$.ops[{position}].wait_ms"
            return Problem("invalid", "an acquire in a batch can't wait: wait_ms must be 0", {"path": path})
        return self._refusal(request)

    def _ask(self, operation: str, tenant: str, request: Request, actor: str, origin: str) -> Ask:
        if isinstance(request, AcquireRequest) and request.request_id is None:
            named = msgspec.structs.replace(request, request_id=self._mint())
            return Ask(operation, tenant, named, remember=False, actor=actor, origin=origin)
        return Ask(operation, tenant, request, actor=actor, origin=origin)

    async def _attempt(self, asks: list[Ask], call: _Call) -> list[Outcome]:
        """Try once, here or at the leader, and answer for each how it went."""
        raft = self._raft
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Outcome]] = loop.create_future()

        def done(outcomes: list[Outcome]) -> None:
            if not future.done():
                future.set_result(outcomes)

        deadline = call.deadline
        number = None
        if raft.is_leader():
            for ask in asks:
                ask.sent = True
            if len(asks) == 1:
                self._office.execute(asks[0], lambda outcome: done([outcome]))
            else:
                self._office.execute_all(asks, done)
        elif (leader := self.leadership.reachable) is not None:
            if all(ask.idempotent for ask in asks):
                now = loop.time()
                share = self._config.calls.timeout_ms / 1000 / ATTEMPTS_PER_CALL
                deadline = min(deadline, max(now, call.slice_ends) + share)
            number = self.forwarding.ask(leader, asks, done)
        else:
            return [NoAnswer.NOT_EXECUTED] * len(asks)
        if future.done():
            return future.result()
        self._under_way.add(future, deadline)
        try:
            outcomes = await future
        finally:
            self._under_way.remove(future)
            if number is not None:
                self.forwarding.forget(number)
        return outcomes if len(outcomes) == len(asks) else [outcomes[0]] * len(asks)

    async def _persist(self, ask: Ask, outcome: NoAnswer, call: _Call) -> Answer:
        """Go on after an attempt without an answer, until there is one or the call's time is over."""
        while True:
            if outcome is NoAnswer.UNKNOWN:
                call.unsure = call.unsure or ask.operation not in READS
                if not ask.idempotent:
                    return _unknown(ask)
            if not await self._may_go_on(call, moved=outcome is NoAnswer.UNKNOWN):
                return self._failure(ask, call)
            if ask.wait_ms:
                left_ms = int((call.slice_ends - asyncio.get_running_loop().time()) * 1000)
                ask.request = msgspec.structs.replace(
                    cast(AcquireRequest, ask.request), wait_ms=max(left_ms, 0)
                )
            [result] = await self._attempt([ask], call)
            if not isinstance(result, NoAnswer):
                if call.unsure and isinstance(result, Problem) and result.code in _NOT_EXECUTED:
                    return self._failure(ask, call)
                return result
            outcome = result

    async def _may_go_on(self, call: _Call, *, moved: bool) -> bool:
        """Wait until another attempt makes sense; false if there will be none."""
        loop = asyncio.get_running_loop()
        leadership = self.leadership
        leadership.refresh()
        if not moved:
            # Whoever was thought to lead does not. Give the news a moment before believing the same again.
            await leadership.changed(PAUSE_S)
        while not self._closing:
            now = loop.time()
            if now >= call.deadline:
                return False
            if self._raft.is_leader() or leadership.reachable is not None:
                call.give_up_at = None
                return True
            if call.give_up_at is None:
                call.give_up_at = min(now + self._config.calls.leader_wait_ms / 1000, call.deadline)
            if now >= call.give_up_at or leadership.crowded:
                return False
            await leadership.changed(call.give_up_at - now)
        return False

    def _failure(self, ask: Ask, call: _Call) -> Problem:
        """What a call ends with that nobody answered."""
        if call.unsure:
            # Nobody would ever renew what it may have been granted, unless its caller can ask again.
            self._give_up(ask)
            return _unknown(ask)
        if self._closing:
            return Problem("shutting_down", "this node is shutting down", {}, RETRY_S)
        if self._raft.leader_id is None:
            detail = "no leader is known to this node"
        elif self._raft.is_leader() or self.leadership.reachable is not None:
            detail = "the leader did not answer in time"
        else:
            detail = "this node has no link to the leader that it last knew"
        return Problem("no_leader", detail, {}, RETRY_S)

    def _read_stale(self, ask: Ask) -> Answer:
        """Answer from this node's own replica, which may be behind, and say how far it is."""
        table = self._replica.table
        answer = reads.read(ask, reads.View(table, table.time_ms, table.time_ms))
        return reads.with_index(answer, self._replica.applied_index)

    # Batches

    async def _batch(self, asks: dict[int, Ask]) -> dict[int, Answer]:
        """Attempt all that is not answered yet, in order, until everything is or time is over."""
        answers: dict[int, Answer] = {}
        calls = {
            position: _Call(asyncio.get_running_loop().time(), 0, self._config.calls.timeout_ms / 1000)
            for position in asks
        }
        left = dict(asks)
        while left:
            first = calls[next(iter(left))]
            outcomes = await self._attempt(list(left.values()), first)
            moved = False
            for (position, ask), outcome in zip(list(left.items()), outcomes, strict=True):
                call = calls[position]
                if outcome is NoAnswer.UNKNOWN:
                    moved = True
                    call.unsure = call.unsure or ask.operation not in READS
                    if ask.idempotent:
                        continue
                    answers[position] = _unknown(ask)
                elif outcome is NoAnswer.NOT_EXECUTED:
                    continue
                elif call.unsure and isinstance(outcome, Problem) and outcome.code in _NOT_EXECUTED:
                    answers[position] = self._failure(ask, call)
                else:
                    answers[position] = outcome
                del left[position]
            if left and not await self._may_go_on(first, moved=moved):
                for position, ask in left.items():
                    answers[position] = self._failure(ask, calls[position])
                break
        return answers

    # Callers that are gone

    def _give_up(self, ask: Ask) -> None:
        """Abandon an acquire behind all its attempts, if nobody can ask for it again.

        A caller with a request_id of its own may be asking again elsewhere at this moment, or hold
        already what it was granted there: its closed connection says nothing about its wish.
        """
        if ask.remember or not ask.sent or not isinstance(ask.request, AcquireRequest):
            return
        request_id, session_id = ask.request.request_id or "", ask.request.session_id
        abandon = Ask("abandon", ask.tenant, AbandonRequest(request_id=request_id, session_id=session_id))
        if self._raft.is_leader():
            # Past admission: it takes load away.
            self.proposer.abandon(ask.tenant, request_id, session_id, lambda settled: None)
        elif not self._closing and len(self._give_ups) < GIVE_UPS_MAX:
            task = asyncio.get_running_loop().create_task(self._abandon(abandon))
            self._give_ups.add(task)
            task.add_done_callback(self._give_ups.discard)

    async def _abandon(self, abandon: Ask) -> None:
        call = _Call(asyncio.get_running_loop().time(), 0, self._config.calls.timeout_ms / 1000)
        [outcome] = await self._attempt([abandon], call)
        if isinstance(outcome, NoAnswer):
            await self._persist(abandon, outcome, call)

    # Changes

    def _on_events(self, events: Sequence[Event]) -> None:
        self.polls.on_events(events)
        self.watches.on_events(events)

    def _on_restored(self) -> None:
        tenants = self._replica.table.tenants
        self.watches.on_restored({name: counters.revision for name, counters in tenants.items()})

    def _role_changed(self) -> None:
        if self.leadership.role != "leader":
            self.polls.drop_all()
        self.watches.leader_changed(self.leadership.leader_id, self.leadership.term, self.leader_url)

    def _reaper_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_crash(error)


def _unknown(ask: Ask) -> Problem:
    if ask.operation == "acquire":
        again = "ask again with the same request_id" if ask.remember else "what it was granted is given up"
    elif ask.idempotent:
        again = "it can safely be asked again"
    else:
        again = "look before asking again"
    return Problem("outcome_unknown", f"{ask.operation} may have been executed: {again}")
