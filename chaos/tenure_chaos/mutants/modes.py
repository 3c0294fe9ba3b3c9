"""Mutants of the kinds of holding: readers, slots, sets of keys, handing over, resting, progress."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_ACQUIRING = "tenure_cluster.lease.acquiring"
_GRANTING = "tenure_cluster.lease.granting"
_PASSING = "tenure_cluster.lease.passing"
_ROOM = "tenure_cluster.lease.room"

WRITER_STARVED = Mutant(
    "writer starved by readers",
    "a reader that comes joins those who read, whoever waits",
    (
        Edit(
            f"{_ACQUIRING}:_is_free",
            "nobody_before = step.table.key_queue(tenant, key) is None or (",
            'nobody_before = step.table.key_queue(tenant, key) is None or family[0] == "shared" or (',
        ),
    ),
    profiles.CROWDS,
)

WRITER_BESIDE_READERS = Mutant(
    "writer granted beside readers",
    "a writer waits for other writers alone",
    (
        Edit(
            f"{_ROOM}:has_room",
            "if mode == EXCLUSIVE or first.mode != mode:",
            "if mode == EXCLUSIVE and first.mode == SHARED:\n"
            "        return True\n"
            "    if mode == EXCLUSIVE or first.mode != mode:",
        ),
    ),
    profiles.CROWDS,
)

SLOT_TWICE = Mutant(
    "permit slot issued twice",
    "a permit beside others gets the slot of the one before",
    (
        Edit(
            f"{_GRANTING}:_free_slot",
            "return next(slot for slot in range(len(taken) + 1) if slot not in taken)",
            "return max(taken, default=0)",
        ),
    ),
    profiles.CROWDS,
)

SLOT_TOO_MANY = Mutant(
    "pool with a slot too many",
    "one permit more is granted than the pool has slots",
    (
        Edit(
            f"{_ROOM}:has_room",
            "places = slots if mode == PERMIT",
            "places = slots + 1 if mode == PERMIT",
        ),
    ),
    profiles.CROWDS,
)

HALF_A_SET = Mutant(
    "half a set granted",
    "of a set of keys only the first is granted",
    (
        Edit(
            f"{_GRANTING}:grant_all",
            "for ref, key in zip(refs, wanted.keys, strict=True)",
            "for ref, key in list(zip(refs, wanted.keys, strict=True))[:1]",
        ),
    ),
    profiles.SETS,
)

SET_STARVED = Mutant(
    "set of keys that starves",
    "a set that waits lets everybody pass for ever",
    (
        Edit(
            f"{_ROOM}:steps_aside",
            "step.now_ms < waiter.queued_ms + limits.SET_PATIENCE_MS",
            "True",
        ),
    ),
    profiles.SETS,
)

HANDOVER_KEEPS_THE_TOKEN = Mutant(
    "handover keeps the old token",
    "the successor writes with the token of who handed over",
    (
        Edit(
            f"{_GRANTING}:grant",
            "token, revision = step.mint_for(tenant, key, owner, wanted.mode, slot)",
            "token = step.events[-1].token if same_slot is not None else step.mint(tenant); "
            'revision = step.emit("granted", tenant, key, owner, token, "", wanted.mode, slot)',
        ),
    ),
    profiles.HANDS,
)

HANDOVER_TO_WHO_WAITS = Mutant(
    "handover that the next waiter gets",
    "the key is handed on to who waits before the successor has it",
    (
        Edit(
            f"{_PASSING}:handover",
            'end_lease(step, lease, "handed_over", owner)',
            'end_lease(step, lease, "handed_over", owner)\n    serve(step, tenant, key)',
        ),
    ),
    profiles.HANDS,
)

PARK_WITHOUT_LIMIT = Mutant(
    "park forgets its limit",
    "a parked lease keeps its key for ever",
    (
        Edit(
            f"{_PASSING}:park",
            "alone = _private_session(step, parked, asked.limit_ms)",
            "alone = _private_session(step, parked, 10**12)",
        ),
    ),
    profiles.HANDS,
)

PARK_COMES_LATE = Mutant(
    "park that comes late",
    "a request to park a lease parks it also after it was taken up again",
    (
        Edit(
            f"{_PASSING}:park",
            "if asked.token is not None and asked.token != lease.token:",
            "if False:",
        ),
    ),
    {**profiles.HANDS, "work": "rest", "keys": "6", "duplicate_request": "0.6", "faults": "slow link"},
)

UNPARK_KEEPS_THE_TOKEN = Mutant(
    "taking up keeps the old token",
    "who takes a parked lease up goes on with the token of before",
    (Edit(f"{_PASSING}:unpark", "token=step.mint(tenant), life=awake", "life=awake"),),
    profiles.HANDS,
)

PARKED_WRITES = Mutant(
    "parked lease that writes",
    "a commit that needs a live lease passes also while it is parked",
    (Edit("tenure_cluster.lease.guards:_live", "and not lease.parked", "and True"),),
    profiles.HANDS,
)

PROGRESS_IGNORED = Mutant(
    "progress ignored",
    "a lease that demands progress lives by its renewals alone",
    (
        Edit(
            f"{_GRANTING}:_life",
            "0 if claim_deadline_ms else step.now_ms + progress_ms",
            "0",
        ),
        Edit(
            f"{_GRANTING}:claim_lease",
            "if lease.life is not None and lease.life.progress_ms:",
            "if False:",
        ),
    ),
    profiles.HANDS,
)

CHAIN_CUT_SHORT = Mutant(
    "chain that ends at the first",
    "who blocks a key is told, and not for whom that one waits",
    (
        Edit(
            "tenure_cluster.service.blockers:_waits_for",
            "if view.waits(waiter):",
            "if False:",
        ),
    ),
    {**profiles.SESSIONS_RUN_OUT, "work": "session,look", "faults": ""},
)

MUTANTS = (
    WRITER_STARVED,
    WRITER_BESIDE_READERS,
    SLOT_TWICE,
    SLOT_TOO_MANY,
    HALF_A_SET,
    SET_STARVED,
    HANDOVER_KEEPS_THE_TOKEN,
    HANDOVER_TO_WHO_WAITS,
    PARK_WITHOUT_LIMIT,
    PARK_COMES_LATE,
    UNPARK_KEEPS_THE_TOKEN,
    PARKED_WRITES,
    PROGRESS_IGNORED,
    CHAIN_CUT_SHORT,
)
