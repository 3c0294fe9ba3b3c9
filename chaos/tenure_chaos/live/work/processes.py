"""The clients' processes, from the bench's side."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure_chaos.history import History
from tenure_chaos.live.work.main import FINISH_S, NodesNow, Task

START_TIMEOUT_S: Final = 60.0
LEAVE_TIMEOUT_S: Final = 30.0
HAND_OVER_TIMEOUT_S: Final = 900.0
"""Half an hour of calls is a large file, and the machine may have much else to do."""


class ClientFailed(Exception):
    """A client's process did not do what it is for. A fault of the bench."""


@dataclass
class ClientProcess:
    """One of them."""

    task: Task
    log: Path
    prefix: tuple[str, ...] = ()
    process: asyncio.subprocess.Process | None = None
    paused: bool = False
    reserved_by: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.task.name

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(*self.prefix, sys.executable, "-m", "tenure_chaos.live.work.main"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("TENURE_")},
                start_new_session=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(self.task) + b"\n")
        await self._says("ready", START_TIMEOUT_S)

    async def _says(self, word: str, timeout_s: float) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self.process.stdout.readline()
        except TimeoutError:
            line = b""
        if line.strip() != word.encode():
            raise ClientFailed(f"{self.name} did not say {word!r} but {line!r}: see {self.log}")

    def pause(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)
        self.paused = False

    def _tell(self, word: bytes) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(word + b"\n")

    def tell_nodes(self, nodes: Mapping[str, str], routes: Mapping[str, str]) -> None:
        """There are these nodes from now on. One that is paused hears of it when it goes on."""
        self._tell(msgspec.json.encode(NodesNow(dict(nodes), dict(routes))))

    async def finish(self) -> None:
        """Begin nothing more, and end what has begun."""
        self._tell(b"stop")
        await self._says("finished", FINISH_S + LEAVE_TIMEOUT_S)

    async def leave(self) -> History:
        """End, and hand over the history."""
        self._tell(b"leave")
        assert self.process is not None
        try:
            async with asyncio.timeout(HAND_OVER_TIMEOUT_S):
                code = await self.process.wait()
        except TimeoutError as error:
            raise ClientFailed(f"{self.name} did not end: see {self.log}") from error
        if code != 0:
            raise ClientFailed(f"{self.name} ended with {code}: see {self.log}")
        output = Path(self.task.output)
        said: dict[str, Any] = json.loads(output.with_suffix(".json").read_text())
        self.counts, self.violations = said["counts"], said["violations"]
        return await asyncio.to_thread(History.load, output)

    def kill(self) -> None:
        """The end, whatever came before."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
