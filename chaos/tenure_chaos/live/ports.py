"""Ports of this machine that are free."""

import random
import socket
from pathlib import Path
from typing import Final

LOWEST: Final = 10_000
RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports that are free now and outside the range of outgoing connections, or any client on the machine
    could take one while what listens there is down. Raises OSError.
    """
    try:
        below = int(RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        below = 32_768
    found: list[int] = []
    for port in random.sample(range(LOWEST, max(below, LOWEST + 2_000)), 2_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"there are no {count} free ports")
