"""By which rules commands are applied, when nodes of two versions apply the same log.

What a command does to the state is the same on every node, or their states part. So a version that changes
it, be it to mend a fault, goes on applying commands as before until AdoptRules says so in the log: from that
entry on every node applies them by the new rules. It is proposed once every member knows it
(service/rules.py), and a node that does not know it can't decode it, and stops.

Rules are numbered on the line of the commands' tags, so what a node says that it knows (service/versions.py)
says this too: rules that come with no command have a number that no command has. A state begins with the
rules of 0.1.0, whose number is 0; a node that starts anew begins there too, and the log tells it when they
changed.

Where a change makes a difference it is asked for: `table.rules >= CHANGE`, with the constants below. Once no
supported version is without it, it is asked for no more.
"""

from typing import Final, Literal, TypeAlias

import msgspec

Rules: TypeAlias = Literal[36]
"""The rules that this version knows, besides those of 0.1.0."""

PRESENT: Final[Rules] = 36


SMALLER_POOLS: Final = 36
"""A wait at a pool that was made smaller is hopeless when too few of its holders can go on, not only when
none can; one for the end of a grace period never is."""
EXPIRED_BEFORE_CLOSED: Final = 36
"""A lease of a closed session that was over before is told as expired, and keeps its grace period."""
REFUSALS_TOLD_APART: Final = 36
"""The audit tells refused commits of one credential apart up to a number."""
EMPTY_BREAKS_COUNTED: Final = 36
"""The audit counts breaks of a key that nobody holds, as it counts refusals."""


class AdoptRules(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=36):
    """Apply what comes after this by other rules. Older ones than those in force change nothing."""

    rules: Rules
    wall_ms: int
