"""Names of the mitigations that can be left out one by one, so that the worth of each can be measured.

For tests and the simulation only; in operation all are on. The defects (S1, L3 …) stand in DEFECTS.md.
"""

from typing import Final

TERM_TAGS: Final = "term_tags"
"""S3: answers of another term, or to a question of another office, are not counted."""
APPEND_TRIM: Final = "append_trim"
"""S1, S2, S14, S15: only entries that conflict are truncated, and only what matches is answered for."""
FLIGHT_FILTER: Final = "flight_filter"
"""L1: only the first refusal of a flight moves the leader's place."""
SNAPSHOT_GUARD: Final = "snapshot_guard"
"""S7: a snapshot that brings nothing new is never installed."""
VOTE_ONCE: Final = "vote_once"
"""S13: a voter counts once in a term."""
PRE_VOTE: Final = "pre_vote"
"""L3: a node asks before it raises the term."""
STICKY: Final = "sticky"
"""L3: who hears its leader votes for nobody else."""
SILENT_START: Final = "silent_start"
"""L3: who has just started grants nothing, since it does not know whom it had heard."""
HIGHER_TERM: Final = "higher_term"
"""L4: a deposed leader is told so."""
QUICK_STEP_DOWN: Final = "quick_step_down"
"""L4: a leader without a quorum steps down after the maximum election timeout instead of 30 s."""
OWN_SYNC: Final = "own_sync"
"""D1: a leader's own copy counts, and an entry is applied, only when it is durable here."""
SYNC: Final = "sync"
"""D1, D2: nothing that promises anything leaves before it is durable."""

ALL: Final = frozenset(
    {
        TERM_TAGS,
        APPEND_TRIM,
        FLIGHT_FILTER,
        SNAPSHOT_GUARD,
        VOTE_ONCE,
        PRE_VOTE,
        STICKY,
        SILENT_START,
        HIGHER_TERM,
        QUICK_STEP_DOWN,
        OWN_SYNC,
        SYNC,
    }
)
