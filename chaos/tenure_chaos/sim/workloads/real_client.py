"""The client's own machinery over the simulated client: tenure._calls with every call written down.

What is not the client's is where the attempts go, whose clock it is, and where chance comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from tenure._acquisition import Acquisition
from tenure._calls import Calls
from tenure._endpoints import Endpoints
from tenure._options import Options
from tenure._protocol import Answer, Attempt, Call
from tenure._requests import Request
from tenure.errors import TenureError
from tenure_chaos.history import CallRecord
from tenure_chaos.sim.client import SimCall
from tenure_chaos.sim.workloads.calls import settle_part

if TYPE_CHECKING:
    from tenure_chaos.sim.workloads.program import Program

A = TypeVar("A")

TIMEOUT_S: Final = 10.0


class NoTransport:
    """Nothing goes this way: RecordedCalls drives the simulated client instead."""

    async def send(self, attempt: Attempt) -> tuple[int, Mapping[str, str], bytes]:
        raise AssertionError(f"{attempt} went past the simulated client")

    async def close(self) -> None:
        """There are no connections."""


class RecordedCalls(Calls):
    """The calls of one process."""

    def __init__(self, program: Program) -> None:
        super().__init__(
            Options(
                program.client.urls,
                timeout_s=TIMEOUT_S,
                clock=lambda: program.now,
                sleep=program.sleep,
                transport=NoTransport,
            )
        )
        self._program = program
        self._begun: dict[Call[Any], SimCall[Any]] = {}

    def call(
        self,
        request: Request[A],
        *,
        endpoints: Endpoints | None = None,
        timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
    ) -> Call[A]:
        begun = self._program.client.begin(
            request,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            attempt_timeout_s=self.attempt_timeout_s if attempt_timeout_s is None else attempt_timeout_s,
        )
        self._begun[begun.protocol] = begun
        return begun.protocol

    async def perform(self, call: Call[A]) -> Answer[A]:
        try:
            return await self._perform(call)
        except TenureError:
            raise
        except Exception as error:
            # The client goes on after any error, so one of the harness would pass unnoticed.
            self._program.report(error)
            raise

    async def _perform(self, call: Call[A]) -> Answer[A]:
        program, request = self._program, call.request
        parts = [self._write_down(op["op"], op) for op in (request.body or {}).get("ops", ())]
        record = program.write_down("batch", {"ops": len(parts)}) if parts else self._asked(request)
        try:
            answer = await program.carry_out(self._begun.pop(call), record)
        finally:
            # A call that never returned has nothing to be settled.
            if record.outcome != "pending":
                program.calls_returned()
                for number, part in enumerate(parts):
                    settle_part(part, record, record.answer.get("results", [{}] * len(parts))[number])
        for lease in [record.answer.get("lease"), *_listed(record.answer.get("leases"))]:
            if lease is not None and "lease_id" in lease:
                named = {"key": lease["key"], "token": lease["token"], "lease_id": lease["lease_id"]}
                program.leases[lease["lease_id"]] = named
        return answer

    def _asked(self, request: Request[Any]) -> CallRecord:
        """Written down by the fields of the contract, and what the history wants beside them."""
        asked = dict(request.body or request.query)
        _, _, place = request.path.removeprefix("/v1/").partition("/")
        if request.name in ("session", "close_session"):
            asked["session_id"] = unquote(place)
        elif place:
            asked["key"] = unquote(place)
        if request.name == "acquire":
            asked["wait_s"] = 0.0 if request.wait_until is None else request.wait_until - self.clock()
            self._program.asked_for[asked["request_id"]] = asked.get("key") or asked["keys"][0]
        elif request.name == "abandon":
            asked["key"] = self._program.asked_for[asked["request_id"]]
        by_session = request.name == "renew" and "session_id" in asked
        return self._write_down("renew_session" if by_session else request.name, asked)

    def _write_down(self, name: str, asked: Mapping[str, Any]) -> CallRecord:
        asked = {field: value for field, value in asked.items() if field != "op"}
        if name in ("renew", "release"):
            asked.update(self._program.leases.get(asked["lease_id"], {}))
        return self._program.write_down(name, asked)


class SimAcquisition(Acquisition):
    """An acquire whose ids are drawn by the world, and that ends with it."""

    def __init__(self, program: Program, body: dict[str, Any], **terms: Any) -> None:
        super().__init__(program.calls, body, request_id=program.new_id(), **terms)
        self._callers_id = False
        self._program = program

    @property
    def request_id(self) -> str:
        """Of the request that was asked last."""
        return self._request_id

    def _may_begin_anew(self) -> bool:
        return super()._may_begin_anew() and not self._program.stopping

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._request_id = self._program.new_id()
        if self._body.get("mode") == "shared":
            # Events name a reader by its owner alone, and the first grant may not have ended yet.
            self._body["owner"] = f"{self._body['owner']}'"
        self._program.world.count("acquire begun anew")


def _listed(leases: Any) -> list[dict[str, Any]]:
    """The leases of an answer; that of a session only counts them."""
    return leases if isinstance(leases, list) else []
