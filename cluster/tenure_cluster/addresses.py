"""Addresses as settings have them."""

import codecs
import errno
import ipaddress
import os
import socket
from typing import Final
from urllib.parse import urlsplit

_IDNA: Final = codecs.lookup("idna")
"""Looked up here: a process that has another user's rights by the time may not find it any more."""

ADDRESS_FAULTS: Final = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES})
"""What listening can fail with, beside a name that stands for nothing."""


def split_address(address: str, *, any_port: bool = False) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as host and port. Port 0 only with ``any_port``, where it is to be chosen by
    who listens. Raises ValueError."""
    host, colon, port_text = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} has an IPv6 host without brackets")
    if not colon or not host or not port_text.isascii() or not port_text.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    port = int(port_text)
    if not (0 if any_port else 1) <= port <= 65_535:
        raise ValueError(f"{address!r} has port {port}, outside 1 to 65535")
    try:
        if b"\0" in _IDNA.encode(host)[0]:
            raise UnicodeError
    except UnicodeError:
        raise ValueError(f"{address!r} has a host that can't be a name") from None
    return host, port


def is_of_address(error: OSError) -> bool:
    """Whether a fault is one of an address to listen on, and not of a file."""
    is_name = isinstance(error, socket.gaierror)
    return is_name or (error.errno in ADDRESS_FAULTS and error.filename is None)


def reason_of(error: OSError) -> str:
    """The system's words for a fault. Those of resolving a name have numbers of their own."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno) if error.errno else str(error)


def is_http_url(url: str) -> bool:
    """Whether it is an http or https URL with a host, and with a port that is one if it has one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name other than localhost is taken as not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
