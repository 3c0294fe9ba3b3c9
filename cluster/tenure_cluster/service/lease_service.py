"""The use cases: every operation, on any node.

The leader executes an operation, the others hand it on and pass the leader's answer back. A call lives at the
node that it came to: there it is checked, gets a request_id if its acquire has none, and is attempted until
it is answered or its time is over (attempts.py).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from tenure_cluster.lease.events import Event
from tenure_cluster.lease.quota import Quota
from tenure_cluster.raft import Raft
from tenure_cluster.service import last_administrator, reads
from tenure_cluster.service.admission import Admission
from tenure_cluster.service.answers import RETRY_S
from tenure_cluster.service.asks import READS, Answer, Ask, NoAnswer
from tenure_cluster.service.attempts import Attempts, Call
from tenure_cluster.service.audit import AuditOffice
from tenure_cluster.service.changing_members import misplaced, not_understood, note_of
from tenure_cluster.service.cluster_view import ClusterView, Readiness
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.forwarding import Forwarding
from tenure_cluster.service.frames import Answered, Frame, FrameOffice
from tenure_cluster.service.leadership import Leadership
from tenure_cluster.service.members import MembersView
from tenure_cluster.service.nodes import Nodes
from tenure_cluster.service.office import Office
from tenure_cluster.service.polls import Polls
from tenure_cluster.service.proposals import NEEDED, Proposer
from tenure_cluster.service.quotas import Quotas
from tenure_cluster.service.reader import Reader
from tenure_cluster.service.reaper import Reaper
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.replies import ClusterReply, NodesReply
from tenure_cluster.service.requests import (
    BATCH_OPERATIONS,
    OPERATIONS,
    AcquireRequest,
    EventsRequest,
    Request,
)
from tenure_cluster.service.rules import RulesOffice
from tenure_cluster.service.validation import BATCH_MAX, check
from tenure_cluster.service.versions import Kept, Versions
from tenure_cluster.service.watch import Subscription, Watches
from tenure_cluster.service.watch_log import EventLog
from tenure_cluster.service.watch_messages import Encoder
from tenure_cluster.settings import Config


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
        self._office = Office(
            raft,
            self.proposer,
            self.reader,
            self.polls,
            self.admission,
            self.quotas,
            lambda ask: self._forbidden(ask, wall_ms()),
        )
        self.forwarding = Forwarding(
            raft, self.leadership, self._office, self.polls, config.leases, incarnation=mint()
        )
        self.reaper = Reaper(raft, replica, self.proposer, self.leadership, self.admission, free_bytes)
        self._view = ClusterView(config, raft, self.members, free_bytes)
        members = self.members
        self._nodes = Nodes(
            raft, config.node_id, members.all, members.is_voter, lambda: self._view.describe(wall_ms())
        )
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
        self._rules = RulesOffice(raft, replica, self.proposer, self.versions, wall_ms)
        self._frames = FrameOffice(raft, self.proposer, self._office, self.polls, self.admission, self.quotas)
        self._attempts = Attempts(
            raft, self.leadership, self._office, self.forwarding, self.proposer, config.calls
        )
        self._reaping: asyncio.Task[None] | None = None
        self._auditing: asyncio.Task[None] | None = None
        self._adopting: asyncio.Task[None] | None = None
        self._closing = False

        self.leadership.listeners.append(self._role_changed)
        replica.on_events = self._on_events
        replica.on_restored = self._on_restored
        raft.on_role = self.leadership.on_role
        raft.on_link = self.forwarding.on_link
        raft.on_heard_anew = self.forwarding.on_heard_anew
        raft.on_peer_message = self.forwarding.on_peer_message

    def start(self) -> None:
        """Begin the housekeeping; call it when consensus has started."""
        self.leadership.refresh()
        self._reaping = asyncio.get_running_loop().create_task(self.reaper.run())
        self._reaping.add_done_callback(self._reaper_ended)
        self._auditing = asyncio.get_running_loop().create_task(self.audit.run(), name="audit")
        self._auditing.add_done_callback(self._reaper_ended)
        self._adopting = asyncio.get_running_loop().create_task(self._rules.run(), name="rules")
        self._adopting.add_done_callback(self._reaper_ended)

    async def stop(self) -> None:
        """Answer what waits, refuse what comes, and return when every call has its answer or a second is
        over.

        Call it before consensus stops: withdrawing the polls of callers that can't ask again needs it.
        """
        self._closing = True
        self.forwarding.closing = True
        self._attempts.closing = True
        self._view.closing = True
        self.polls.close()
        self.watches.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + 1
        while self.proposer.pending and loop.time() < until:  # noqa: ASYNC110 -- once per process, at its end
            await asyncio.sleep(0.01)
        self._attempts.under_way.settle_all()
        await self.reader.stop()
        await self._nodes.stop()
        housekeeping = (self._reaping, self._auditing, self._adopting)
        tasks = [task for task in (*housekeeping, *self._attempts.give_ups) if task is not None]
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
            refusal = not_understood(self._raft, self.versions, operation)
        if refusal is not None:
            return refusal
        if getattr(request, "consistency", "") == "stale":
            return self._read_stale(Ask(operation, tenant, request))
        ask = self._ask(operation, tenant, request, actor, origin)
        call = Call(asyncio.get_running_loop().time(), ask.wait_ms, self._config.calls.timeout_ms / 1000)
        try:
            [outcome] = await self._attempts.attempt([ask], call)
            if isinstance(outcome, NoAnswer):
                outcome = await self._attempts.persist(ask, outcome, call)
        except asyncio.CancelledError:
            self.polls.drop(ask, left=True)
            self._attempts.give_up(ask)
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
            for position, answer in (await self._attempts.persist_all(asks)).items():
                answers[position] = answer
        except asyncio.CancelledError:
            for ask in asks.values():
                self._attempts.give_up(ask)
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
        stale: deque[tuple[int, Ask]] = deque()
        for place, (operation, request) in enumerate(operations):
            if (refusal := self._refusal(request)) is not None:
                answered(place, refusal)
            elif operation in READS and getattr(request, "consistency", "") == "stale":
                stale.append((place, Ask(operation, tenant, request)))
            else:
                asks[place] = self._ask(operation, tenant, request, actor, origin)

        def go_on(ask: Ask, outcome: NoAnswer) -> asyncio.Task[Answer]:
            return loop.create_task(self._attempts.persist(ask, outcome, Call(started, 0, timeout_s)))

        frame = Frame(dict(asks), answered, go_on, self._attempted)
        if stale:
            self._read_all_stale(frame, stale, answered)
        if not asks:
            return frame
        self._attempts.under_way.add(frame, started + timeout_s)
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
            self._attempts.give_up(ask)
        for task in list(frame.tasks.values()):
            task.cancel()

    def _attempted(self, frame: Frame) -> None:
        self._attempts.under_way.remove(frame)
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
        return self._view.cluster()

    async def nodes(self) -> NodesReply:
        """All members, each as it describes itself; see nodes.py."""
        return await self._nodes.all()

    def ready(self) -> Readiness:
        """Whether this node can serve with a quorum, and if not, why."""
        return self._view.ready()

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
        tag = NEEDED.get(type(request))
        if tag is not None and (refusal := self.versions.refusal(tag)) is not None:
            return refusal  # an older leader would not understand it, nor answer what came together with it
        return check(request, self._config.leases)

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

    def _forbidden(self, ask: Ask, wall_ms: int) -> Problem | None:
        """Why this leader must not propose it. Of credentials the audit is told, since the log will not."""
        if (problem := misplaced(ask, self.members.all(), tls=self._config.tls.on)) is not None:
            return problem
        problem = last_administrator.refusal(ask, self._replica.table.credentials, wall_ms)
        if problem is not None:
            self.audit.refused(problem, ask.operation, tenant=ask.tenant, actor=ask.actor, origin=ask.origin)
        return problem

    def _read_stale(self, ask: Ask) -> Answer:
        """Answer from this node's own replica, which may be behind, and say how far it is."""
        if (exceeded := self.quotas.stale_refusal(ask.tenant)) is not None:
            return exceeded
        table = self._replica.table
        answer = reads.read(ask, reads.View(table, table.time_ms, table.time_ms))
        return reads.with_index(answer, self._replica.applied_index)

    def _read_all_stale(self, frame: Frame, left: deque[tuple[int, Ask]], answered: Answered) -> None:
        """Those of a frame, a few in a turn of the loop."""
        room = reads.TURN_WEIGHT
        while left and room > 0 and not frame.over:
            place, ask = left.popleft()
            room -= reads.weight(ask.operation)
            answered(place, self._read_stale(ask))
        if left and not frame.over:
            asyncio.get_running_loop().call_soon(self._read_all_stale, frame, left, answered)

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
