"""How a client reaches its cluster: everything that ``connect`` takes, checked once."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from tenure._clock import Clock, now_s
from tenure._credentials import Credential
from tenure._endpoints import parse_endpoints
from tenure._protocol import Attempt
from tenure._terms import milliseconds
from tenure._tls_files import TlsFiles
from tenure.errors import InvalidRequest

TIMEOUT_S: Final = 10.0
"""How long a call is tried by default. Well below the minute for which the cluster remembers requests."""
ATTEMPT_TIMEOUT_S: Final = 3.0
"""How long one node may take to answer before another is asked, beyond the time it was asked to wait."""

Path = str | os.PathLike[str]


class Transport(Protocol):
    """Sends attempts; Http (_http.py) is the one that there is, and a test kit has another."""

    async def send(self, attempt: Attempt) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. Raises NotSent or NoAnswer."""

    async def close(self) -> None:
        """Close the connections."""


class Opened(Protocol):
    """An answer that goes on until one of the two sides ends it."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """All of it, for one that ends."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes as they come."""


@runtime_checkable
class Streams(Protocol):
    """A transport that can also open answers that go on."""

    def stream(self, url: str, *, silence_max_s: float) -> AbstractAsyncContextManager[Opened]:
        """A GET. Raises NotSent or NoAnswer, also where the answer breaks off, or is silent for longer than
        that."""


@dataclass(frozen=True, slots=True)
class Options:
    """One cluster, as one client sees it."""

    urls: tuple[str, ...]
    credential: Credential = field(default=None, repr=False)
    tls: ssl.SSLContext | TlsFiles | None = None
    """For https endpoints; None takes the machine's certificate authorities."""
    timeout_s: float = TIMEOUT_S
    attempt_timeout_s: float = ATTEMPT_TIMEOUT_S
    clock: Clock = now_s
    stream: bool = True
    """Whether to ask over streams where there are any."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for so many seconds before a call is tried again."""
    transport: Callable[[], Transport] | None = None
    """Makes what sends the attempts, for each event loop; None takes HTTP."""

    @classmethod
    def of(
        cls,
        endpoints: str | Sequence[str],
        *,
        credential: Credential = None,
        ca_file: Path | None = None,
        cert_file: Path | None = None,
        key_file: Path | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        clock: Clock = now_s,
        stream: bool = True,
    ) -> Options:
        """Raises InvalidRequest that names what is wrong."""
        for name, value in (("timeout", timeout_s), ("attempt_timeout", attempt_timeout_s)):
            if milliseconds(value, name) == 0:
                raise InvalidRequest(detail=f"{name} must be a millisecond at least, not {value!r} s")
        if not (credential is None or isinstance(credential, str | os.PathLike) or callable(credential)):
            kind = type(credential).__name__
            raise InvalidRequest(detail=f"credential is a text, a path or a function, not of the type {kind}")
        if tls is not None and (ca_file or cert_file or key_file):
            raise InvalidRequest(detail="give either tls or the certificate files, not both")
        if key_file is not None and cert_file is None:
            raise InvalidRequest(detail="key_file is of no use without cert_file")
        trust: ssl.SSLContext | TlsFiles | None = tls
        if tls is None and (ca_file is not None or cert_file is not None):
            trust = TlsFiles(ca_file, cert_file, key_file)
        if trust is not None and not any(url.startswith("https:") for url in parse_endpoints(endpoints)):
            raise InvalidRequest(detail="certificates are given, but no endpoint begins with https://")
        urls = tuple(parse_endpoints(endpoints))
        return cls(urls, credential, trust, timeout_s, attempt_timeout_s, clock, stream)
