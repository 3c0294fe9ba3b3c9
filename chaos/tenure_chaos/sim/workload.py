"""What clients do in the field: hold, renew, write, pause, lose answers, give up, and come late."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from tenure import _requests
from tenure._requests import Request
from tenure.errors import ClusterUnavailable, LeaseLost, LeaseUnavailable, OutcomeUnknown, TenureError
from tenure_chaos.history import CallRecord
from tenure_chaos.sim.client import SimClient
from tenure_chaos.sim.world import World

MARGIN_S = 0.25


@dataclass
class Holding:
    """What a client has been granted, and until when it may believe so by its own clock."""

    key: str
    lease_id: str
    token: int
    ttl_ms: int
    valid_until: float
    lease: dict[str, Any]


class Worker:
    """One client's endless work."""

    def __init__(self, world: World, client: SimClient) -> None:
        self.world = world
        self.client = client
        self.number = 0
        self.stopping = False

    async def run(self) -> None:
        rng = self.client.rng
        while not self.stopping:
            await asyncio.sleep(rng.expovariate(1.0 / self.world.options.think_s))
            roll = rng.random()
            key = f"k{rng.randrange(self.world.options.keys)}"
            if roll < 0.80:
                await self._episode(key)
            elif roll < 0.86:
                await self.call(_requests.lease(key), key=key)
            elif roll < 0.90:
                await self.call(_requests.record(key), key=key)
            elif roll < 0.94:
                await self.call(_requests.queue(key), key=key)
            elif roll < 0.97:
                await self.call(_requests.validate(key=key, token=rng.randint(1, 50)), key=key)
            elif self.world.options.breaks:
                await self.call(_requests.break_(key=key, reason="simulated"), key=key)

    async def _episode(self, key: str) -> None:
        rng = self.client.rng
        held = await self._acquire(key)
        if held is None:
            return
        for _ in range(rng.randint(0, 4)):
            await asyncio.sleep(rng.uniform(0.0, held.ttl_ms / 1000 * rng.choice((0.3, 0.3, 0.6, 1.2))))
            roll = rng.random()
            if roll < 0.55:
                if not await self._renew(held):
                    return
            elif roll < 0.95:
                await self._commit(held)
            else:
                break
        if rng.random() < 0.8:
            await self.call(
                _requests.release(lease_id=held.lease_id), key=key, token=held.token, lease_id=held.lease_id
            )

    async def _acquire(self, key: str) -> Holding | None:
        rng = self.client.rng
        self.number += 1
        request_id = f"{self.client.name}-{self.number}"
        ttl_ms = rng.choice(self.world.options.ttl_ms)
        body = {
            "key": key,
            "owner": self.client.name,
            "ttl_ms": ttl_ms,
            "request_id": request_id,
        }
        wait_s = rng.choice((0.0, 0.0, 3.0, 20.0))
        wait_until = self.client.clock.monotonic() + wait_s if wait_s else None
        record, answer, sent_at = await self.call(_requests.acquire(body, wait_until), **body, wait_s=wait_s)
        while record.outcome == "ok" and answer["status"] == "waiting" and wait_until is not None:
            if self.client.clock.monotonic() >= wait_until or rng.random() < 0.1:
                break
            record, answer, sent_at = await self.call(
                _requests.acquire(body, wait_until), **body, wait_s=wait_s
            )
        if record.outcome != "ok" or answer["status"] != "granted":
            if record.outcome in ("unknown", "ok") or record.doubtful:
                await self.call(_requests.abandon(request_id=request_id), request_id=request_id, key=key)
            return None
        if rng.random() < 0.03:
            await self.call(_requests.abandon(request_id=request_id), request_id=request_id, key=key)
            return None
        lease = answer["lease"]
        return Holding(
            key,
            lease["lease_id"],
            lease["token"],
            ttl_ms,
            self._valid_until(sent_at, lease["expires_in_ms"]),
            lease,
        )

    def _valid_until(self, sent_at: float, remaining_ms: int) -> float:
        rho = self.world.options.clock_rate_bound
        return sent_at + remaining_ms / 1000 * (1 - rho) / (1 + rho) - MARGIN_S

    async def _renew(self, held: Holding) -> bool:
        record, answer, sent_at = await self.call(
            _requests.renew(lease_id=held.lease_id), key=held.key, token=held.token, lease_id=held.lease_id
        )
        if record.outcome == "ok":
            until = self._valid_until(sent_at, answer["lease"]["expires_in_ms"])
            held.valid_until = max(held.valid_until, until)
        return record.outcome != "refused"

    async def _commit(self, held: Holding) -> None:
        rng = self.client.rng
        self.number += 1
        body: dict[str, Any] = {
            "key": held.key,
            "lease_id": held.lease_id,
            "token": held.token,
            "mode": "current",
            "value": f"{self.client.name}/{self.number}",
            "require_live": rng.random() < 0.7,
        }
        if rng.random() < 0.7:
            body["op_id"] = f"{self.client.name}-op-{self.number}"
        await self.call(_requests.commit(body), **body)

    async def call(self, request: Request[Any], **asked: Any) -> tuple[CallRecord, dict[str, Any], float]:
        """Ask, and write down what was asked and what became of it."""
        world = self.world
        record = CallRecord(
            len(world.history.calls), self.client.name, request.name, asked, world.loop.time()
        )
        world.history.calls.append(record)
        answer: dict[str, Any] = {}
        sent_at = 0.0
        call = self.client.begin(request)
        try:
            value, sent_at = await self.client.drive(call)
            answer = record.answer = msgspec.to_builtins(value)
            record.outcome = "ok"
            record.answered_attempt_at = (
                world.loop.time() - (self.client.clock.monotonic() - sent_at) / self.client.clock.rate
            )
        except OutcomeUnknown:
            record.outcome = "unknown"
        except ClusterUnavailable as error:
            record.outcome, record.code = "unavailable", error.code
        except TenureError as error:
            record.outcome = "refused"
            record.code = error.code
            record.answer = {"detail": str(error)}
            if isinstance(error, LeaseUnavailable) and error.holder is not None:
                record.answer["holder"] = {"token": error.holder.token}
            if isinstance(error, LeaseLost):
                record.answer["reason"] = error.reason
        record.doubtful = call.doubtful
        record.returned_at = world.loop.time()
        world.count(f"call {request.name} {record.outcome} {record.code}".strip())
        world.note(f"{self.client.name} {request.name} {asked} -> {record.outcome} {record.code} {answer}")
        return record, answer, sent_at
