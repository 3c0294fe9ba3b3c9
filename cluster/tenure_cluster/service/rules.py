"""A leader has the rules of its version adopted, as soon as every member knows them; see lease/rules.py."""

import asyncio
from collections.abc import Callable
from typing import Final

from tenure_cluster.lease.rules import PRESENT, AdoptRules
from tenure_cluster.raft import Raft
from tenure_cluster.service.proposals import Proposer
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.versions import Versions

PERIOD_S: Final = 1.0
BEGIN_S: Final = 0.1
"""How soon a leader looks again while older rules are in force."""


class RulesOffice:
    """Sees to it when this node leads."""

    def __init__(
        self,
        raft: Raft,
        replica: Replica,
        proposer: Proposer,
        versions: Versions,
        wall_ms: Callable[[], int],
    ) -> None:
        self._raft = raft
        self._replica = replica
        self._proposer = proposer
        self._versions = versions
        self._wall_ms = wall_ms
        self._asking = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S if self.adopted or not self._raft.is_leader() else BEGIN_S)
            self._see_to_it()

    @property
    def adopted(self) -> bool:
        """Whether the rules in force are those of this version, or of a later one."""
        return self._replica.table.rules >= PRESENT

    def _see_to_it(self) -> None:
        if self.adopted or self._asking or not self._raft.serving():
            return
        if self._versions.refusal(PRESENT) is not None:
            return

        def settled(outcome: object) -> None:
            self._asking = False

        self._asking = True
        self._proposer.propose(AdoptRules(PRESENT, self._wall_ms()), settled)
