"""Who the members are: the one place from which every rule takes its members.

Theory of operation. The members stand in entries of the log, each of which has all of them, as they are from
its place in the log on. One entry differs from the one before it by one member: one is added as a learner,
one learner becomes a voter, one is removed, or one has other addresses. Any two majorities of two such sets
have a node in common, so no two leaders can be elected or entries committed by one set each; that holds only
for neighbours, so the next change waits until the entry of the one before is committed, and the first of a
leader until an entry of its own term is (changes.py).

An entry counts from when it is in the log, committed or not, and if it is cut off again the one before it
counts. What counts before all entries is the bootstrap: the members that the configuration named when the
data directory was made (members_file.py); of a node that joins, nobody. A snapshot carries the members of its
last entry.

A learner is sent the log and snapshots, is in no majority, and does not campaign. Who is not among the
members does not campaign either, but answers whoever asks: it may only be behind.

Names of removed members are kept, so that a removed node can be told so, and are not given again: a new node
has a new name. A log that says of a name that it was removed is then always right.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

MEMBERS_MAX: Final = 32
REMOVED_MAX: Final = 256
"""Names of removed members that are kept, the latest."""

ENTRY_TYPE: Final = b"\x10"
"""First byte of the command of an entry that says who the members are."""

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Address = Annotated[str, msgspec.Meta(max_length=512)]


class MemberInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member. An address that is empty is the one of the configuration, as long as no entry has said
    another."""

    id: _Name
    peer: _Address = ""
    http: _Address = ""
    voter: bool = True


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """All members from one place in the log on, in the order of names. `index`: of the entry that says so; 0
    for the bootstrap."""

    members: tuple[MemberInfo, ...]
    removed: tuple[_Name, ...] = ()
    index: int = 0

    @property
    def names(self) -> list[str]:
        return [member.id for member in self.members]

    @property
    def voters(self) -> list[str]:
        return [member.id for member in self.members if member.voter]

    @property
    def learners(self) -> list[str]:
        return [member.id for member in self.members if not member.voter]

    def get(self, name: str) -> MemberInfo | None:
        return next((member for member in self.members if member.id == name), None)


class Add(msgspec.Struct, frozen=True):
    """A new member, which is a learner at first."""

    id: str
    peer: str
    http: str


class Promote(msgspec.Struct, frozen=True):
    """A learner becomes a voter. Only the leader itself asks for this."""

    id: str


class Remove(msgspec.Struct, frozen=True):
    """A member is one no more."""

    id: str


class Readdress(msgspec.Struct, frozen=True):
    """A member is to be reached elsewhere."""

    id: str
    peer: str
    http: str


Change: TypeAlias = Add | Promote | Remove | Readdress


def bootstrap(names: Iterable[str]) -> Membership:
    """All of them voters, with the addresses of the configuration."""
    return Membership(tuple(MemberInfo(name) for name in sorted(names)))


def changed(before: Membership, change: Change, index: int) -> Membership:
    """The members after a change that is possible, by the entry at `index`."""
    others = [member for member in before.members if member.id != change.id]
    removed = before.removed
    if isinstance(change, Add):
        others.append(MemberInfo(change.id, change.peer, change.http, False))
    elif isinstance(change, Remove):
        removed = (*removed, change.id)[-REMOVED_MAX:]
    else:
        member = before.get(change.id)
        assert member is not None, f"{change.id} is no member"
        if isinstance(change, Promote):
            others.append(msgspec.structs.replace(member, voter=True))
        else:
            others.append(msgspec.structs.replace(member, peer=change.peer, http=change.http))
    others.sort(key=lambda member: member.id)
    return Membership(tuple(others), removed, index)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Membership).decode


def encode_members(membership: Membership) -> bytes:
    """The command of an entry."""
    return ENTRY_TYPE + _encode(membership)


def decode_members(command: bytes) -> Membership | None:
    """The members that an entry's command says; None if it is of another type. Raises msgspec.DecodeError."""
    return _decoded(memoryview(command)[1:]) if command[:1] == ENTRY_TYPE else None


def _decoded(packed: bytes | memoryview) -> Membership:
    try:
        return _decode(packed)
    except RecursionError as error:
        raise msgspec.DecodeError("members that are nested too deeply") from error


class Members:
    """The members along one node's log, from the bootstrap or a snapshot on."""

    def __init__(self, node_id: str, base: Membership) -> None:
        self._node_id = node_id
        self._along = [base]
        self.version = 0
        """Another one after each change of `current`."""

    @property
    def current(self) -> Membership:
        """Those that count now."""
        return self._along[-1]

    @property
    def votes(self) -> bool:
        """Whether this node is a voter."""
        own = self.current.get(self._node_id)
        return own is not None and own.voter

    @property
    def other_voters(self) -> list[str]:
        return [name for name in self.current.voters if name != self._node_id]

    @property
    def other_learners(self) -> list[str]:
        return [name for name in self.current.learners if name != self._node_id]

    @property
    def base(self) -> Membership:
        """The earliest that is known."""
        return self._along[0]

    @property
    def others(self) -> list[str]:
        """All other members, learners among them."""
        return [name for name in self.current.names if name != self._node_id]

    def at(self, index: int) -> Membership:
        """Those that counted when the log ended at `index`, which no snapshot has passed."""
        return next(known for known in reversed(self._along) if known.index <= index or known.index == 0)

    def replay(self, entries: Iterable[tuple[bytes, int, int]]) -> None:
        """Entries that the log holds already at a start; those that the base knows are passed over."""
        for command, index, _ in entries:
            if command[:1] == ENTRY_TYPE and index > self.current.index:
                self.added(command, index)

    def added(self, command: bytes, index: int) -> None:
        """An entry of this kind has been added to the log."""
        membership = decode_members(command)
        assert membership is not None
        self._along.append(msgspec.structs.replace(membership, index=index))
        self.version += 1

    def cut(self, last_index: int) -> None:
        """The log ends at `last_index` now."""
        while len(self._along) > 1 and self._along[-1].index > last_index:
            del self._along[-1]
            self.version += 1

    def forget(self, index: int) -> None:
        """What was before `index` is not asked for any more."""
        kept = self.at(index)
        del self._along[: self._along.index(kept)]

    def restart(self, base: Membership) -> None:
        """The log begins anew after a snapshot with these members."""
        self._along = [base]
        self.version += 1


def of_snapshot(members: Sequence[object]) -> Membership | None:
    """Of what a snapshot's head has, as `for_snapshot` made it; None if it has nothing, for those of earlier
    versions. Raises msgspec.DecodeError."""
    if not members:
        return None
    packed = members[0]
    if len(members) > 1 or not isinstance(packed, bytes):
        raise msgspec.DecodeError("a snapshot's members are not of this version")
    return _decoded(packed)


def for_snapshot(membership: Membership) -> tuple[bytes, ...]:
    """What goes into a snapshot's head. Nothing for the bootstrap, as earlier versions have it."""
    return (_encode(membership),) if membership.index else ()
