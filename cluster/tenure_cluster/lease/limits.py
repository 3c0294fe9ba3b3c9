"""Bounds that the state machine itself enforces or relies on.

They shape the replicated state, so every node that can run side by side must agree on them: they
are constants of the version, not settings. Bounds of admission (TTL range, quotas) are settings and
live in the configuration.
"""

from typing import Final

TOKEN_MAX: Final = 2**53 - 1
"""Greatest fencing token: exact in JSON, JavaScript and Lua."""

KEY_BYTES_MAX: Final = 512
"""A key is 1 to this many bytes of UTF-8."""

OWNER_BYTES_MAX: Final = 256
"""An owner label is 1 to this many bytes of UTF-8."""

ID_BYTES_MAX: Final = 128
"""Greatest length of a request_id, op_id, session_id or lease_id in bytes of UTF-8."""

REASON_BYTES_MAX: Final = 1024
"""Greatest length of a break's reason in bytes of UTF-8."""

METADATA_BYTES_MAX: Final = 4096
"""Keys and values of a metadata map together, in bytes of UTF-8."""

VALUE_BYTES_MAX: Final = 65_536
"""Greatest record value in bytes."""

DIGEST_BYTES_MAX: Final = 256
"""Greatest length of a record's caller-supplied digest in bytes of UTF-8."""

GRACE_MS_MAX: Final = 86_400_000
"""Greatest grace period after expiry or break."""

SEQ_MAX: Final = 2**53 - 1
"""Greatest sequence number of a guarded write."""

POLL_SLICE_MS: Final = 25_000
"""A poll for a queued acquire lasts at most this long."""

WAITER_SILENCE_MS: Final = 2 * POLL_SLICE_MS
"""A waiter that has not polled for this long leaves the queue."""

CLAIM_WINDOW_MS: Final = 5_000
"""How long a grant to a waiter stays open until it must have been claimed."""

REQUEST_MEMORY_MS: Final = 60_000
"""How long the outcome of a request_id, an op_id or an ended lease is remembered after its end."""

ENDED_LEASES_MAX: Final = 1_000_000
"""Most ended leases that are remembered; beyond it the oldest is forgotten first."""

OPERATIONS_MAX: Final = 1_000_000
"""Most op_ids that are remembered; beyond it the oldest is forgotten first."""

KEY_MEMORY_MS: Final = 86_400_000
"""How long the state of a key is kept after its last holder, waiter or record has gone."""

IDLE_KEYS_MAX: Final = 100_000
"""Most idle keys that are kept. Forgetting one early is safe: its next grant carries a token above every
earlier one, and a commit to a key without state is refused as stale."""

WAITERS_PER_KEY_MAX: Final = 10_000
"""Most waiters of one key."""

HOLDERS_PER_KEY_MAX: Final = 1_000
"""Most shared holders of one key, and most slots of a pool: a command that touches a key looks at all of
them, and a break ends all of them in one entry."""

RENEWED_TOLD_MAX: Final = 16
"""The renewal of a session is told of each of its leases if it has no more than these."""

PROGRESS_STEP_BYTES_MAX: Final = 128
"""Greatest length of a progress note's step in bytes of UTF-8."""

PROGRESS_TEXT_BYTES_MAX: Final = 512
"""Greatest length of a progress note's text in bytes of UTF-8."""

PROGRESS_STEPS_MAX: Final = 8
"""Of so many steps it is remembered how far their counters have come."""

PROGRESS_MS_MIN: Final = 1_000
PROGRESS_MS_MAX: Final = 86_400_000
"""Within how long a lease may demand progress."""

PARK_MS_MIN: Final = 1_000
PARK_MS_MAX: Final = 30 * 86_400_000
"""For how long a lease may be parked."""

CLOSE_AT_ONCE_MAX: Final = 500
"""Most leases and keys of waiters of a session that its closing ends in the same entry."""

SET_KEYS_MAX: Final = 64
"""Most keys of one acquire."""

SET_PATIENCE_MS: Final = 10_000
"""For so long a waiting set of keys lets others pass it; from then on each of its keys is kept for it."""

SETS_PASSED_MAX: Final = 100
"""Most waiting sets of keys that are passed on the way to a waiter behind them."""

LISTING_STEPS_MAX: Final = 5_000
"""Most held keys that one page of a listing looks at."""

DROPS_PER_ENTRY_MAX: Final = 500
"""Most dead waiters that one entry drops from queues in passing; the reaper comes for the others."""

HOLDERS_NAMED_MAX: Final = 10
"""Most holders, and most waiters, that an answer to an acquire names."""

HOUSEKEEPING_STEPS_MAX: Final = 1_000
"""Most expired memories that one command sweeps away, so that no entry holds the loop for long."""

GRANTS_PER_ENTRY_MAX: Final = 1_000
"""From so many leases on that one entry has granted to waiters, it grants no more; the reaper goes on with
the keys that it has come to."""

LOOKS_PER_ENTRY_MAX: Final = 10_000
"""At so many keys of waiters one entry looks to see whether they are free. More than the keys of all sets
that are passed in one queue, so that an entry that begins with a key comes to its end."""

EVENTS_PER_EXPIRE_MAX: Final = 1_000
"""From so many events on an Expire command leaves the rest of its items to the next."""

EXPIRE_BATCH_MAX: Final = 500
"""Most items of one Expire command, and most leases that one of its sessions loses in it."""

DEADLOCK_SEARCH_MAX: Final = 10_000
"""Most holders, waiters and keys of waiting sets that the search for a cycle looks at, for one acquire."""

CREDENTIALS_MAX: Final = 10_000
"""Most credentials of all tenants."""

CREDENTIAL_PREFIXES_MAX: Final = 64
"""Most prefixes of one credential."""

CREDENTIAL_NAME_BYTES_MAX: Final = 128
"""A credential's name is 1 to this many bytes of UTF-8."""

TENANT_BYTES_MAX: Final = 128
"""A tenant's name is 1 to this many bytes of UTF-8."""

CREDENTIAL_LIFETIME_MS_MAX: Final = 10 * 366 * 86_400_000
"""Greatest lifetime of a credential that has an end."""

CREDENTIAL_OVERLAP_MS_MAX: Final = 90 * 86_400_000
"""For how long a secret is valid at most after it was replaced."""

SECRETS_MAX: Final = 4
"""Most secrets of one credential that are valid at once; beyond it the oldest is over first."""

QUOTAS_MAX: Final = 10_000
"""Most tenants that have a quota of their own."""

AUDIT_RECORDS_MAX: Final = 100_000
"""Most records of the audit that can be kept."""

AUDIT_DETAIL_CHARS_MAX: Final = 1_024
"""Beyond so many characters what is said in a record is cut."""

AUDIT_RESTORED_MAX: Final = 1_000
"""Most leases that a restore has ended that the audit is told of one by one."""

AUDIT_NOTES_MAX: Final = 100
"""Most notes of one entry."""

AUDIT_REPEAT_MS: Final = 60_000
"""For how long a refusal that comes again is counted before that is told."""

AUDIT_REPEATS_MAX: Final = 1_000
"""Most different refusals that are counted at once."""

AUDIT_COMMITS_MAX: Final = 100
"""Most refused commits of one credential that are told apart by key and token at once; what is more than that
is counted together."""

AUDIT_SWEEP_MAX: Final = 50
"""Most records of the audit that one command tells or forgets because of their time."""
