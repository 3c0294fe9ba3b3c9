"""Entries of the log: the pairs of stamp and command in them, the commands, and what the machine makes of
them; and the entries that say who the members are."""

from typing import Any

import msgspec
from fuzz_examples import examples
from fuzz_kit import PACKED_WORDS, Target, deepened

from tenure_cluster.lease import commands, snapshot
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.raft.membership import MemberInfo, Membership, decode_members, encode_members
from tenure_cluster.raft.messages import NO_OP, decode_entry, encode_entry, is_entry

STAMP_MAX = 2**53


def check(data: bytes) -> bool:
    """What is decoded is encoded again to the same; the machine answers it, and its table stays whole."""
    try:
        pairs = decode_entry(data)
        decoded = [(stamp, commands.decode(command)) for stamp, command in pairs]
        members = decode_members(data)
    except msgspec.DecodeError:
        return False
    assert is_entry(data)
    if members is not None:
        assert decode_members(encode_members(members)) == members
    if pairs:
        assert decode_entry(encode_entry(pairs)) == pairs
    machine = LeaseMachine()
    for stamp, command in decoded:
        assert commands.decode(commands.encode(command)) == command
        machine.apply(min(stamp, STAMP_MAX), command)
    machine.check()
    chunks = list(snapshot.dump(machine.table))
    assert list(snapshot.dump(snapshot.load(chunks))) == chunks
    return True


def seeds() -> list[bytes]:
    every = examples(commands.AnyCommand, 3)
    alone = [encode_entry([(1_000, commands.encode(command))]) for command in every]
    together = [encode_entry([(1_000 + n, commands.encode(command)) for n, command in enumerate(every)])]
    members = Membership((MemberInfo("n1"), MemberInfo("n2", "h:1", "http://h:2", False)), ("n0",), 7)
    deep = [
        encode_entry([(1_000, deepened(commands.encode(command)))])
        for command in every[::3]
        if _short(command)
    ]
    deep += [encode_members(members)[:1] + deepened(encode_members(members)[1:])]
    return [*alone, *together, *deep, encode_members(members), NO_OP, story()]


def _short(command: commands.AnyCommand) -> bool:
    return 0x90 <= commands.encode(command)[0] < 0x9F


def history() -> list[tuple[int, commands.AnyCommand]]:
    """Commands that meet what the others left: holders and waiters, a set, permits, a guard, sessions."""
    sets = {"tenant": "t", "wall_ms": 5}
    acquire = {
        "keys": ["k"], "owner": "a", "session_id": None, "ttl_ms": 9000, "remember": True, "wait": True,
        "mode": "exclusive", "slots": 0, "grace_ms": 0, "if_held": "return", "metadata": {},
    }  # fmt: skip

    def asked(number: int, **fields: Any) -> commands.Acquire:
        keys = fields.get("keys", ["k"])
        ids = [f"l{number}{place}" for place in range(len(keys))]
        return commands.Acquire(**{**sets, **acquire, "request_id": f"q{number}", "lease_ids": ids, **fields})

    guarded = {
        "slot": 0, "lease_id": "l10", "token": 1, "mode": "current", "seq": None, "op_id": "o1",
        "require_live": True, "if_revision": None, "value": b"v", "binary": False, "digest": "d",
    }  # fmt: skip
    told: list[commands.AnyCommand] = [
        asked(1),
        asked(2),
        commands.OpenSession(session_id="s1", owner="b", ttl_ms=8000, metadata={"m": "1"}, **sets),
        asked(3, keys=["x", "y"], session_id="s1", ttl_ms=None, metadata={"m": "2"}),
        asked(4, keys=["p"], mode="permit", slots=3, grace_ms=50),
        asked(5, keys=["r"], mode="shared"),
        commands.Commit(key="k", **guarded, **sets),
        commands.Renew(lease_id="l10", session_id=None, ttl_ms=None, **sets),
        commands.Park(lease_id="l30", limit_ms=8000, **sets),
        commands.Release(lease_id="l10", **sets),
        commands.Claim(lease_id="l20", **sets),
        asked(6),
        asked(7, owner="c"),
        commands.Abandon(request_id="q7", session_id=None, **sets),
        commands.Unpark(lease_id="l30", session_id="s1", ttl_ms=None, **sets),
        commands.Park(lease_id="l31", limit_ms=9000, **sets),
        commands.Break(key="r", reason="r", actor="x", **sets),
    ]
    return [(1_000 + number, command) for number, command in enumerate(told)]


def story() -> bytes:
    return encode_entry([(stamp, commands.encode(command)) for stamp, command in history()])


TARGET = Target("log_entries", check, seeds, PACKED_WORDS, 8192)
