"""Clusters in every state, and the line that says so: in the terminal and in the browser."""

from typing import Any

import msgspec

from tenure.answers import Nodes


def nodes(**states: str) -> Nodes:
    """Members by name: leader, follower, learner, gone, full, old, or why one doesn't serve. n1 is asked."""
    told = []
    for name, state in states.items():
        about = {
            "role": "leader" if state == "leader" else "follower",
            "term": 7,
            "last_index": 40,
            "applied_index": 40,
            "ready": state in ("leader", "follower", "learner", "full", "old"),
            "reason": state,
            "version": "0.9" if state == "old" else "1.0",
            "disk_free_bytes": 1 if state == "full" else 3 << 30,
            "disk_reserve_bytes": 2,
        }
        node: dict[str, Any] = {"id": name, "http": f"http://{name}", "reached": state != "gone", "lag": 0}
        node["voter"] = state != "learner"
        told.append(node if state == "gone" else {**node, "about": about})
    leader = next((name for name, state in states.items() if state == "leader"), None)
    return msgspec.convert({"node": "n1", "leader": leader, "term": 7, "nodes": told}, Nodes)


THREE = {"n1": "leader", "n2": "follower", "n3": "follower"}

HEALTH = [
    (THREE, "good", "All 3 nodes serve · leader n1, term 7 · 2 leases, 1 waiting · live"),
    ({"n1": "leader"}, "good", "The node serves · leader n1, term 7 · 2 leases, 1 waiting · live"),
    (
        {**THREE, "n4": "learner"},
        "good",
        "All 3 nodes serve · leader n1, term 7 · n4 does not vote yet · 2 leases, 1 waiting · live",
    ),
    ({**THREE, "n2": "gone", "n4": "learner"}, "warn", "n2 is missing, no other may fail · leader n1"),
    ({**THREE, "n2": "gone", "n3": "gone", "n4": "learner"}, "bad", "Only 1 of 3 nodes serve"),
    ({**THREE, "n2": "gone"}, "warn", "n2 is missing, no other may fail · leader n1"),
    ({**THREE, "n3": "no leader is known"}, "warn", "n3 is missing, no other may fail · leader n1"),
    ({**THREE, "n4": "gone", "n5": "follower"}, "warn", "n4 is missing, 1 more may fail · leader n1"),
    ({**THREE, "n4": "gone", "n5": "gone"}, "warn", "n4, n5 are missing, no other may fail · leader n1"),
    ({**THREE, "n2": "gone", "n3": "gone"}, "bad", "Only 1 of 3 nodes serve"),
    ({**THREE, "n1": "no leader is known"}, "bad", "n1 doesn't serve: no leader is known"),
    ({**THREE, "n2": "full"}, "bad", "Disk space is low on n2 · leader n1"),
    ({**THREE, "n3": "old"}, "warn", "Nodes of 2 versions · leader n1"),
]
"""Members, the level, and how the line begins."""
