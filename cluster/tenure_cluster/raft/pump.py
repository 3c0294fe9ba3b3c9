"""The node's consensus rounds (signatures; bodies follow)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tenure_cluster.raft.types import Outcome, RaftOptions, RaftStatus, Role, StateMachine

if TYPE_CHECKING:
    from tenure_cluster.raft.clock import Clock
    from tenure_cluster.raft.disk import Disk


class Raft:
    """One member of the cluster."""

    on_peer_message: Callable[[str, int, bytes], None] | None
    on_link: Callable[[str, bool], None] | None
    on_role: Callable[[Role, str | None, int], None] | None

    def __init__(
        self,
        *,
        node_id: str,
        cluster_id: str,
        members: Mapping[str, str],
        listen: str,
        disk: Disk,
        clock: Clock,
        machine: StateMachine,
        options: RaftOptions,
        on_fatal: Callable[[BaseException], None],
    ) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def propose(self, at_ms: int, command: bytes, done: Callable[[Outcome], None]) -> None: ...

    async def read_barrier(self) -> None: ...

    async def confirm(self) -> None: ...

    def send(self, peer_id: str, payload: bytes) -> int | None: ...

    def is_leader(self) -> bool: ...

    def serving(self) -> bool: ...

    @property
    def leader_id(self) -> str | None: ...

    def now_ms(self) -> int: ...

    def status(self) -> RaftStatus: ...
