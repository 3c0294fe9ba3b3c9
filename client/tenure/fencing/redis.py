"""Guards in Redis: check and write in one script.

    guard = RedisGuard(redis.Redis())
    guard.arm("account/7", held.token)
    guard.write("account/7", held.token, [("SET", "balance:7", "100")])

The fence of a key is a hash beside the state. In a Redis Cluster give ``prefix`` and your keys the same hash
tag, so that they live on one node. Redis acknowledges before it has replicated: after a failover to a replica
a fence can be older than what it had accepted, together with the state that it guards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final, TypeAlias

from tenure.errors import CommitRefused
from tenure.fencing._rules import Fence, Mode, checked, refused

Value: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Value]

SCRIPT: Final = """
local kept = redis.call('HMGET', KEYS[1], 'floor', 'last_token', 'last_seq', 'mode')
local floor, last_token = tonumber(kept[1] or '0'), tonumber(kept[2] or '0')
local last_seq = tonumber(kept[3] or '0')
local kept_mode = kept[4] or ''
local token, mode, seq = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local code = ''
if token < floor then
  code = 'stale_token'
elseif mode ~= 'arm' then
  if kept_mode ~= '' and kept_mode ~= mode then
    code = 'mode_conflict'
  elseif mode == 'once' and token <= last_token then
    code = 'token_used'
  elseif mode == 'sequence' and (token < last_token or (token == last_token and seq <= last_seq)) then
    code = 'seq_replayed'
  end
end
if code ~= '' then
  return {code, kept[1] or '0', kept[2] or '0', kept[3] or '0', kept_mode}
end
redis.call('HSET', KEYS[1], 'floor', ARGV[1])
local results = {}
local at = 4
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  results[#results + 1] = redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
if mode ~= 'arm' then
  redis.call('HSET', KEYS[1], 'last_token', ARGV[1], 'last_seq', ARGV[3], 'mode', mode)
end
return {'', results}
"""
"""The floor rises first and the write is remembered last: a command that fails in between leaves a fence that
keeps older tokens out and lets this one try again."""


class RedisGuard:
    """The fences under one prefix. ``client`` is a ``redis.Redis`` or anything with its ``eval``."""

    def __init__(self, client: Any, *, prefix: str = "tenure:fence:") -> None:
        self._client = client
        self._prefix = prefix

    def arm(self, key: str, token: int) -> None:
        """Raise the key's floor to ``token``: no older token writes any more. Raises CommitRefused if a newer
        one has been here."""
        checked(token)
        _read(self._client.eval(SCRIPT, 1, self._prefix + key, token, "arm", 0))

    def write(
        self,
        key: str,
        token: int,
        commands: Sequence[Command],
        *,
        mode: Mode = "current",
        seq: int | None = None,
    ) -> list[Any]:
        """Execute the commands if the write is accepted; returns their replies. Raises CommitRefused:
        nothing was executed. If a command itself is wrong, Redis raises, and those before it stand."""
        number = checked(token, mode, seq)
        return _read(self._client.eval(*_arguments(self._prefix + key, token, mode, number, commands)))

    def fence(self, key: str) -> Fence:
        """What is remembered of the key."""
        return _fence(self._client.hmget(self._prefix + key, "floor", "last_token", "last_seq", "mode"))


class AsyncRedisGuard:
    """The same for ``redis.asyncio.Redis``."""

    def __init__(self, client: Any, *, prefix: str = "tenure:fence:") -> None:
        self._client = client
        self._prefix = prefix

    async def arm(self, key: str, token: int) -> None:
        """As RedisGuard.arm."""
        checked(token)
        asked: Awaitable[Any] = self._client.eval(SCRIPT, 1, self._prefix + key, token, "arm", 0)
        _read(await asked)

    async def write(
        self,
        key: str,
        token: int,
        commands: Sequence[Command],
        *,
        mode: Mode = "current",
        seq: int | None = None,
    ) -> list[Any]:
        """As RedisGuard.write."""
        number = checked(token, mode, seq)
        asked: Awaitable[Any] = self._client.eval(
            *_arguments(self._prefix + key, token, mode, number, commands)
        )
        return _read(await asked)

    async def fence(self, key: str) -> Fence:
        """As RedisGuard.fence."""
        return _fence(await self._client.hmget(self._prefix + key, "floor", "last_token", "last_seq", "mode"))


def _arguments(fence_key: str, token: int, mode: Mode, seq: int, commands: Sequence[Command]) -> list[Any]:
    words: list[Any] = []
    for command in commands:
        words += [len(command), *command]
    return [SCRIPT, 1, fence_key, token, mode, seq, *words]


def _read(reply: list[Any]) -> list[Any]:
    code = _text(reply[0])
    if code:
        raise _refused(code, reply[1:])
    return list(reply[1])


def _refused(code: str, kept: list[Any]) -> CommitRefused:
    return refused(code, _fence(kept))


def _fence(kept: Sequence[Any]) -> Fence:
    floor, last_token, last_seq, mode = (_text(value) for value in kept)
    return Fence(int(floor or 0), int(last_token or 0), int(last_seq or 0), mode)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else str(value)
