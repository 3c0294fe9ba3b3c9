"""What each node says of itself, collected by the one that is asked.

Theory of operation. `/v1/cluster` is one node's view and costs nothing; how full another node's disk is and
which version it runs only that node knows. So it is asked, over the peer links, when somebody wants to know
and never otherwise. A node that doesn't answer in time, because it is down, cut off, or of a version that
doesn't know the question, is told as not reached. Whoever asks while a round is under way gets that round's
answer, so no number of watchers makes more than one round of questions at a time.

Nothing here decides anything: an answer that comes late, or from a peer's former life, is at worst a figure
of a second ago.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tenure_cluster.raft import Raft
from tenure_cluster.service import peer_messages
from tenure_cluster.service.peer_messages import Describe, Described
from tenure_cluster.service.replies import NodeBody, NodesReply, OwnBody
from tenure_cluster.settings import Member

ANSWER_TIMEOUT_S: Final = 1.0
"""How long a node may take to describe itself; a view that comes late is no view."""


class Nodes:
    """Asks and answers. One for each node."""

    def __init__(
        self,
        raft: Raft,
        node_id: str,
        members: Callable[[], Mapping[str, Member]],
        is_voter: Callable[[str], bool],
        own: Callable[[], OwnBody],
    ) -> None:
        """`members` are those of the moment, `is_voter` says who of them votes; `own` describes this node,
        without waiting for anything."""
        self._raft = raft
        self._node_id = node_id
        self._members = members
        self._is_voter = is_voter
        self._own = own
        self._number = 0
        self._open: dict[int, tuple[str, asyncio.Future[OwnBody]]] = {}
        self._round: asyncio.Task[NodesReply] | None = None

    async def all(self) -> NodesReply:
        """Every member, as it describes itself. Returns within ANSWER_TIMEOUT_S, without a quorum too."""
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._ask_all(), name="nodes")
            self._round.add_done_callback(self._round_ended)
        return await asyncio.shield(self._round)

    async def stop(self) -> None:
        """End the round that is under way with what has been told until now."""
        for _, answer in self._open.values():
            answer.cancel()
        if self._round is not None:
            await asyncio.gather(self._round, return_exceptions=True)

    def on_message(self, peer: str, message: Describe | Described) -> None:
        """Answer a question of another node, or take its answer. Raises BadMessage."""
        if isinstance(message, Describe):
            self._raft.send(peer, peer_messages.encode_described(message.number, self._own()))
            return
        asked, answer = self._open.get(message.number, ("", None))
        if answer is not None and asked == peer and not answer.done():
            answer.set_result(peer_messages.own_of(message))

    def _round_ended(self, task: asyncio.Task[NodesReply]) -> None:
        self._round = None
        if not task.cancelled():
            task.exception()  # told to whoever waits; nobody may

    async def _ask_all(self) -> NodesReply:
        loop = asyncio.get_running_loop()
        asked: dict[int, tuple[str, asyncio.Future[OwnBody]]] = {}
        for peer in self._members():
            self._number += 1
            if peer == self._node_id:
                continue
            if self._raft.send(peer, peer_messages.encode_describe(self._number)) is not None:
                asked[self._number] = peer, loop.create_future()
        self._open.update(asked)
        try:
            if asked:
                await asyncio.wait([future for _, future in asked.values()], timeout=ANSWER_TIMEOUT_S)
        finally:
            for number in asked:
                del self._open[number]
        told = {
            peer: future.result()
            for peer, future in asked.values()
            if future.done() and not future.cancelled()
        }
        told[self._node_id] = self._own()
        return self._reply(told)

    def _reply(self, told: Mapping[str, OwnBody]) -> NodesReply:
        status = self._raft.status()
        leader = status.leader_id
        head = told[leader].last_index if leader is not None and leader in told else None
        nodes = [
            NodeBody(
                id=name,
                http=member.http,
                reached=(own := told.get(name)) is not None,
                lag=None if head is None or own is None else max(0, head - own.last_index),
                voter=self._is_voter(name),
                about=msgspec.UNSET if own is None else own,
            )
            for name, member in self._members().items()
        ]
        return NodesReply(node=self._node_id, leader=leader, term=status.term, nodes=nodes)
