"""The faults of the live bench, a file for each subject: inject, heal, available."""

from typing import Final

from tenure_chaos.live.faults.bandwidth import Bandwidth
from tenure_chaos.live.faults.bit_rot import BitRot
from tenure_chaos.live.faults.bridge import Bridge, Ring
from tenure_chaos.live.faults.clock import ClockRate, WallStep
from tenure_chaos.live.faults.compaction import ForcedCompaction
from tenure_chaos.live.faults.crash_at_point import CrashAtPoint
from tenure_chaos.live.faults.cut_clients import CutClients
from tenure_chaos.live.faults.disk_full import DiskFull
from tenure_chaos.live.faults.half_message import HalfMessage
from tenure_chaos.live.faults.halves import Halves
from tenure_chaos.live.faults.isolate import IsolateLeader, IsolateNode
from tenure_chaos.live.faults.jitter import Jitter
from tenure_chaos.live.faults.kill import KillAll, KillLeader, KillMajority, KillOne
from tenure_chaos.live.faults.kind import Fault
from tenure_chaos.live.faults.latency import Latency
from tenure_chaos.live.faults.lost_replies import LostReplies
from tenure_chaos.live.faults.members import ChangeMembers
from tenure_chaos.live.faults.one_way import OneWay
from tenure_chaos.live.faults.pause_client import PauseClient
from tenure_chaos.live.faults.pause_node import PauseLeader, PauseNode
from tenure_chaos.live.faults.reset import ResetLinks
from tenure_chaos.live.faults.rolling_restart import RollingRestart
from tenure_chaos.live.faults.slicing import Slicing
from tenure_chaos.live.faults.slow_disk import SlowDisk
from tenure_chaos.live.faults.sync_error import SyncError
from tenure_chaos.live.faults.torn_tail import TornTail
from tenure_chaos.live.faults.transfer import TransferLeader

KINDS: Final[tuple[type[Fault], ...]] = (
    KillOne,
    KillLeader,
    KillMajority,
    KillAll,
    RollingRestart,
    PauseNode,
    PauseLeader,
    PauseClient,
    TornTail,
    CrashAtPoint,
    IsolateLeader,
    IsolateNode,
    Halves,
    Bridge,
    Ring,
    OneWay,
    CutClients,
    Latency,
    Jitter,
    Bandwidth,
    Slicing,
    ResetLinks,
    HalfMessage,
    LostReplies,
    SlowDisk,
    SyncError,
    DiskFull,
    BitRot,
    ClockRate,
    WallStep,
    ForcedCompaction,
    TransferLeader,
    ChangeMembers,
)

BY_NAME: Final = {kind.name: kind for kind in KINDS}
