"""Who is let in by a member, and what each has said of itself.

The first frame of a connection, its Hello, says who comes, of which cluster, in which life of its process. It
is held against what this node knows: whom it counts as members and whom it has seen removed, by its log or,
before any entry says so, by its configuration; which lives of each process there have been; and, where there
is TLS, whom the certificate names. Whoever this node's log does not know may still be a member of whom it has
not heard yet (vouching.py): a guest.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from tenure_cluster.addresses import split_address
from tenure_cluster.raft import membership
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.membership import MemberInfo, Membership
from tenure_cluster.raft.origin_file import is_named
from tenure_cluster.raft.peer_tls import why_not
from tenure_cluster.raft.vouching import Vouching

LIVES_REMEMBERED_MAX: Final = 16
"""Of each peer, lives of its process that another one has taken the place of."""

OTHER_CLUSTER: Final = "cluster_id "
"""How a refusal begins of a node that is of another cluster."""
DOUBLE: Final = "another process runs with the same node_id"
"""What a refusal says to the second of two processes."""

Place: TypeAlias = tuple[str, int]
"""A host and a port."""


class Admission:
    """What one member makes of greetings, and its own. `peers`: where the configuration says that each other
    member is dialled; `address`: where this node is; `ask_about_strangers` dials a known member anew, to hear
    whom it counts."""

    def __init__(
        self,
        *,
        node_id: str,
        cluster_id: str,
        incarnation: int,
        peers: Mapping[str, str],
        address: str,
        knows: tuple[int, str],
        tls: bool,
        ask_about_strangers: Callable[[], None],
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.incarnation = incarnation
        self.knows = knows
        self.strangers_need_a_word = tls
        self.vouching = Vouching()
        self.greetings: dict[str, wire.Hello] = {}
        """The last one of each peer that was let in."""
        self.known: frozenset[str] = frozenset(peers)
        """Members by this node's log, or by its configuration if the log tells of none."""
        self.removed: frozenset[str] = frozenset()
        self._tls = tls
        self._ask_about_strangers = ask_about_strangers
        self._configured = {peer: split_address(where) for peer, where in peers.items()}
        self._bootstrap = sorted([node_id, *peers])
        self._address = address
        self._current = membership.bootstrap(self._bootstrap)
        self._guests: dict[str, wire.Hello] = {}
        """Those that are let in beside the known: known members say that they are ones."""
        self._replaced: dict[str, list[int]] = {}
        """Lives of each peer that a later one has taken the place of. One that comes back from there and
        answers was not over: then there are two processes, and the later one is a double."""
        self._doubles: dict[str, list[int]] = {}

    # -- members

    def set_bootstrap(self, names: Sequence[str]) -> None:
        """The members before any entry of the log said who they are, if they are others than the configured
        ones; none if this node has joined later. Before the start."""
        self._bootstrap = sorted(names)
        self._current = membership.bootstrap(names)

    def set_members(self, current: Membership, committed: Membership) -> dict[str, Place]:
        """Count the members of both: of the entry that counts, and of the latest that is committed. Answers
        whom to dial, and where: them, and guests. Who has been removed is let in no more."""
        self._current, self.removed = current, frozenset(committed.removed)
        members = {member.id: member for of in (committed, current) for member in of.members}
        self._guests = {
            name: hello
            for name, hello in self._guests.items()
            if name not in members and name not in self.removed and self._is_taken_for_one(hello)
        }
        self.known = frozenset(members or self._configured)
        self.vouching.keep(self.known)
        places = {} if members else dict(self._configured)
        for name, member in members.items():
            place = self._place(member)
            if name != self.node_id and name not in self.removed and place is not None:
                places[name] = place
        for name, hello in self._guests.items():
            if (place := place_told(hello)) is not None:
                places[name] = place
        return places

    def _place(self, member: MemberInfo) -> Place | None:
        """Where a member is dialled: as an entry of the log says, else as configured, else as it says. An
        entry of an earlier version may say what is no address by this one, and nobody can dial."""
        if member.peer:
            return _place_of(member.peer)
        return self._configured.get(member.id) or place_told(self.greetings.get(member.id))

    def outdated(self, names: Iterable[str]) -> list[str]:
        """Which of these have greeted as a version that does not know entries about members."""
        greetings = self.greetings
        return [name for name in names if name in greetings and not greetings[name].features]

    def told_by(self, peer: str) -> tuple[int, str] | None:
        """What the peer said in its last greeting that it knows; None if it has not greeted yet."""
        greeting = self.greetings.get(peer)
        return None if greeting is None else (greeting.knows, greeting.software)

    def told_members(self, peer: str, names: list[str], index: int) -> None:
        """Whom a peer counts, by its greeting or its answer to one."""
        if peer in self.known:
            self.vouching.told(peer, names, index)

    # -- what this node says

    def hello(self, peer: str, epoch: int) -> wire.Hello:
        current = self._current
        return wire.Hello(
            wire.PROTOCOL_VERSION,
            self.cluster_id,
            self.node_id,
            peer,
            self.incarnation,
            epoch,
            current.names,
            *self.knows,
            current.index,
            self._address,
            not current.members,
            wire.FEATURES,
        )

    def welcome(self) -> wire.Welcome:
        return wire.Welcome(self.incarnation, self._current.names, self._current.index)

    def refusal(self, hello: wire.Hello, reason: str) -> wire.Refused:
        """Also that it was removed, by an entry that is committed, or by which name it joins (joining.py). Of
        another cluster's node nothing is known: the name may be one that was removed here."""
        joins = hello.joining and self._current.members and is_named(self.cluster_id, hello.cluster_id)
        removed = hello.cluster_id == self.cluster_id and hello.node_id in self.removed
        return wire.Refused(reason, removed, self.cluster_id if joins else "")

    # -- what others say

    def why_refuse(self, hello: wire.Hello, transport: asyncio.Transport) -> str | None:
        if self._tls and (reason := why_not(hello.node_id, transport)) is not None:
            return reason
        if hello.version != wire.PROTOCOL_VERSION:
            return f"protocol version {hello.version}, this node speaks {wire.PROTOCOL_VERSION}"
        if hello.cluster_id != self.cluster_id:
            return f"{OTHER_CLUSTER}{hello.cluster_id!r}, this node is of {self.cluster_id!r}"
        if (reason := self._why_no_member(hello)) is not None:
            return reason
        if hello.to != self.node_id:
            return f"meant for {hello.to!r}, this is {self.node_id!r}"
        if hello.incarnation in self._doubles.get(hello.node_id, ()):
            return f"{DOUBLE} {hello.node_id!r}, and was here before"
        before = self.greetings.get(hello.node_id)
        if before is not None and before.incarnation == hello.incarnation and before.epoch >= hello.epoch:
            return f"connection {hello.epoch} is not younger than {before.epoch}"
        return None

    def _why_no_member(self, hello: wire.Hello) -> str | None:
        """Why it can't be that this node and that one are of one cluster, as far as both know."""
        name, current = hello.node_id, self._current
        if name in self.removed:
            return f"{name!r} has been removed from this cluster"
        if name == self.node_id:
            return f"{name!r} is not another member of this cluster, but this node's own name"
        if name not in self.known and not self._is_taken_for_one(hello):
            if hello.members_index > current.index:
                self._ask_about_strangers()
            return f"{name!r} is not another member of this cluster"
        member = current.get(name)
        if hello.joining and member is not None and member.voter:
            return f"{name!r} is a voter and has lost its data: replace it by a node with another name"
        first = hello.members_index == 0 and not hello.joining
        if first and self._bootstrap and hello.members != self._bootstrap:
            # Another list of members to begin with is another majority.
            return f"it counts {', '.join(hello.members)} as members, this node {', '.join(self._bootstrap)}"
        return None

    def _is_taken_for_one(self, hello: wire.Hello) -> bool:
        """Whether somebody of whom this node's log says nothing is taken for a member. Without TLS nothing is
        lost by believing it, for it could as well claim a member's name."""
        if self.strangers_need_a_word:
            return self.vouching.vouches(hello.node_id, self._current.index)
        return hello.members_index > self._current.index or not self._current.members

    def let_in(self, hello: wire.Hello, *, is_dialled: bool) -> int | None:
        """Take note of a greeting that is not refused. Answers which life of the same node proves to be a
        double if this one says anything more: the greeting alone may have been on its way for long."""
        peer = hello.node_id
        double = self._note_life(hello)
        self.told_members(peer, hello.members, hello.members_index)
        if not is_dialled:
            self._guests[peer] = hello
        self.greetings[peer] = hello
        return double

    def _note_life(self, hello: wire.Hello) -> int | None:
        before = self.greetings.get(hello.node_id)
        if before is None or before.incarnation == hello.incarnation:
            return None
        replaced = self._replaced.setdefault(hello.node_id, [])
        if hello.incarnation in replaced:
            replaced.remove(hello.incarnation)
            return before.incarnation
        replaced.append(before.incarnation)
        del replaced[:-LIVES_REMEMBERED_MAX]
        return None

    def refuse_double(self, peer: str, incarnation: int) -> None:
        """From now on."""
        doubles = self._doubles.setdefault(peer, [])
        doubles.append(incarnation)
        del doubles[:-LIVES_REMEMBERED_MAX]


def place_told(hello: wire.Hello | None) -> Place | None:
    """Where a node says that it is dialled; None if it says nothing that is an address."""
    return None if hello is None else _place_of(hello.address)


def _place_of(address: str) -> Place | None:
    try:
        return split_address(address)
    except ValueError:
        return None
