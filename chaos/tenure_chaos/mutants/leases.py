"""Mutants of granting, renewing and ending leases."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_ACQUIRING = "tenure_cluster.lease.acquiring"
_EXPIRING = "tenure_cluster.lease.expiring"
_SESSIONS = "tenure_cluster.lease.sessions"

TOKEN_RESET_ON_RELEASE = Mutant(
    "token reset on release",
    "the counter of fencing tokens begins anew when a lease is released",
    (
        Edit(
            f"{_SESSIONS}:release",
            'end_lease(step, lease, "released")',
            'end_lease(step, lease, "released")\n'
            "    from msgspec.structs import replace\n"
            "    counters = step.table.tenants[lease.tenant]\n"
            "    step.table.tenants[lease.tenant] = replace(counters, last_token=0)",
        ),
    ),
)

RENEW_REVIVES = Mutant(
    "renew that revives an expired lease",
    "a renewal looks for the lease and not at its deadline",
    (
        Edit(
            f"{_SESSIONS}:renew",
            "lease = find_lease(step, asked.tenant, asked.lease_id)",
            "lease = table.leases.get((asked.tenant, asked.lease_id)) or Lost('unknown')",
        ),
    ),
    profiles.CLOSE_TO_THE_END,
)

RENEW_AFTER_THE_END = Mutant(
    "renew that brings an ended lease back",
    "a lease that has expired comes back at its renewal, with its old token, if nobody has its key",
    (
        Edit(
            f"{_SESSIONS}:renew",
            "lease = find_lease(step, asked.tenant, asked.lease_id)",
            """lease = find_lease(step, asked.tenant, asked.lease_id)
    ref = (asked.tenant, asked.lease_id)
    was = table.ended.get(ref)
    expired = was is not None and was.reason == "expired" and not was.session_id
    if expired and table.holder(was.tenant, was.key) is None:
        from tenure_cluster.lease.liveness import refresh_idleness
        del table.ended[ref]
        table.ended._note_oldest()
        table.add_session(ref, Session(*ref, "", 3_000, step.now_ms, True, EMPTY_METADATA, 0, 0))
        lease = Lease(*ref, was.key, "exclusive", 0, was.lease_id, "", was.token, 0, EMPTY_METADATA,
                      was.request_id, 0, step.now_ms, step.wall_ms, 1)
        table.add_lease(ref, lease)
        table.watch_session(ref)
        refresh_idleness(step, was.tenant, was.key)""",
        ),
    ),
    profiles.CLOSE_TO_THE_END,
)

RELEASE_BY_KEY = Mutant(
    "release by key instead of lease_id",
    "a release of a lease that has ended ends whatever lease its key has now",
    (
        Edit(
            f"{_SESSIONS}:release",
            'return Released(True) if lease.reason == "released" else lease',
            "ended = step.table.ended.get((asked.tenant, asked.lease_id))\n"
            "        holder = step.table.holder(ended.tenant, ended.key) if ended is not None else None\n"
            "        if holder is None:\n"
            "            return Released(True)\n"
            "        lease = holder",
        ),
    ),
)

REAPER_DOES_NOT_CHECK_AGAIN = Mutant(
    "reaper that does not re-check",
    "what seemed due when the reaper looked is ended, though it was renewed or claimed meanwhile",
    (
        Edit(
            f"{_EXPIRING}:_Batch._session",
            "if session is None or session.deadline_ms != item.deadline_ms:",
            "if session is None:",
        ),
        Edit(
            f"{_EXPIRING}:_Batch._session",
            "expire_lease(self.step, lease)",
            "from tenure_cluster.lease.holding import end_lease\n"
            "        end_lease(self.step, lease, 'expired')\n"
            "        serve(self.step, lease.tenant, lease.key)",
        ),
        Edit(
            f"{_EXPIRING}:_Batch._claim",
            "if lease is not None and 0 < lease.claim_deadline_ms == item.deadline_ms:",
            "if lease is not None:",
        ),
    ),
    profiles.CLOSE_TO_THE_END,
)

GRANT_WHILE_HELD = Mutant(
    "grant while held",
    "one acquire in four does not look whether the key is held",
    (
        Edit(
            f"{_ACQUIRING}:_meet",
            "if not _is_free(step, tenant, key, family, asked.session_id):",
            "if step.counters(tenant).last_token % 4"
            " and not _is_free(step, tenant, key, family, asked.session_id):",
        ),
    ),
)

RETRY_GRANTS_ANEW = Mutant(
    "retry that grants anew",
    "the request of a lease that has ended is tried as if nothing were known of it",
    (
        Edit(
            f"{_ACQUIRING}:acquire",
            "if isinstance(fate, EndedLease):",
            "if isinstance(fate, EndedLease):\n        fate = None\n    if isinstance(fate, EndedLease):",
        ),
        # Its memory would trip over a request that ended twice.
        Edit(
            "tenure_cluster.lease.indexes:Indexes.forget_fate",
            "del of_tenant[request_item_id(scope, request_id) if scope else request_id]",
            "of_tenant.pop(request_item_id(scope, request_id) if scope else request_id, None)",
        ),
        Edit(
            "tenure_cluster.lease.indexes:Indexes.forget_fate",
            "of_tenant = index[tenant]",
            "of_tenant = index.setdefault(tenant, {})",
        ),
    ),
    profiles.ANSWERS_LOST,
)

ABANDON_IS_FORGOTTEN = Mutant(
    "abandon that is forgotten",
    "an acquire that arrives after it was given up is granted",
    (
        Edit(
            f"{_ACQUIRING}:abandon",
            "table.remember_abandoned(ref, AbandonedRequest(*ref, step.now_ms))",
            "pass",
        ),
    ),
    profiles.ANSWERS_LOST,
)

LEASE_ENDS_EARLY = Mutant(
    "lease that ends early",
    "a lease is over 300 ms before its deadline",
    (
        Edit(
            "tenure_cluster.lease.liveness:lease_live",
            "> step.now_ms",
            "> step.now_ms + 300",
        ),
    ),
    profiles.CLOSE_TO_THE_END,
)

MUTANTS = (
    TOKEN_RESET_ON_RELEASE,
    RENEW_REVIVES,
    RENEW_AFTER_THE_END,
    RELEASE_BY_KEY,
    REAPER_DOES_NOT_CHECK_AGAIN,
    GRANT_WHILE_HELD,
    RETRY_GRANTS_ANEW,
    ABANDON_IS_FORGOTTEN,
    LEASE_ENDS_EARLY,
)
