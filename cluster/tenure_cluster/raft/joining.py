"""What a node that joins can't know by its configuration: whether its cluster was restored from a backup.

The nodes of a restored cluster know it by a name that is longer than the configured one (origin_file.py), and
refuse whoever greets with another. A node with nothing in its data directory yet has promised nothing to
anybody, so it may take the name over: it greets the members that its configuration names, as somebody whom
none of them lets in, and is told in the refusal. Only a name that begins with the configured one is told, and
taken. With TLS only a node counts whose certificate names it.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Collection, Mapping
from typing import Final

from tenure_cluster.addresses import split_address
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.link import HELLO_BYTES_MAX, Framed, frame
from tenure_cluster.raft.members_file import NAME as MEMBERS_NAME
from tenure_cluster.raft.members_file import MembersDiffer
from tenure_cluster.raft.origin_file import NAME as ORIGIN_NAME
from tenure_cluster.raft.origin_file import SEPARATOR, is_named
from tenure_cluster.raft.peer_tls import PeerTls, why_not
from tenure_cluster.raft.recovery import SEGMENT_PREFIX

ANSWER_S: Final = 2.0
PATIENCE_S: Final = 10.0
"""How long a node that joins looks for a member that answers, before it goes on without."""
AGAIN_S: Final = 0.5


def has_nothing(names: Collection[str]) -> bool:
    """Whether a directory with these files is one of a node that was never started."""
    known = {MEMBERS_NAME, ORIGIN_NAME} & set(names)
    return not known and not any(name.startswith(SEGMENT_PREFIX) for name in names)


async def ask_origin(
    *,
    node_id: str,
    cluster_id: str,
    members: Mapping[str, str],
    tls: PeerTls | None = None,
    patience_s: float = PATIENCE_S,
) -> str | None:
    """What the cluster's name has behind `cluster_id`, by its members, which are at these addresses; None if
    it is nothing, or if none of them answers. Raises MembersDiffer."""
    others = {name: address for name, address in members.items() if name != node_id}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while others:
                asked = (_ask(node_id, cluster_id, name, address, tls) for name, address in others.items())
                told = {answer for answer in await asyncio.gather(*asked) if answer is not None}
                if len(told) > 1:
                    raise MembersDiffer(
                        f"the members that the configuration names are of several clusters, "
                        f"{' and '.join(sorted(told))}: correct their addresses in [members]"
                    )
                if told:
                    [known] = told
                    return known.partition(SEPARATOR)[2] or None
                await asyncio.sleep(AGAIN_S)
    return None


async def _ask(node_id: str, cluster_id: str, peer: str, address: str, tls: PeerTls | None) -> str | None:
    """How this member knows the cluster; None if it does not say."""
    host, port = split_address(address)
    # Meant for this node itself, which nobody else is: so it is refused by all.
    hello = wire.Hello(wire.PROTOCOL_VERSION, cluster_id, node_id, node_id, 0, 0, [], joining=True)
    asking = _Asking(peer, hello, tls is not None)
    try:
        async with asyncio.timeout(ANSWER_S):
            loop = asyncio.get_running_loop()
            context = None if tls is None else tls.dialling()
            if context is None:
                await loop.create_connection(lambda: asking, host, port)
            else:
                await loop.create_connection(lambda: asking, host, port, ssl=context)
            told = await asking.told
    except (OSError, TimeoutError, ssl.SSLError):
        return None
    finally:
        asking.abort()
    if told is None or told.removed:
        return None
    return told.cluster_id if is_named(told.cluster_id, cluster_id) else None


class _Asking(Framed):
    """One question, on a connection of its own."""

    def __init__(self, peer: str, hello: wire.Hello, checked: bool) -> None:
        super().__init__(HELLO_BYTES_MAX)
        self.told: asyncio.Future[wire.Refused | None] = asyncio.get_running_loop().create_future()
        self._peer = peer
        self._hello = hello
        self._checked = checked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        if self._checked and why_not(self._peer, self.transport) is not None:
            self.abort()
            return
        self.transport.write(frame(self._hello))

    def frame_received(self, body: bytes) -> None:
        answer = wire.decode_answer(body)
        self._tell(answer if isinstance(answer, wire.Refused) else None)

    def fail(self, why: str) -> None:
        self._tell(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell(None)

    def _tell(self, answer: wire.Refused | None) -> None:
        if not self.told.done():
            self.told.set_result(answer)
