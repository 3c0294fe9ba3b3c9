"""The audit as the service sees to it: its policy, and what is refused before the log.

What is done or refused by an entry of the log is recorded by the state machine (lease/auditing.py). What
this node refuses by itself, because a credential is not valid or lacks a right, is noted here and told to the
leader, who proposes it. A flood of refusals must not become a flood of entries: equal ones are one note with
a count, a node tells its notes once in PERIOD_S, at most AUDIT_NOTES_MAX of them, and what is more than that
is one note about how many more there were.

A note is told again if nobody knows what became of it, so it may be counted twice, and is lost only with the
node that had it, within PERIOD_S, or when no leader is found before there are too many.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final

from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.audit_trail import AuditNote, SetAuditPolicy, same
from tenure_cluster.raft import Raft
from tenure_cluster.service.asks import Answer
from tenure_cluster.service.audit_messages import NoteAuditRequest, within_bounds
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.proposals import Proposer
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.versions import Versions
from tenure_cluster.settings import Audit

PERIOD_S: Final = 1.0
BEGIN_S: Final = 0.1
"""How soon a leader looks again whether the audit has begun."""

REFUSED: Final = "refused"
"""The kind of what is noted here of refusals; the subject is the operation."""

OTHERS: Final = AuditNote(REFUSED, "", "", code="others", detail="more kinds of refusals than are told apart")


class AuditOffice:
    """Notes what this node refuses, and sees to the policy when it leads."""

    def __init__(
        self,
        raft: Raft,
        replica: Replica,
        proposer: Proposer,
        versions: Versions,
        settings: Audit,
        wall_ms: Callable[[], int],
        tell: Callable[[NoteAuditRequest], Awaitable[Answer]],
    ) -> None:
        """`tell` has notes recorded, wherever the leader is."""
        self._raft = raft
        self._replica = replica
        self._proposer = proposer
        self._versions = versions
        self._settings = settings
        self._wall_ms = wall_ms
        self._tell = tell
        self._notes: dict[tuple[str, ...], AuditNote] = {}
        self._asking = False

    def refused(
        self,
        problem: Problem,
        operation: str,
        *,
        tenant: str = "",
        actor: str = "",
        origin: str = "",
        key: str = "",
    ) -> None:
        """This node has refused a call by itself. Costs little, and never fails."""
        note = AuditNote(
            REFUSED,
            tenant,
            actor,
            origin,
            key,
            # Before it is known who asks there is nothing to tell callers apart by.
            subject=operation if actor else "",
            code=problem.code,
            detail=problem.detail,
        )
        self._add(within_bounds(note))

    async def record(self, note: AuditNote) -> Answer:
        """Have something recorded that is no entry of the log, now; a Problem if that has not been done or
        nobody knows."""
        return await self._tell(NoteAuditRequest(notes=[note]))

    async def done(self, note: AuditNote) -> None:
        """Something has been done that is no entry of the state: have it recorded, now if that is possible,
        else as soon as it is."""
        if not self._settings.records_max:
            return
        recorded = False
        try:
            recorded = not isinstance(await self.record(note), Problem)
        finally:
            if not recorded:
                self._add(note)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S if self.begun or not self._raft.is_leader() else BEGIN_S)
            self._versions.refresh()
            self._see_to_policy()
            if self._notes:
                await self._tell_notes()

    @property
    def begun(self) -> bool:
        """Whether what happens now is recorded as this node's configuration says, or not at all if it says
        that."""
        chain = self._replica.table.audit.present
        if not self._settings.records_max:
            return not chain.records_max
        return (chain.records_max, chain.keep_ms) == (self._settings.records_max, self._settings.keep_ms)

    def _see_to_policy(self) -> None:
        """The leader's configuration is what counts."""
        if self.begun or self._asking or not self._raft.serving():
            return

        def settled(outcome: object) -> None:
            self._asking = False

        self._asking = True
        policy = SetAuditPolicy(self._settings.records_max, self._settings.keep_ms, self._wall_ms())
        self._proposer.propose(policy, settled)

    async def _tell_notes(self) -> None:
        if not self._settings.records_max:
            self._notes.clear()
            return
        told = dict(islice(self._notes.items(), limits.AUDIT_NOTES_MAX))
        for kind in told:
            del self._notes[kind]
        answer = await self._tell(NoteAuditRequest(notes=list(told.values())))
        if isinstance(answer, Problem):
            for note in told.values():
                self._add(note)

    def _add(self, note: AuditNote) -> None:
        kind = same(note)
        present = self._notes.get(kind)
        if present is None and len(self._notes) >= limits.AUDIT_NOTES_MAX - 1:
            note = replace(OTHERS, count=note.count)
            kind = same(note)
            present = self._notes.get(kind)
        if present is not None:
            note = replace(present, count=present.count + note.count)
        self._notes[kind] = note
