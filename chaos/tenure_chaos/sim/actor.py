"""A program of a directed play: it calls the cluster as the client does, and holds what it is granted by the
client's own rules.

Whatever a program does, it does in its own process: it stands still while the program is paused and never
ends when it is killed, and its times are those of its own clock.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tenure import _requests
from tenure._handle import HandleLife, State
from tenure._requests import Request
from tenure_chaos.sim.client import SimClient
from tenure_chaos.sim.workloads.calls import USUALLY, Caller, How
from tenure_chaos.sim.world import World

T = TypeVar("T")


@dataclass(frozen=True)
class Said:
    """How a call ended. ``sent_at``: by the program's clock, when the attempt was sent that was answered."""

    outcome: str
    code: str = ""
    answer: dict[str, Any] = field(default_factory=dict)
    sent_at: float = 0.0

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


class NotGranted(AssertionError):
    """An acquire that the story counted on was not granted."""

    def __init__(self, said: Said) -> None:
        super().__init__(f"not granted: {said}")
        self.said = said


class Actor:
    """One program on a host of its own."""

    def __init__(self, world: World, client: SimClient, name: str) -> None:
        self.world = world
        self.client = client
        self.name = name
        self._requests = 0

    @property
    def host(self) -> str:
        """What its links are called by."""
        return self.client.name

    @property
    def now(self) -> float:
        """Seconds of its own clock."""
        return self.client.clock.monotonic()

    # -- life

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Begin something as this program. The future belongs to the story. A program that is killed at once
        never begins it.
        """
        loop, process = self.world.loop, self.client.process
        done: asyncio.Future[T] = loop.create_future()

        async def run() -> None:
            process.at_death.pop(done, None)
            loop.unbegun.pop(done, None)
            try:
                result = await work
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        def start() -> None:
            task = loop.create_task(run())
            done.add_done_callback(lambda _: task.cancel() if done.cancelled() else None)

        loop.unbegun[done] = work
        process.at_death[done] = lambda: loop.unbegun.pop(done).close()
        loop.spawn(process, start)
        return done

    def pause(self) -> None:
        """SIGSTOP."""
        self.world.note(f"{self.host} is paused")
        self.world.loop.pause(self.client.process)

    def resume(self) -> None:
        """SIGCONT."""
        self.world.note(f"{self.host} goes on")
        self.world.loop.resume(self.client.process)

    def vanish(self) -> None:
        """Its machine is gone; nobody closes its connections. What begins later is a new process."""
        self.world.note(f"{self.host} vanishes")
        self.client.die(silent=True)

    def die(self) -> None:
        """SIGKILL: its connections are closed. What begins later is a new process."""
        self.world.note(f"{self.host} is killed")
        self.client.die(silent=False)

    # -- calls

    async def ask(self, request: Request[Any], how: How = USUALLY, /, **asked: Any) -> Said:
        """One call with all its attempts. The history keeps its body, and ``asked`` beside it."""
        return await self.begin(self.asking(request, how, **asked))

    async def asking(self, request: Request[Any], how: How = USUALLY, /, **asked: Any) -> Said:
        """The same, for what this program does already."""
        asked = {**(request.body or {}), **asked}
        record, answer, sent_at = await Caller(self.world, self.client).call(request, how, **asked)
        return Said(record.outcome, record.code, answer or record.answer, sent_at)

    def new_request_id(self) -> str:
        self._requests += 1
        return f"{self.name}-{self._requests}"

    async def try_acquire(self, key: str, *, wait_s: float = 0.0, **fields: Any) -> Said:
        """An acquire as the client makes it, polling for as long as it may wait. ``fields`` are those of the
        body; ``owner`` and ``request_id`` have defaults."""
        body = {"key": key, "owner": self.name, "request_id": self.new_request_id(), **fields}
        return await self.begin(self._acquire(body, wait_s))

    async def try_acquire_set(self, keys: list[str], *, wait_s: float = 0.0, **fields: Any) -> Said:
        """The same for a set of keys."""
        body = {"keys": keys, "owner": self.name, "request_id": self.new_request_id(), **fields}
        return await self.begin(self._acquire(body, wait_s))

    async def _acquire(self, body: dict[str, Any], wait_s: float) -> Said:
        wait_until = self.now + wait_s if wait_s else None
        while True:
            said = await self.asking(_requests.acquire(body, wait_until), wait_s=wait_s)
            waiting = said.ok and said.answer["status"] == "waiting"
            if not waiting or wait_until is None or self.now >= wait_until:
                return said

    async def acquire(self, key: str, *, wait_s: float = 0.0, **fields: Any) -> "Hold":
        """The same; what was granted. Raises NotGranted."""
        said = await self.try_acquire(key, wait_s=wait_s, **fields)
        if not said.ok or said.answer["status"] != "granted":
            raise NotGranted(said)
        return Hold(self, said)

    async def open_session(self, ttl_ms: int, owner: str = "") -> str:
        """Open a session; its id."""
        said = await self.ask(_requests.open_session({"owner": owner or self.name, "ttl_ms": ttl_ms}))
        return str(said.answer["session"]["session_id"])

    async def renew_session(self, session_id: str) -> Said:
        return await self.begin(self._renew_session(session_id))

    async def _renew_session(self, session_id: str) -> Said:
        return await self.asking(_requests.renew_session(session_id=session_id), How(named="renew_session"))

    def keep_session(self, session_id: str, every_s: float) -> asyncio.Future[None]:
        """Renew it for as long as that helps. Done when the session is over; cancel it to stop."""
        return self.begin(self._keep_session(session_id, every_s))

    async def _keep_session(self, session_id: str, every_s: float) -> None:
        while (await self._renew_session(session_id)).outcome != "refused":
            await asyncio.sleep(every_s / self.client.clock.rate)

    async def close_session(self, session_id: str) -> Said:
        return await self.ask(_requests.close_session(session_id), session_id=session_id)

    async def holder(self, key: str) -> dict[str, Any] | None:
        """Who holds the key, by a linearizable read; None if nobody does."""
        said = await self.ask(_requests.lease(key), key=key)
        return said.answer if said.ok else None

    async def queue(self, key: str) -> list[str]:
        """The owners of the key's waiters, first come first."""
        said = await self.ask(_requests.queue(key), key=key)
        return [waiter["owner"] for waiter in said.answer["waiters"]]

    async def record(self, key: str) -> str | None:
        """The value last accepted for the key."""
        said = await self.ask(_requests.record(key), key=key)
        return said.answer["value"] if said.ok else None


class Hold:
    """A grant in its holder's hands: the client's handle, and calls that name the lease."""

    def __init__(self, actor: Actor, said: Said) -> None:
        lease = said.answer["lease"]
        self.actor = actor
        self.answer = said.answer
        self.key: str = lease["key"]
        self.token: int = lease["token"]
        self.lease_id: str = lease["lease_id"]
        self.session_id: str = lease["session_id"]
        self.ttl_ms: int = lease["ttl_ms"]
        self.failed_renewals = 0
        self.life = HandleLife.from_grant(
            ttl_ms=self.ttl_ms,
            remaining_ms=lease["expires_in_ms"],
            sent_at=said.sent_at,
            now=actor.now,
            draw=actor.client.rng.random(),
            rho=actor.world.options.clock_rate_bound,
        )

    @property
    def state(self) -> State:
        """What the handle says now."""
        return self.life.state(self.actor.now)

    @property
    def held(self) -> bool:
        """The holder may act: HELD or AT_RISK."""
        return self.life.is_held(self.actor.now)

    # -- calls

    async def renew(self) -> Said:
        """One renewal, and what the handle makes of it."""
        return await self.actor.begin(self._renew())

    async def _renew(self, timeout_s: float | None = None) -> Said:
        actor, life = self.actor, self.life
        request = _requests.renew(lease_id=self.lease_id)
        how = USUALLY if timeout_s is None else How(timeout_s, timeout_s)
        said = await actor.asking(request, how, key=self.key, token=self.token)
        now, draw = actor.now, actor.client.rng.random()
        if said.ok:
            remaining_ms = said.answer["lease"]["expires_in_ms"]
            life.renewed(sent_at=said.sent_at, remaining_ms=remaining_ms, now=now, draw=draw)
        elif said.outcome == "refused":
            life.lost(str(said.answer.get("reason") or said.code), now)
        else:
            self.failed_renewals += 1
            life.renew_failed(now, draw)
        return said

    def keep(self) -> "asyncio.Future[None]":
        """Renew when the handle says so, until it is lost or released. Done when that is over."""
        return self.actor.begin(self._keep())

    async def _keep(self) -> None:
        actor, life = self.actor, self.life
        while life.is_held(actor.now):
            if life.renew_due(actor.now):
                await self._renew(life.renewal_begun(actor.now))
            else:
                left_s = min(life.next_renewal, life.valid_until) - actor.now
                await asyncio.sleep(max(left_s, 0.001) / actor.client.clock.rate)

    async def commit(self, value: str, *, require_live: bool = True) -> Said:
        """A guarded write of the record, mode current."""
        body: dict[str, Any] = {
            "key": self.key,
            "lease_id": self.lease_id,
            "token": self.token,
            "mode": "current",
            "value": value,
            "require_live": require_live,
            "op_id": self.actor.new_request_id(),
        }
        return await self.actor.ask(_requests.commit(body))

    async def release(self) -> Said:
        """Stop acting, then give it back."""
        self.life.release_begun(self.actor.now)
        said = await self.actor.ask(_requests.release(lease_id=self.lease_id), key=self.key, token=self.token)
        if said.outcome in ("ok", "refused"):
            self.life.release_answered(None if said.ok else said.code)
        return said
