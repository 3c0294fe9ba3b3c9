"""Where a credential comes from: a string, a file that is read again when it changes, or a function."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tenure.errors import InvalidRequest

Credential: TypeAlias = str | os.PathLike[str] | Callable[[], str] | None
"""A string is the credential itself; a path names a file that holds it."""


class CredentialSource:
    """Gives the credential for each attempt."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential
        self._read = ""
        self._stamp: tuple[int, int, int] | None = None

    def get(self) -> str | None:
        """The credential as it is now. Raises InvalidRequest if there is none where there should be one."""
        credential = self._credential
        if credential is None:
            return None
        if callable(credential):
            credential = credential()
        elif not isinstance(credential, str):
            credential = self._of_file(Path(credential))
        credential = credential.strip()
        if not credential or not credential.isascii() or not credential.isprintable():
            raise InvalidRequest(detail="the credential is empty or has characters that no credential has")
        return credential

    def _of_file(self, path: Path) -> str:
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp != self._stamp:
                self._read = path.read_text(encoding="utf-8")
                self._stamp = stamp
        except (OSError, UnicodeDecodeError) as error:
            # A file that is being replaced may be gone for a moment: what was read last still counts.
            if self._stamp is None:
                raise InvalidRequest(detail=f"the credential can't be read: {error}") from error
        return self._read
