"""Mutants of snapshots: what a replica that restarts or comes late does not learn."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_DUMP = "tenure_cluster.lease.snapshot:dump"
_ROWS = "rows = {section: table.rows_of(section, freeze=alone) for section in _sections(version)}"


def _without(*sections: str) -> Edit:
    lost = "\n    ".join([_ROWS, *(f"rows[{section!r}] = []" for section in sections)])
    return Edit(_DUMP, _ROWS, lost)


DEDUPE_NOT_IN_SNAPSHOT = Mutant(
    "dedupe memory left out of the snapshot",
    "what became of a request is not known any more to a replica that has loaded a snapshot",
    (_without("ended", "abandoned", "operations"),),
    profiles.MANY_SNAPSHOTS,
)

QUEUE_NOT_IN_SNAPSHOT = Mutant(
    "queue left out of the snapshot",
    "a replica that has loaded a snapshot knows of no waiters",
    (
        _without("waiters"),
        Edit(
            _DUMP,
            "counts = [len(of_section) for of_section in rows.values()]",
            "waiting = {(w.tenant, w.session_id) for w in table.waiters.values() if w.private}\n"
            "    rows['sessions'] = [\n"
            "        s for s in rows['sessions'] if (s.tenant, s.session_id) not in waiting\n"
            "    ]\n"
            "    counts = [len(of_section) for of_section in rows.values()]",
        ),
    ),
    profiles.MANY_SNAPSHOTS,
)

GUARDS_NOT_IN_SNAPSHOT = Mutant(
    "guards left out of the snapshot",
    "a replica that has loaded a snapshot knows no floors",
    (_without("keys"),),
    profiles.MANY_SNAPSHOTS,
)

TOKENS_NOT_IN_SNAPSHOT = Mutant(
    "token counter behind in the snapshot",
    "a replica that has loaded a snapshot mints the last token again",
    (
        Edit(
            _DUMP,
            _ROWS,
            f"from msgspec.structs import replace\n    {_ROWS}\n"
            "    rows['tenants'] = [\n"
            "        replace(row, last_token=max(0, row.last_token - 1)) for row in rows['tenants']\n"
            "    ]",
        ),
    ),
    profiles.MANY_SNAPSHOTS,
)

MUTANTS = (
    DEDUPE_NOT_IN_SNAPSHOT,
    QUEUE_NOT_IN_SNAPSHOT,
    GUARDS_NOT_IN_SNAPSHOT,
    TOKENS_NOT_IN_SNAPSHOT,
)
