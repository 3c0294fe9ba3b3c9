"""Registers outside the service, that leases are to protect: kept by the bench, reached over the network.

Each has an unguarded twin, as in the simulation (sim/register.py says what they are). Every write is written
down when it arrives; a writer that was paused arrives late.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from tenure_chaos.history import RegisterWrite
from tenure_chaos.sim.register import Put, Register, Seen


class Registers:
    """All of them. One line of JSON asks, one answers."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.writes: list[RegisterWrite] = []
        self._now = now
        self._kept: dict[str, dict[str, int]] = {}
        self._values = 0

    @contextlib.asynccontextmanager
    async def serving(self, host: str = "127.0.0.1") -> AsyncIterator[tuple[str, int]]:
        """Their address, for as long as the block runs."""
        server = await asyncio.start_server(self._serve, host, 0)
        try:
            host, port = server.sockets[0].getsockname()
            yield host, port
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        kept = self._kept.setdefault(asked["register"], {"floor": 0, "guarded": 0, "unguarded": 0})
        if asked["do"] == "arm":
            kept["floor"] = max(kept["floor"], asked["token"])
            return {"armed": kept["floor"] == asked["token"]}
        if asked["do"] == "read":
            return {"guarded": kept["guarded"], "unguarded": kept["unguarded"]}
        return self._write(kept, **{name: value for name, value in asked.items() if name != "do"})

    def _write(
        self, kept: dict[str, int], *, register: str, client: str, token: int, guarded: int, unguarded: int
    ) -> dict[str, Any]:
        self._values += 1
        value, now, accepted = self._values, self._now(), token >= kept["floor"]
        for is_guarded, passes, read in ((True, accepted, guarded), (False, True, unguarded)):
            found = kept["guarded" if is_guarded else "unguarded"]
            self.writes.append(
                RegisterWrite(register, client, token, now, is_guarded, passes, read, found, value)
            )
        if accepted:
            kept["floor"], kept["guarded"] = token, value
        kept["unguarded"] = value
        return {"accepted": accepted, "floor": kept["floor"]}


class RemoteRegister(Register):
    """One of them, from a client's process. The bench is always there."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        self.name = name
        self._address = address

    async def arm(self, token: int) -> bool:
        return bool((await self._call("arm", token=token))["armed"])

    async def read(self) -> Seen:
        return Seen(**await self._call("read"))

    async def write(self, client: str, token: int, read: Seen) -> Put:
        told = await self._call(
            "write", client=client, token=token, guarded=read.guarded, unguarded=read.unguarded
        )
        return Put(**told)

    async def _call(self, do: str, **fields: Any) -> dict[str, Any]:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(json.dumps({"do": do, "register": self.name, **fields}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(await reader.readline())
            return answer
        finally:
            writer.close()
