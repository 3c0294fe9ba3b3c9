"""Saving a backup: the file is written beside its name, checked by its own end, synced, and only then named.

So under the name there is always a whole backup: the one from before, or the new one. What a node sends is
cut off when the node fails on the way; then another one is asked, from the beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tenure._calls import Calls
from tenure._http import NoAnswer, NotSent
from tenure._options import Opened, Streams
from tenure._problems import read_problem, refusal
from tenure.answers import SavedBackup
from tenure.errors import ClusterUnavailable, InvalidRequest

TARGET: Final = "/v1/cluster/backup"

SILENCE_MAX_S: Final = 330.0
"""A node first has a snapshot made, which may take minutes; it says nothing meanwhile."""

END: Final = b"\nTENURE BACKUP END\n"
"""What a whole file ends with, before the SHA-256 of everything that comes before this."""

DIGEST_BYTES: Final = hashlib.sha256().digest_size

TRAILER_BYTES: Final = len(END) + DIGEST_BYTES


class _Cut(Exception):
    """What came is not a whole backup."""


class _NotWritten(Exception):
    """The file can't be written; ``error`` says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


async def save(calls: Calls, path: Path) -> SavedBackup:
    """Save a backup as ``path``. When this raises, ``path`` is what it was before.

    Raises the cluster's refusal, ClusterUnavailable if no node could send a whole one, and OSError if it
    can't be written.
    """
    http = calls.http
    if not isinstance(http, Streams):
        raise InvalidRequest(code="unsupported", detail="this transport has no streams")
    tried: set[str] = set()
    why = "no node was asked"
    while (url := calls.endpoints.choose(calls.clock(), tried)) is not None:
        tried.add(url)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            async with http.stream(url + TARGET, silence_max_s=SILENCE_MAX_S) as opened:
                if opened.status != 200:
                    problem = read_problem(opened.status, opened.headers, await opened.read())
                    if problem.kind == "answered":
                        raise refusal("backup", problem)
                    why = f"{url}: {problem.detail}"
                    continue
                saved = await _take(opened, unfinished, path)
        except (NotSent, NoAnswer, _Cut) as error:
            calls.endpoints.failed(url, calls.clock())
            why = f"{url}: {error}"
        except _NotWritten as failed:
            raise failed.error from None
        else:
            return saved
        finally:
            unfinished.unlink(missing_ok=True)
    raise ClusterUnavailable(detail=f"no node could send a whole backup; {why}")


async def _take(opened: Opened, unfinished: Path, path: Path) -> SavedBackup:
    """Write what comes, and give it its name. Raises _Cut or _NotWritten."""
    sha, held, size = hashlib.sha256(), b"", 0
    with _writing():
        file = os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    with file:
        async for data in opened.chunks():
            with _writing():
                file.write(data)
            size += len(data)
            held += data
            sha.update(held[:-TRAILER_BYTES])
            held = held[-TRAILER_BYTES:]
        if held != END + sha.digest():
            raise _Cut("what it sent was cut off or damaged on its way")
        with _writing():
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
    with _writing():
        os.replace(unfinished, path)
        await asyncio.to_thread(_sync_directory, path.parent)
    return SavedBackup(file=str(path), bytes=size, sha256=sha.hexdigest())


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Tells apart what this machine's disk raises and what the connection does."""
    try:
        yield
    except OSError as error:
        raise _NotWritten(error) from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
