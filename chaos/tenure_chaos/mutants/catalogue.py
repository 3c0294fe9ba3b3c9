"""All mutants."""

from typing import Final

from tenure_chaos.mutants import (
    clients,
    consensus,
    disks,
    guards,
    leases,
    members,
    memories,
    modes,
    pools,
    queues,
    service,
    time,
    watches,
)
from tenure_chaos.mutants.mutant import Mutant

LISTED: Final = (
    leases.TOKEN_RESET_ON_RELEASE,
    leases.RENEW_REVIVES,
    time.WALL_CLOCK_IN_APPLY,
    disks.SYNC_SKIPPED,
    disks.VOTE_NOT_PERSISTED,
    queues.WAITER_NOT_CHECKED,
    leases.RELEASE_BY_KEY,
    memories.DEDUPE_NOT_IN_SNAPSHOT,
    service.READ_WITHOUT_BARRIER,
    clients.DEADLINE_FROM_THE_RECEIPT,
    guards.FLOOR_AT_FIRST_WRITE,
    time.TIME_FROM_ZERO,
    disks.SENT_BEFORE_THE_SYNC,
    leases.REAPER_DOES_NOT_CHECK_AGAIN,
)
"""Those that the harness was asked to catch from the beginning."""

MUTANTS: Final[tuple[Mutant, ...]] = LISTED + tuple(
    mutant
    for module in (
        *(leases, modes, queues, guards, memories, time, disks, consensus, members, service, clients),
        *(watches, pools),
    )
    for mutant in module.MUTANTS
    if mutant not in LISTED
)

BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}
