"""Mutants of guarded writes."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_GUARDS = "tenure_cluster.lease.guards"
_GRANTING = "tenure_cluster.lease.granting"

FLOOR_AT_FIRST_WRITE = Mutant(
    "floor raised at the first write instead of the grant",
    "the write of a superseded holder passes until its successor has written",
    (
        Edit(
            f"{_GRANTING}:_raise_floor_by_grant",
            "blocked_until_ms = blocked_until(step, tenant, key)",
            "blocked_until_ms = blocked_until(step, tenant, key)\n"
            "    if state.guard_mode is not None:\n"
            "        table.put_key_state(replace(state, blocked_until_ms=0, idle_since_ms=-1))\n"
            "        return",
        ),
        Edit(
            f"{_GUARDS}:_judge",
            "if asked.token > guard.floor or not _of_the_floor(step, asked, state, guard):",
            "if asked.token == guard.floor and not _of_the_floor(step, asked, state, guard):",
        ),
        Edit(
            f"{_GUARDS}:_accept",
            "written = replace(guard, last_token=asked.token, last_seq=asked.seq or 0)",
            "written = replace(guard, floor=max(guard.floor, asked.token), lease_id=asked.lease_id,\n"
            "        last_token=asked.token, last_seq=asked.seq or 0)",
        ),
    ),
)

LIVENESS_NOT_REQUIRED = Mutant(
    "commit without asking whether the lease lives",
    "require_live is ignored, so a holder writes after its lease has ended",
    (
        Edit(
            f"{_GUARDS}:_judge",
            "if asked.require_live and not _live(step, asked):",
            "if False:",
        ),
    ),
    profiles.CLOSE_TO_THE_END,
)

FLOOR_IGNORED = Mutant(
    "commit that ignores the floor",
    "any token that was ever granted for the key may write",
    (
        Edit(
            f"{_GUARDS}:_judge",
            "if state is None or asked.token < guard.floor or asked.token <= token_base(step.table):",
            "if state is None:",
        ),
        Edit(
            f"{_GUARDS}:_judge",
            "if asked.token > guard.floor or not _of_the_floor(step, asked, state, guard):",
            "if asked.token > guard.floor:",
        ),
        Edit(
            f"{_GUARDS}:_judge",
            "if asked.require_live and not _live(step, asked):",
            "if False:",
        ),
    ),
)

BREAK_LEAVES_THE_FLOOR = Mutant(
    "break that leaves the floor",
    "who was broken by force may go on writing until the next grant",
    (
        Edit(
            "tenure_cluster.lease.sessions:break_key",
            "raise_all_floors(step, tenant, key)",
            "pass",
        ),
    ),
    profiles.BREAKS,
)

OP_ID_FORGOTTEN = Mutant(
    "op_id not remembered",
    "a commit that is asked again is made again",
    (
        Edit(
            f"{_GUARDS}:commit",
            "if operation is not None:",
            "if False:",
        ),
    ),
)

MUTANTS = (
    FLOOR_AT_FIRST_WRITE,
    LIVENESS_NOT_REQUIRED,
    FLOOR_IGNORED,
    BREAK_LEAVES_THE_FLOOR,
    OP_ID_FORGOTTEN,
)
