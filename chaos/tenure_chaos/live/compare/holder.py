"""A process that holds a lock again and again, and writes to a register that the lock is to protect.

It reads the register, thinks, asks its client whether it still holds, and a little later writes. On its
output it says when it began to hold, and when it learned that it does no more. Its only argument is its
task, as JSON.
"""

import asyncio
import json
import logging
import random
import sys
import time
from dataclasses import dataclass
from typing import Final

import msgspec

from tenure_chaos.live.compare.locks import LockFailed, lock_of
from tenure_chaos.live.work.registers import RemoteRegister

WAIT_S: Final = 60.0
LOOK_S: Final = 0.02


@dataclass
class HolderTask:
    """What it is to do."""

    name: str
    system: str
    routes: dict[str, str]
    key: str
    ttl_s: float
    registers: tuple[str, int]
    seed: int


def say(event: str, **more: object) -> None:
    print(json.dumps({"at": time.monotonic(), "event": event, **more}), flush=True)  # noqa: T201


async def hold(task: HolderTask) -> None:
    """For ever."""
    rng = random.Random(task.seed)
    lock = lock_of(task.system, task.routes, task.ttl_s)
    register = RemoteRegister(task.key, task.registers)
    say("ready")
    while True:
        try:
            held = await lock.acquire(task.key, WAIT_S)
        except LockFailed as error:
            say("failed", why=str(error))
            continue
        say("acquired", token=held.token)
        if await register.arm(held.token):
            for _ in range(rng.randint(1, 4)):
                seen = await register.read()
                until = time.monotonic() + rng.uniform(0.02, 0.2)
                while held.is_held and time.monotonic() < until:
                    await asyncio.sleep(LOOK_S)
                if not held.is_held:
                    break
                # Between the last look and the write there is always some time, in every program.
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                await register.write(task.name, held.token, seen)
        say("lost" if not held.is_held else "stopped", token=held.token)
        await held.release()
        await asyncio.sleep(rng.uniform(0.0, 0.05))


def main() -> None:
    logging.disable(logging.WARNING)
    asyncio.run(hold(msgspec.json.decode(sys.argv[1], type=HolderTask)))


if __name__ == "__main__":
    main()
