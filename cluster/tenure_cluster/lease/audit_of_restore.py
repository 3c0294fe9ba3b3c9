"""What the audit is told of a state that was put back to a backup: that it was, and which leases that ended.

They are records like all others, behind those of the backup. Whoever has an export of the old cluster's audit
that goes further has another chain from here on. They are made before the first entry of the new log, and so
bear the time of the backup.
"""

from collections.abc import Sequence

from tenure_cluster.lease import limits
from tenure_cluster.lease.audit_trail import AuditNote, AuditTrail
from tenure_cluster.lease.types import ClusterTime, Lease

RESTORE = "restore"
RESTORED = "restored"


def record_restore(
    trail: AuditTrail, now_ms: ClusterTime, made_wall_ms: int, leases: Sequence[Lease], token_floor: int
) -> None:
    """Record it, if the backup says that there is an audit. Of more leases than AUDIT_RESTORED_MAX, or than
    half of what the audit keeps, the latest are told."""
    if not trail.on:
        return
    shown = min(len(leases), limits.AUDIT_RESTORED_MAX, trail.present.records_max // 2)
    detail = f"the cluster begins with a backup; the {shown} leases that were granted last follow"
    if token_floor:
        detail += f"; token floor {token_floor}"
    note = AuditNote(RESTORE, "", "", subject=f"{len(leases)} leases ended", detail=detail)
    trail.append(now_ms, made_wall_ms, note, 1)
    for lease in leases[len(leases) - shown :]:
        ended = AuditNote(
            RESTORED,
            lease.tenant,
            "",
            key=lease.key,
            token=lease.token,
            owner=lease.owner,
            subject=lease.mode,
        )
        trail.append(now_ms, made_wall_ms, ended, 1)
    trail.rebuild()
