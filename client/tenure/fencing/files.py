"""Guards for files: atomic replacement, with the fence in a file beside.

    guard = FileGuard("report.json")
    guard.arm(held.token)
    guard.write(held.token, b"…", mode="once")

For processes of one machine, or of several that share a file system whose ``flock`` works across them.

Theory of operation. The fence stands in ``NAME.fence``, which is locked while it is looked at. A write raises
the floor, replaces the file (written beside, synced, renamed, the directory synced), and then remembers the
write. After a crash in between, older tokens are kept out and this token can write again: the same write,
made again, replaces the file by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tenure.fencing._rules import Fence, Mode, checked


class FileGuard:
    """One guarded file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._fence_path = self.path.with_name(self.path.name + ".fence")
        self._lock_path = self.path.with_name(self.path.name + ".lock")

    def arm(self, token: int) -> None:
        """Raise the floor to ``token``: no older token writes the file any more. Raises CommitRefused if a
        newer one has been here."""
        checked(token)
        with self._locked():
            self._remember(self._fence().armed(token))

    def write(self, token: int, data: bytes, *, mode: Mode = "current", seq: int | None = None) -> None:
        """Replace the file if the write is accepted. When it returns, that is durable. Raises CommitRefused:
        nothing was written."""
        number = checked(token, mode, seq)
        with self._locked():
            fence = self._fence()
            after = fence.written(token, mode, number)
            if fence.floor < token:
                self._remember(fence.armed(token))
            _replace(self.path, data)
            self._remember(after)

    def read(self) -> bytes | None:
        """The content, or None if nothing was written yet."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def fence(self) -> Fence:
        """What is remembered."""
        with self._locked():
            return self._fence()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # A file of its own: the fence is replaced, and whoever waits for the old one would lock nothing.
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _fence(self) -> Fence:
        try:
            return Fence(**json.loads(self._fence_path.read_bytes()))
        except FileNotFoundError:
            return Fence()

    def _remember(self, fence: Fence) -> None:
        _replace(self._fence_path, json.dumps(asdict(fence)).encode())


def _replace(path: Path, data: bytes) -> None:
    """Durable and atomic: afterwards the file has the old content or the new."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(temporary, path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
