"""One call of a client, and its record in the history: what was asked and what became of it."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from tenure._requests import Request
from tenure.errors import ClusterUnavailable, OutcomeUnknown, TenureError
from tenure_chaos.history import CallRecord
from tenure_chaos.sim.client import ATTEMPT_TIMEOUT_S, CALL_TIMEOUT_S, SimCall, SimClient
from tenure_chaos.sim.world import World

TOLD_BY_A_REFUSAL = (
    "reason",
    "floor",
    "last_token",
    "last_seq",
    "revision",
    "applied_index",
    "cycle",
    "present",
)


@dataclass(frozen=True)
class How:
    """How a call is made, where it isn't as usual. ``named``: what the history calls it."""

    timeout_s: float = CALL_TIMEOUT_S
    attempt_timeout_s: float = ATTEMPT_TIMEOUT_S
    anywhere: bool = False
    named: str = ""


USUALLY = How()


class Caller:
    """Makes calls as one client."""

    def __init__(self, world: World, client: SimClient) -> None:
        self.world = world
        self.client = client
        self.in_doubt = False
        """Whether the client itself doubts the outcome of the call that returned last. It knows nothing of
        requests that were delivered twice."""

    async def call(
        self,
        request: Request[Any],
        how: How = USUALLY,
        /,
        **asked: Any,
    ) -> tuple[CallRecord, dict[str, Any], float]:
        """The record, the answer (empty if there is none), and when by the client's clock the attempt was
        sent that was answered. Raises nothing but the cancellation of the caller.
        """
        world, client = self.world, self.client
        record = CallRecord(
            len(world.history.calls), client.name, how.named or request.name, asked, world.loop.time()
        )
        world.history.calls.append(record)
        answer: dict[str, Any] = {}
        sent_at = 0.0
        call = client.begin(
            request,
            timeout_s=how.timeout_s,
            attempt_timeout_s=how.attempt_timeout_s,
            anywhere=how.anywhere,
        )
        try:
            value, sent_at = await client.drive(call)
        except OutcomeUnknown:
            record.outcome = "unknown"
        except ClusterUnavailable as error:
            record.outcome, record.code = "unavailable", error.code
        except TenureError as error:
            record.outcome, record.code = "refused", error.code
            record.answer = told_by(call.problem)
        except asyncio.CancelledError:
            record.outcome = "unknown" if call.protocol.attempted else "unavailable"
            record.code = "cancelled"
            self._returned(record, call)
            raise
        else:
            record.outcome = "ok"
            answer = record.answer = msgspec.to_builtins(value)
            ago_s = (client.clock.monotonic() - sent_at) / client.clock.rate
            record.answered_attempt_at = world.loop.time() - ago_s
        self._returned(record, call)
        return record, answer, sent_at

    def _returned(self, record: CallRecord, call: SimCall[Any]) -> None:
        world = self.world
        record.doubtful, self.in_doubt = call.doubtful, call.protocol.doubtful
        record.returned_at = world.loop.time()
        if call.answered_by and record.asked.get("consistency") == "stale":
            node = world.nodes[call.answered_by.removeprefix("http://")]
            record.session = f"{record.client} at {node.name} #{node.process.incarnation}"
        world.count(f"call {record.name} {record.outcome} {record.code}".strip())
        world.note(
            f"{record.client} {record.name} {record.asked} -> {record.outcome} {record.code} {record.answer}"
        )


def told_by(problem: dict[str, Any]) -> dict[str, Any]:
    """What of a problem document the history keeps."""
    told = {"detail": problem.get("detail", "")}
    told.update((name, problem[name]) for name in TOLD_BY_A_REFUSAL if name in problem)
    if isinstance(holder := problem.get("holder"), dict):
        told["holder"] = {"token": holder["token"]}
    return told
