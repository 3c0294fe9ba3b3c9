"""What the HTTP front needs from the service."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tenure_cluster.service.errors import Problem
from tenure_cluster.service.frames import Answered, Frame
from tenure_cluster.service.replies import ClusterReply, NodesReply, Reply
from tenure_cluster.service.requests import EventsRequest, Request
from tenure_cluster.service.watch import Subscription
from tenure_cluster.service.watch_messages import Encoder


class Readiness(Protocol):
    """Whether a node can serve; ``reason`` is a sentence that says why not."""

    @property
    def ready(self) -> bool: ...

    @property
    def reason(self) -> str: ...


class LeasePort(Protocol):
    """The use cases of one node, whichever node leads."""

    async def call(
        self, operation: str, tenant: str, request: Request, actor: str = "", origin: str = ""
    ) -> Reply | Problem:
        """Execute one operation of ``requests.ALL_OPERATIONS`` on behalf of ``actor``, a credential,
        which asks from the address ``origin``.

        Cancellation says that the caller's connection is gone: a queued acquire is then abandoned.
        """

    async def batch(
        self, tenant: str, operations: Sequence[tuple[str, Request]], actor: str = "", origin: str = ""
    ) -> list[Reply | Problem]:
        """Execute operations in one round and answer each, in order."""

    def submit(
        self,
        tenant: str,
        operations: Sequence[tuple[str, Request]],
        answered: Answered,
        actor: str = "",
        origin: str = "",
    ) -> Frame:
        """Execute operations that came together and don't wait, each answered on its own."""

    def refused(
        self, problem: Problem, operation: str, *, tenant: str, actor: str, origin: str, key: str
    ) -> None:
        """Hear that the front has refused a call by itself, for want of a right."""

    def leave(self, frame: Frame) -> None:
        """Nobody wants the answers of a frame any more."""

    def watch(
        self,
        tenant: str,
        request: EventsRequest,
        encoder: Encoder,
        write: Callable[[Any], bool],
        ended: Callable[[], None],
    ) -> Subscription | Problem:
        """Tell what happens, until the subscription is closed or ``ended`` is called. No I/O; what is told
        is written later."""

    def cluster(self) -> ClusterReply:
        """This node's view of the cluster. No I/O."""

    async def nodes(self) -> NodesReply:
        """All members, each as it describes itself, within a second."""

    def ready(self) -> Readiness:
        """Whether this node can serve with a quorum, and if not, why. No I/O."""

    @property
    def elsewhere(self) -> Sequence[str]:
        """Base URLs of the other nodes' HTTP fronts, the leader's first."""

    @property
    def leader_url(self) -> str | None:
        """Base URL of the leader's HTTP front, if a leader is known."""
