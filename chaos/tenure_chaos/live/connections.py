"""Which ports of this machine somebody is connected to, as far as the kernel says so."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED: Final = "01"
LISTENING: Final = "0A"


def unused(addresses: Iterable[str]) -> bool:
    """Somebody listens on each of these ports here, and nobody is connected to any. False if that can't be
    told: the listener may be on another machine, or the kernel another one."""
    ports = {int(address.rpartition(":")[2]) for address in addresses}
    listening: set[int] = set()
    for table in TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            port = int(local.rpartition(":")[2], 16)
            if port in ports and state == ESTABLISHED:
                return False
            if port in ports and state == LISTENING:
                listening.add(port)
    return bool(ports) and listening == ports
