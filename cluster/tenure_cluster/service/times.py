"""Times for people."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=4096)
def _whole_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=4096)
def rfc3339(wall_ms: int) -> str:
    """Unix milliseconds as an RFC 3339 time in UTC, with milliseconds."""
    second, ms = divmod(wall_ms, 1000)
    return f"{_whole_second(second)}.{ms:03d}Z"
