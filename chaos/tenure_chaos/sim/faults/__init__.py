"""Faults, a class for each kind. ``KINDS`` has them by the name that options and reports use."""

from typing import Final

from tenure_chaos.sim.faults import crashing, disks, links, membership, others, processes, replacing
from tenure_chaos.sim.faults.kind import Kind, Scene

__all__ = ["KINDS", "Kind", "Scene"]

KINDS: Final[dict[str, type[Kind]]] = {
    kind.name: kind
    for kind in (
        processes.KillOne,
        processes.KillLeader,
        processes.KillMajority,
        processes.KillAll,
        processes.PowerLossOne,
        processes.PowerLossLeader,
        processes.PowerLossMajority,
        processes.PowerLossAll,
        processes.RollingRestart,
        processes.PauseNode,
        processes.PauseClient,
        crashing.CrashInSync,
        crashing.CrashAtPoint,
        crashing.CrashAtOperation,
        links.IsolateLeader,
        links.Halves,
        links.RingOfMajorities,
        links.Bridge,
        links.OneWay,
        links.CutClients,
        links.SlowLink,
        links.Jitter,
        links.Slicing,
        links.ResetLinks,
        links.HalfOpen,
        links.HalfMessage,
        links.RepeatedTail,
        disks.SlowDisk,
        disks.SyncError,
        disks.DiskFull,
        disks.BitRot,
        others.WallStep,
        others.RateChange,
        others.LostReplies,
        others.DuplicateRequests,
        others.ForcedCompaction,
        others.LeaderTransfer,
        membership.ChangeMembers,
        replacing.ReplaceAllMembers,
    )
}
