"""Every bound of the HTTP front, named once."""

from typing import Final

import msgspec

OPS_PER_BATCH_MAX: Final = 1_000
"""Most operations of one batch."""

QUERY_FIELDS_MAX: Final = 32
"""Most fields of a query; more than any call takes."""

READ_BUFFER_BYTES: Final = 65_536
"""Bytes of a body that are buffered for a handler; twice that, and reading from the connection pauses."""

REQUEST_ID_BYTES_MAX: Final = 128
"""Longest ``X-Request-Id`` that is echoed; a longer one is replaced."""

DETAIL_CHARS_MAX: Final = 500
"""Longest text from a request that a problem repeats."""

STREAM_WAITS_MAX: Final = 1_000
"""Most acquires that wait on one stream."""

STREAM_WATCHES_MAX: Final = 100
"""Most watches of one stream."""

BACKLOG: Final = 1_024
"""Connections that are accepted in one go, before there can be closed any for them."""

SHARE: Final = 0.75
"""Part of the connections that one tenant may have, where callers show credentials."""

STREAM_HELD_MAX: Final = 200
"""Refusals of one stream that are held back beyond which nothing more is read from it."""

SPARE_CONNECTIONS: Final = 32
"""Connections beyond the most that each are served one request, if it is short."""

DROPS_PER_SWEEP_MAX: Final = 200
"""Most overdue connections that are closed in one go, so that closing many never holds the loop."""

SWEEP_PERIOD_S: Final = 1.0
"""How often overdue connections are looked for; a time-out is exceeded by at most this."""


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the front; the first six are those of the configuration's section ``[http]``."""

    body_bytes_max: int = 262_144
    """Largest request body."""
    connections_max: int = 12_000
    """Most open connections. Beyond it a new one takes the place of a stranger's, or of one that is idle; if
    there is neither it is served one request, if that is short: what waits is closed at once. One tenant has
    at most three quarters of them."""
    read_timeout_ms: int = 10_000
    """A request must have arrived whole, head and body, this long after its first byte."""
    idle_timeout_ms: int = 75_000
    """A connection without a request is closed after this long. Above the longest poll."""
    stream_frame_bytes_max: int = 1_048_576
    """Largest frame of a stream."""
    stream_in_flight_max: int = 4_096
    """Operations under way on one stream beyond which nothing more is read from it; waiting acquires are not
    counted."""
    write_timeout_ms: int = 30_000
    """A client must take its answer within this."""
    stop_timeout_ms: int = 10_000
    """How long stopping waits for requests in flight before it cancels them."""
    backlog: int = BACKLOG
    """Connections that the kernel may hold until they are accepted, all in one go."""
