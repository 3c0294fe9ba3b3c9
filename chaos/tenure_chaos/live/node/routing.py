"""Where a node's process dials the others: through the proxies, whatever the cluster's log says of addresses.

An address that the log says of a member is one for all who dial it. Behind proxies each of them has to dial
another one, or a line between two nodes could not be cut alone.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenure_cluster.addresses import split_address
from tenure_cluster.raft.transport import Transport

Peers = dict[str, tuple[str, int]]


def routed(peers: Peers, path: Path) -> Peers:
    """The same peers, at the addresses that the file has for them."""
    try:
        routes: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return peers
    return {name: split_address(routes[name]) if name in routes else where for name, where in peers.items()}


def dial_by(path: Path) -> None:
    """In this process: look into the file whenever whom to dial changes."""
    set_peers: Callable[[Any, Peers], None] = Transport._set_peers

    def reroute(transport: Transport, peers: Peers) -> None:
        set_peers(transport, routed(peers, path))

    setattr(Transport, "_set_peers", reroute)  # noqa: B010
