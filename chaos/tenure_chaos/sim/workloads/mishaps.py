"""What goes wrong at the client's end: old leases used again, wrong ids, calls made twice, breaks."""

from tenure import _requests
from tenure_chaos.sim.workloads.calls import How
from tenure_chaos.sim.workloads.committing import commit, mode_of
from tenure_chaos.sim.workloads.looking import CROWDED
from tenure_chaos.sim.workloads.program import Program

NOBODYS = "nobodys-id"
NO_TOKEN = -1
"""In the history, the token of a lease that there is not."""

SURELY_REMEMBERED_S = 50.0
"""Within this after it was made, a commit's op_id is remembered, however fast the clocks."""

BY_THE_MACHINE = frozenset(
    ("stale_token", "token_used", "seq_replayed", "not_live", "revision_conflict", "mode_conflict")
)
"""Refusals that are remembered with the op_id."""


async def mishap(program: Program) -> None:
    rng = program.rng
    roll = rng.random()
    if roll < 0.15 and program.world.options.breaks:
        key = program.rng.choice(CROWDED) if program.chance(0.2) else program.any_key()
        await program.call(_requests.break_(key=key, reason="simulated"), key=key)
    elif roll < 0.25:
        await _nobodys(program)
    elif roll < 0.35 and program.ended:
        await _mismatched(program)
    elif roll < 0.50 and program.commits:
        await _commit_again(program)
    elif program.ended:
        await _use_an_old_lease(program)


async def _nobodys(program: Program) -> None:
    """Ids that were never given to anybody have no effect."""
    key = program.any_key()
    named = {"key": key, "token": NO_TOKEN, "lease_id": NOBODYS}
    roll = program.rng.random()
    if roll < 0.3:
        record, _, _ = await program.call(_requests.renew(lease_id=NOBODYS), **named)
    elif roll < 0.6:
        record, _, _ = await program.call(_requests.release(lease_id=NOBODYS), **named)
    elif roll < 0.8:
        record, _, _ = await program.call(_requests.close_session(NOBODYS), session_id=NOBODYS)
    else:
        record, _, _ = await program.call(
            _requests.renew_session(session_id=NOBODYS), How(named="renew_session"), session_id=NOBODYS
        )
    if record.outcome == "ok":
        program.world.violation("ids that nobody has do nothing", f"call {record.number} was answered")


async def _mismatched(program: Program) -> None:
    """A token is no secret, a lease_id is: a commit passes only with both, and only on their key."""
    handle = program.rng.choice(program.ended)
    key, lease_id, token = handle.key, handle.lease_id, handle.token
    roll = program.rng.random()
    if roll < 0.4:
        lease_id = NOBODYS
    elif roll < 0.7:
        # Not one that came soon after: it may be of the same lease, if that was parked.
        token = program.rng.choice((program.rng.randint(1, token), token + 1_000_000))
    else:
        key = program.any_key()
    if (key, lease_id, token) == (handle.key, handle.lease_id, handle.token):
        return
    body = {
        "key": key,
        "lease_id": lease_id,
        "token": token,
        "mode": mode_of(program, key),
        "value": program.new_id("/"),
        "require_live": program.chance(0.5),
        "op_id": program.new_id("-op"),
    }
    if body["mode"] == "sequence":
        body["seq"] = 1_000_000
    record, _, _ = await program.call(_requests.commit(body), How(named="commit_mismatched"), **body)
    if record.outcome == "ok":
        program.world.violation("a commit needs lease and token", f"call {record.number} was accepted")


async def _commit_again(program: Program) -> None:
    """The same op_id is answered as at first."""
    world = program.world
    first = program.rng.choice(program.commits)
    body, before = first["body"], first["record"]
    if before.outcome == "unavailable" or (before.outcome == "refused" and before.code not in BY_THE_MACHINE):
        return
    record, answer, _ = await program.call(_requests.commit(body), How(named="commit_again"), **body)
    if world.loop.time() - first["began_at"] > SURELY_REMEMBERED_S:
        return
    if before.doubtful or "ok" not in (before.outcome, record.outcome):
        return
    if {before.outcome, record.outcome} == {"ok", "refused"}:
        world.violation("a commit again is answered as at first", f"calls {before.number}, {record.number}")
    elif before.outcome == record.outcome and before.answer["revision"] != answer["revision"]:
        world.violation("a commit again has its first revision", f"calls {before.number}, {record.number}")


async def _use_an_old_lease(program: Program) -> None:
    """By one who has not heard that it has ended; or it has not, and this is its late end."""
    rng = program.rng
    handle = rng.choice(program.ended)
    roll = rng.random()
    if roll < 0.25:
        await program.call(_requests.renew(lease_id=handle.lease_id), **handle.named)
    elif roll < 0.45:
        await handle.release()
    elif roll < 0.55:
        key, token = handle.key, handle.token
        await program.call(_requests.validate(key=key, token=token), key=key, token=token)
    elif roll < 0.85:
        await commit(program, handle, require_live=program.chance(0.5))
    elif handle.armed:
        register = program.register(handle.key)
        put = await register.write(program.client.name, handle.token, await register.read())
        program.world.count(f"old lease's register write {'accepted' if put.accepted else 'refused'}")
