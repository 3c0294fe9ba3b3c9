"""Many operations in one request. Each is a call of its own in the history, all made and answered at once."""

from typing import Any

from tenure import _requests
from tenure._requests import Request
from tenure_chaos.history import CallRecord
from tenure_chaos.sim.workloads.calls import settle_part
from tenure_chaos.sim.workloads.committing import mode_of
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle

OPS_MAX = 6


async def batch(program: Program) -> None:
    """Acquire several keys in one request, work on what was granted in others, and give it back in a last."""
    rng = program.rng
    asked = [_acquire(program) for _ in range(rng.randint(1, 3))]
    calls, sent_at = await _send(program, asked)
    handles: list[Handle] = []
    for call, op in zip(calls, asked, strict=True):
        if call.outcome == "ok":
            session = program.session(ttl_ms=op["ttl_ms"])
            handles.append(session.handle(call.answer["lease"], sent_at))
        elif call.outcome == "unknown":
            named = {"request_id": op["request_id"]}
            await program.call(_requests.abandon(**named), key=op["key"], **named)
    for _ in range(rng.randint(0, 3)):
        held = [handle for handle in handles if handle.held()]
        if not held or program.stopping:
            break
        await _work(program, held)
        await program.sleep(rng.uniform(0.0, 1.0))
    for handle in handles:
        handle.life.release_begun(program.now)
        handle.stop_believing("released")
    if handles:
        await _send(program, [{"op": "release", **handle.named} for handle in handles])
    program.ended.extend(handles)


def _acquire(program: Program) -> dict[str, Any]:
    return {
        "op": "acquire",
        "key": program.any_key(),
        "owner": program.client.name,
        "ttl_ms": program.any_ttl_ms(),
        "request_id": program.new_id(),
    }


async def _work(program: Program, held: list[Handle]) -> None:
    rng = program.rng
    ops: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, OPS_MAX)):
        handle = rng.choice(held)
        kind = rng.choice(("renew", "commit", "validate"))
        if kind == "renew":
            ops.append({"op": kind, **handle.named})
        elif kind == "commit" and mode_of(program, handle.key) != "sequence":
            ops.append(
                {
                    "op": kind,
                    **handle.named,
                    "mode": mode_of(program, handle.key),
                    "value": program.new_id("/"),
                    "op_id": program.new_id("-op"),
                }
            )
        else:
            ops.append({"op": "validate", "key": handle.key, "token": handle.token})
    calls, sent_at = await _send(program, ops)
    for call in calls:
        if call.name == "renew" and call.outcome == "ok":
            lease = call.answer["lease"]
            handle = next(handle for handle in held if handle.token == lease["token"])
            handle.session.extend(sent_at, lease["expires_in_ms"], lease["ttl_ms"])
        elif call.name == "renew" and call.code == "lost":
            handle = next(handle for handle in held if handle.lease_id == call.asked["lease_id"])
            handle.lost(str(call.answer.get("reason")))


SENT: dict[str, tuple[str, ...]] = {
    "renew": ("lease_id",),
    "release": ("lease_id",),
    "validate": ("key", "token"),
}
"""What goes into the body of an operation, where the history keeps more of it."""


async def _send(program: Program, ops: list[dict[str, Any]]) -> tuple[list[CallRecord], float]:
    """Make the batch, and one record of each operation."""
    world = program.world
    sent = [{name: op[name] for name in ("op", *SENT[op["op"]])} if op["op"] in SENT else op for op in ops]
    # Every operation may be repeated: those that need it carry a request_id or an op_id.
    request = Request("batch", "POST", "/v1/batch", dict[str, Any], True, False, {"ops": sent})
    calls = [
        program.write_down(op["op"], {name: value for name, value in op.items() if name != "op"})
        for op in ops
    ]
    whole, answer, sent_at = await program.call(request, ops=len(ops))
    results = answer.get("results", [{}] * len(ops))
    for call, result in zip(calls, results, strict=True):
        settle_part(call, whole, result)
        world.count(f"batched {call.name} {call.outcome} {call.code}".strip())
    return calls, sent_at
