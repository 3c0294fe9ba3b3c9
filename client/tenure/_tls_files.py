"""Certificate files that are read again when they change: a program outlives its cluster's authority.

Connections that are there stay as they are; new ones are made with what the files hold now. Files that can't
be used, because they are just being replaced, change nothing.
"""

from __future__ import annotations

import os
import ssl
from typing import Final

from tenure._clock import Clock, now_s
from tenure.errors import InvalidRequest

LOOK_S: Final = 1.0
"""How often it is looked whether they have changed."""

Path = str | os.PathLike[str]
_Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsFiles:
    """Gives the context for a connection that is made now."""

    def __init__(
        self, ca_file: Path | None, cert_file: Path | None, key_file: Path | None, clock: Clock = now_s
    ) -> None:
        """Raises InvalidRequest that names the file."""
        self._files = ca_file, cert_file, key_file
        self._clock = clock
        self._stamp = self._look()
        self._looked_s = clock()
        self._context = _load(*self._files)

    def get(self) -> ssl.SSLContext:
        """The same one until the files have changed."""
        now = self._clock()
        if now - self._looked_s >= LOOK_S:
            self._looked_s = now
            stamp = self._look()
            if stamp != self._stamp:
                try:
                    self._context = _load(*self._files)
                except InvalidRequest:
                    return self._context
                if self._look() == stamp:  # else they changed while they were read
                    self._stamp = stamp
        return self._context

    def _look(self) -> _Stamp:
        return tuple(_stamp_of(path) for path in self._files if path is not None)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load(ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> ssl.SSLContext:
    try:
        tls = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidRequest(detail=f"the certificates in {ca_file} can't be used: {error}") from error
    if cert_file is not None:
        try:
            tls.load_cert_chain(cert_file, key_file)
        except OSError as error:
            key = "" if key_file is None else f" with the key in {key_file}"
            raise InvalidRequest(
                detail=f"the certificate in {cert_file}{key} can't be used: {error}"
            ) from error
    return tls
