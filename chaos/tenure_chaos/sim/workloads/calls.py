"""One call of a client, and its record in the history: what was asked and what became of it."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from tenure._protocol import Answer
from tenure._requests import Request
from tenure.errors import ClusterUnavailable, OutcomeUnknown, TenureError
from tenure_chaos.history import CallRecord
from tenure_chaos.sim.client import ATTEMPT_TIMEOUT_S, CALL_TIMEOUT_S, SimCall, SimClient
from tenure_chaos.sim.world import World

A = TypeVar("A")

TOLD_BY_A_REFUSAL: Final = (
    "reason",
    "cause",
    "key",
    "floor",
    "last_token",
    "last_seq",
    "revision",
    "applied_index",
    "cycle",
    "present",
    "present_slots",
)


@dataclass(frozen=True)
class How:
    """How a call is made, where it isn't as usual. ``named``: what the history calls it."""

    timeout_s: float = CALL_TIMEOUT_S
    attempt_timeout_s: float = ATTEMPT_TIMEOUT_S
    anywhere: bool = False
    named: str = ""


USUALLY: Final = How()


class Caller:
    """Makes calls as one client."""

    def __init__(self, world: World, client: SimClient) -> None:
        self.world = world
        self.client = client

    async def call(
        self, request: Request[Any], how: How = USUALLY, /, **asked: Any
    ) -> tuple[CallRecord, dict[str, Any], float]:
        """The record, the answer (empty if there is none), and when by the client's clock the attempt was
        sent that was answered. Raises nothing but the cancellation of the caller.
        """
        record = self.write_down(how.named or request.name, asked)
        call = self.client.begin(
            request,
            timeout_s=how.timeout_s,
            attempt_timeout_s=how.attempt_timeout_s,
            anywhere=how.anywhere,
        )
        try:
            answer = await self.carry_out(call, record)
        except TenureError:
            return record, {}, 0.0
        return record, record.answer, answer.sent_at

    def write_down(self, name: str, asked: dict[str, Any]) -> CallRecord:
        """A call is made now."""
        calls = self.world.history.calls
        record = CallRecord(len(calls), self.client.name, name, asked, self.world.loop.time())
        calls.append(record)
        return record

    async def carry_out(self, call: SimCall[A], record: CallRecord) -> Answer[A]:
        """Make a call that was written down, and write down what became of it. Raises as the call ends."""
        world, client = self.world, self.client
        try:
            value, sent_at = await client.drive(call)
        except OutcomeUnknown:
            self._returned(record, call, "unknown", "")
            raise
        except ClusterUnavailable as error:
            self._returned(record, call, "unavailable", error.code)
            raise
        except TenureError as error:
            record.answer = told_by(call.problem)
            self._returned(record, call, "refused", error.code)
            raise
        except asyncio.CancelledError:
            outcome = "unknown" if call.protocol.attempted else "unavailable"
            self._returned(record, call, outcome, "cancelled")
            raise
        record.answer = msgspec.to_builtins(value)
        # Where clocks run on between two looks, rather too early than too late.
        now = world.loop.time()
        record.answered_attempt_at = now - (client.clock.monotonic() - sent_at) / client.clock.rate
        self._returned(record, call, "ok", "")
        return Answer(value, sent_at)

    def _returned(self, record: CallRecord, call: SimCall[Any], outcome: Any, code: str) -> None:
        world = self.world
        record.outcome, record.code = outcome, code
        record.doubtful = call.doubtful
        record.returned_at = world.loop.time()
        if call.answered_by and record.asked.get("consistency") == "stale":
            node = world.hosts[call.answered_by.removeprefix("http://")]
            record.session = f"{record.client} at {node.name} #{node.process.incarnation}"
        world.count(f"call {record.name} {outcome} {code}".strip())
        if len(chain := record.answer.get("chain") or []) > 1:
            world.count("chain of several seen")
        if "present_slots" in record.answer:
            world.slots_known[record.answer["key"]] = record.answer["present_slots"]
        if any(link["state"] == "parked" for link in chain):
            world.count("parked lease seen in a chain")
        world.note(f"{record.client} {record.name} {record.asked} -> {outcome} {code} {record.answer}")


def told_by(problem: dict[str, Any]) -> dict[str, Any]:
    """What of a problem document the history keeps."""
    told = {"detail": problem.get("detail", "")}
    told.update((name, problem[name]) for name in TOLD_BY_A_REFUSAL if name in problem)
    if isinstance(holder := problem.get("holder"), dict):
        told["holder"] = {"token": holder["token"]}
    return told


def settle_part(part: CallRecord, whole: CallRecord, result: dict[str, Any]) -> None:
    """What became of one operation of a batch, a call of its own in the history."""
    part.returned_at, part.doubtful = whole.returned_at, whole.doubtful
    if whole.outcome != "ok":
        part.outcome, part.code, part.answer = whole.outcome, whole.code, dict(whole.answer)
    elif result["status"] < 300:
        part.outcome, part.answered_attempt_at = "ok", whole.answered_attempt_at
        part.answer = {name: value for name, value in result.items() if name != "result"}
        part.answer["status"] = result.get("result", "")
    else:
        part.code, part.answer = result["code"], told_by(result)
        if result["status"] == 504 or part.code == "internal":
            part.outcome = "unknown"
        elif result["status"] == 503 or part.code == "overloaded":
            # Not executed by the attempt that was answered; an earlier one may have been.
            part.outcome = "unknown" if part.doubtful else "unavailable"
        else:
            part.outcome = "refused"
