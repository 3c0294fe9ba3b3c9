"""The use cases (signatures; bodies follow)."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import ClusterReply, Reply
from tenure_cluster.service.requests import Request

Answer: TypeAlias = Reply | Problem


class Readiness(msgspec.Struct, frozen=True):
    """Whether this node can serve, and if not, why: one sentence. True iff ready."""

    ready: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ready


class LeaseService:
    """Every operation, on any node: the leader executes it, the others hand it on and pass the answer back."""

    async def call(self, operation: str, tenant: str, request: Request) -> Answer:
        """Have one operation of requests.OPERATIONS answered.

        Never raises for anything that the caller sent: refusals and failures are Problems. To give up (the caller's
        connection has closed) cancel the task: an acquire is then abandoned.
        """
        raise NotImplementedError

    async def batch(self, tenant: str, operations: Sequence[tuple[str, Request]]) -> list[Answer]:
        """Have several operations of requests.BATCH_OPERATIONS proposed together, in order, and answered in order."""
        raise NotImplementedError

    def cluster(self) -> ClusterReply:
        """This node's view of the cluster."""
        raise NotImplementedError

    def ready(self) -> Readiness:
        """Whether this node serves: a leader with a quorum, or a follower in contact with one."""
        raise NotImplementedError

    @property
    def leader_url(self) -> str | None:
        """URL of the leader's front, as far as this node knows."""
        raise NotImplementedError
