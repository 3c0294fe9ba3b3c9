"""By which names a node may be asked that listens on loopback and asks nobody who he is.

Whoever reaches such a node has all rights, and a browser on the machine reaches it. A page of somebody else's
can't read its answers or send it JSON, because those are another origin's; but if the page's own name is made
to stand for 127.0.0.1 after it was loaded (DNS rebinding), the node is of the page's origin. The request then
still has that name in its Host header, which no page can change. So a node that listens so refuses names that
somebody could have registered. Numbers can't be made to stand for anything, and neither can a name without a
dot be registered: both are let in, as are the names of the configuration.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from tenure_cluster.service.errors import Problem

FOREIGN: Final = Problem(
    "forbidden",
    "This node listens on loopback without credentials, and so it is not asked by a name of the Internet: "
    "use its address, or put the name into http.hosts",
)

_MEMOIZED_MAX: Final = 64


class Hosts:
    """Decides; one for each front."""

    def __init__(self, names: Iterable[str]) -> None:
        """``names``: names that are let in, or URLs of them."""
        found = (urlsplit(name).hostname if "://" in name else name.lower() for name in names)
        self._names = frozenset(name for name in found if name)
        self.allows = lru_cache(_MEMOIZED_MAX)(self._allows)

    def _allows(self, host: str) -> bool:
        """Whether a request with this Host header is answered."""
        name = _name(host)
        return name is not None and (
            "." not in name or name.endswith(".localhost") or name in self._names or _is_address(name)
        )


def _name(host: str) -> str | None:
    """The header without its port, None if it has no form."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and _is_address(name) and port[:1] in ("", ":") else None
    name, _, port = host.partition(":")
    # Before the end of a name a dot may stand, which changes nothing of what it means.
    return None if ":" in port else name.removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
