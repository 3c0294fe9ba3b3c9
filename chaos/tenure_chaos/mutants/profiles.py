"""Options under which rare things happen often, as they are typed after ``--option``."""

from typing import Final

_BUSY: Final = {"clients": "6", "think_s": "0.1", "fault_gap_s": "1", "safety_s": "60"}

CLOSE_TO_THE_END: Final = {
    **_BUSY,
    "work": "hold,look",
    "keys": "6",
    "ttl_ms": "1000",
    "faults": "slow disk,jitter",
}
"""Leases that are hardly longer than a slow disk takes, so that much happens right before they end."""

SESSIONS_RUN_OUT: Final = {
    **_BUSY,
    "work": "session",
    "keys": "2",
    "ttl_ms": "3000",
    "faults": "slow disk,pause client",
}
"""Sessions that wait for one key and hold another when they end."""

ANSWERS_LOST: Final = {
    **_BUSY,
    "work": "hold,wait",
    "keys": "1",
    "ttl_ms": "3000",
    "faults": "lost replies,slow link,cut clients off,duplicate requests",
    "lose_reply": "0.1",
    "duplicate_request": "0.1",
}
"""Attempts that arrive late or twice, or whose callers do not hear of it."""

LEADERS_LEFT_BEHIND: Final = {
    **_BUSY,
    "work": "look,batch",
    "keys": "1",
    "think_s": "0.02",
    "ttl_ms": "1000",
    "nodes": "5",
    "heartbeat_ms": "300",
    "fault_gap_s": "3",
    "faults": "isolate leader",
}
"""Leaders that do not know yet that there is another, for longer than they usually do."""

OUTCOMES_UNKNOWN: Final = {
    **_BUSY,
    "work": "guard,mishap",
    "keys": "6",
    "fault_gap_s": "0.5",
    "faults": "slow disk,pause node",
}
"""Offices that end while an entry is under way, which the next leader commits."""

NO_LEADER: Final = {
    **_BUSY,
    "faults": "kill majority,split in halves,isolate leader,kill leader",
}
"""Long times in which nobody can be sure of anything."""

MANY_SNAPSHOTS: Final = {
    **_BUSY,
    "work": "batch,hold",
    "think_s": "0.02",
    "snapshot_entries": "10",
    "tail_entries": "2",
    "piece_bytes": "512",
    "segment_bytes": "65536",
    "faults": "crash at a point,kill one,power loss one",
}
"""Much that is compacted and removed, and restarts in the midst of it."""

QUEUES: Final = {
    **_BUSY,
    "work": "wait",
    "keys": "1",
    "ttl_ms": "3000",
    "faults": "pause client,cut clients off",
    "crash_client_s": "15",
}
"""Many who wait for the same, and some of them gone."""

CROWDS: Final = {
    **_BUSY,
    "work": "share,pool",
    "keys": "1",
    "ttl_ms": "3000",
    "faults": "pause client",
}
"""Readers without a pause, writers among them, and a pool that is always full."""

RESIZED_POOLS: Final = {
    **_BUSY,
    "work": "resize",
    "keys": "1",
    "ttl_ms": "3000",
    "faults": "pause client",
}
"""Pools whose number of slots changes while all of them are held."""

SETS: Final = {
    **_BUSY,
    "work": "set,hold,wait",
    "keys": "3",
    "ttl_ms": "3000",
    "faults": "pause client",
}
"""Sets of keys that all others want too."""

HANDS: Final = {
    **_BUSY,
    "work": "pass,rest,progress",
    "keys": "3",
    "ttl_ms": "3000,10000",
    "faults": "pause client,lost replies",
}
"""Leases that change hands, rest, and end without progress."""

COMMITS_REPEATED: Final = {**ANSWERS_LOST, "work": "guard,mishap", "keys": "3"}
"""Writes whose callers do not hear of them."""

BREAKS: Final = {
    **_BUSY,
    "work": "guard,hold,mishap,mishap",
    "keys": "1",
    "ttl_ms": "3000",
    "faults": "pause client",
}
"""Leases that are ended by force while their holders write."""

CLOCKS_APART: Final = {
    **_BUSY,
    "work": "hold,keep",
    "keys": "1",
    "ttl_ms": "10000",
    "faults": "pause client,cut clients off",
    "clock_rate_bound": "0.005",
    "margin_s": "0.002",
}
"""Clocks as far apart as they may be, and nothing kept back for it."""

LEADERS_COME_AND_GO: Final = {
    **_BUSY,
    "fault_gap_s": "0.5",
    "faults": "kill leader,isolate leader,kill one",
}
"""An election every few seconds."""

NODES_LEFT_BEHIND: Final = {
    **_BUSY,
    "snapshot_entries": "10",
    "tail_entries": "2",
    "faults": "kill one,isolate leader,split in halves",
}
"""Nodes that start from a snapshot, or are sent one."""

MEMBERS_COME_AND_GO: Final = {
    **_BUSY,
    "work": "hold,look",
    "spares": "8",
    "fault_gap_s": "0.5",
    "faults": "change members,isolate leader,kill leader,leader transfer,cut one way,slow disk",
}
"""Changes of members that meet one another, and offices that end in the midst of them."""

MEMBERS_WITH_MUCH_TO_LEARN: Final = {
    **_BUSY,
    "work": "batch,hold",
    "think_s": "0.02",
    "spares": "8",
    "snapshot_entries": "50",
    "tail_entries": "10",
    "piece_bytes": "512",
    "link_delay_s": "0.005,0.02",
    "faults": "change members,kill one,slow link",
}
"""New members that have far to go, over slow lines."""

MEMBERS_ALL_REPLACED: Final = {
    **_BUSY,
    "work": "hold,look",
    "spares": "6",
    "faults": "replace all members,kill one",
}
"""Names that have gone, and are asked for again."""
