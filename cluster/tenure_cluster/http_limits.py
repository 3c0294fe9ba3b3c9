"""What the front is given of the configuration: its limits, and the names by which it may be asked."""

import logging
import resource
from typing import Final

from tenure_cluster.addresses import is_loopback, split_address
from tenure_cluster.api.hosts import Hosts
from tenure_cluster.api.limits import BACKLOG, HttpLimits
from tenure_cluster.api.tls_site import HANDSHAKES_MAX
from tenure_cluster.settings import Config

OPEN_FILES_SPARE: Final = 256
"""Descriptors kept for everything that isn't a client's connection."""

_log = logging.getLogger("tenure.node")


def http_limits(config: Config) -> HttpLimits:
    """The front's limits: those of [http], with no more connections than the process may open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    backlog = BACKLOG
    spare = OPEN_FILES_SPARE + backlog + (HANDSHAKES_MAX if config.tls.on else 0)
    wanted = config.http.connections_max + spare
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    connections_max = config.http.connections_max
    if soft != resource.RLIM_INFINITY and soft < wanted:
        backlog = min(BACKLOG, max(16, soft // 16))
        connections_max = max(1, soft - spare + BACKLOG - backlog)
        _log.warning(
            "http.connections_max = %d is lowered to %d: the process may open %d files",
            config.http.connections_max,
            connections_max,
            soft,
        )
    return HttpLimits(
        body_bytes_max=config.http.body_bytes_max,
        connections_max=connections_max,
        backlog=backlog,
        read_timeout_ms=config.http.read_timeout_ms,
        idle_timeout_ms=config.http.idle_timeout_ms,
        stream_frame_bytes_max=config.http.stream_frame_bytes_max,
        stream_in_flight_max=config.http.stream_in_flight_max,
    )


def hosts(config: Config) -> Hosts | None:
    """Who is let in by name; None where it doesn't matter, because callers show something, or others than
    this machine's are let in anyway."""
    if config.auth.required or config.tls.on or not is_loopback(split_address(config.http.listen)[0]):
        return None
    urls = [config.http.advertise, *(member.http for member in config.members.values())]
    return Hosts([*urls, *config.http.hosts.split()])
