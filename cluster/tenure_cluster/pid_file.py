"""The file in a data directory that says which process runs its node.

The process holds a lock on the file for as long as it lives, which the kernel drops at its end however it
ends. So a number left behind by a killed node is never taken for a running one, not even when another
process has got it since.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

PID_FILE_NAME: Final = "tenured.pid"


class NodeRuns(Exception):
    """A node runs on the directory already; `pid` is its process, None if it has not said so yet."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        which = f"process {pid}" if pid is not None else "another process"
        remedy = f"stop it first (kill {pid})" if pid is not None else "stop it first"
        super().__init__(
            f"data directory {directory} is in use by {which}: {remedy}, or set another data_dir"
        )
        self.pid = pid


class PidFile:
    """Our own process's entry. It is removed by `release`."""

    def __init__(self, directory: Path) -> None:
        """Raises NodeRuns, or OSError if the file can't be written."""
        self._path = directory / PID_FILE_NAME
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise NodeRuns(directory, _read(self._path)) from error
            raise

    def release(self) -> None:
        """Say that the node runs no longer."""
        # Emptied, not removed: a node that starts just now may hold the file open and lock it after us.
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def running_pid(directory: Path) -> int | None:
    """The process that runs the node of this data directory, or None. Only asks: it leaves no lock and no
    file."""
    path = directory / PID_FILE_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return _read(path)
        raise
    finally:
        os.close(descriptor)
    return None


def _read(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and int(text) > 0 else None
