"""The TLS of a node: contexts made of the files of [tls], and made anew when the files change.

Every handshake takes the contexts of its moment, so a change concerns new connections only, and what is
connected stays so. Files that can't be used change nothing: the node goes on with what it has, and says so.
"""

import asyncio
import datetime as dt
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from tenure_cluster.auth import certificates as pem
from tenure_cluster.auth.certificates import TlsError

EXPIRY_WARNING: Final = dt.timedelta(days=14)
"""A certificate that ends sooner than this is warned about, or in the last third of a shorter life."""
WARN_AGAIN: Final = dt.timedelta(days=1)

_log = logging.getLogger("tenure.tls")

Signature = tuple[tuple[int, int, int] | None, ...]
"""What tells whether files have changed: inode, size and time of each."""


@dataclass(frozen=True)
class Files:
    """What [tls] says, and whom the certificate has to be of."""

    cert: str
    key: str
    ca: str
    client_ca: str
    """Empty: clients show no certificate."""
    node_id: str
    host: str
    """Where clients look for this node."""


@dataclass(frozen=True)
class Contexts:
    """All that was made of one reading of the files."""

    peers_accepting: ssl.SSLContext
    peers_dialling: ssl.SSLContext
    clients: ssl.SSLContext
    certificate: x509.Certificate
    signature: Signature

    @property
    def expires_at(self) -> dt.datetime:
        return self.certificate.not_valid_after_utc


class NodeTls:
    """The contexts of one node, always of the newest files that were good. It is what raft.peer_tls asks."""

    def __init__(self, files: Files, *, reload_ms: int, now: Callable[[], dt.datetime]) -> None:
        """Reads the files. Raises TlsError."""
        self._files = files
        self._reload_ms = reload_ms
        self._now = now
        self._wanted = asyncio.Event()
        self._warned_at: dt.datetime | None = None
        self._contexts = load(files, now())
        self._tried = self._seen = self._contexts.signature
        self._warn_of_files()

    def accepting(self) -> ssl.SSLContext:
        """For a peer that has dialled this node."""
        return self._contexts.peers_accepting

    def dialling(self) -> ssl.SSLContext:
        """For a peer that this node dials."""
        return self._contexts.peers_dialling

    def clients(self) -> ssl.SSLContext:
        """For a client that has connected."""
        return self._contexts.clients

    @property
    def expires_at(self) -> dt.datetime:
        """When what is in use ends."""
        return self._contexts.expires_at

    def reload_soon(self) -> None:
        """Read the files now, whether they have changed or not."""
        self._wanted.set()

    async def watch(self) -> None:
        """Look at the files again and again, for as long as the node runs."""
        period_s = self._reload_ms / 1000
        while True:
            try:
                async with asyncio.timeout(period_s):
                    await self._wanted.wait()
                asked = True
            except TimeoutError:
                asked = False
            self._wanted.clear()
            if asked or self._is_worth_a_try():
                await self._reload(asked)
            self._warn_of_expiry()

    def _is_worth_a_try(self) -> bool:
        """Whether there are other files than are in use, and they are not just being written. What was
        refused is tried again: a certificate that was not valid yet may be by now."""
        before, self._seen = self._seen, signature(self._files)
        return self._seen == before and self._seen != self._contexts.signature

    async def _reload(self, asked: bool) -> None:
        before, self._tried = self._tried, signature(self._files)
        try:
            self._contexts = await asyncio.to_thread(load, self._files, self._now())
        except Exception as error:
            if asked or self._tried != before:
                _log.error("%s; this node goes on with the certificates that it has", error)
            return
        self._warned_at = None
        _log.info(
            "certificates read again: new connections use what is in %s, valid until %s",
            self._files.cert,
            f"{self._contexts.expires_at:%Y-%m-%dT%H:%M:%SZ}",
        )
        self._warn_of_files()

    def _warn_of_files(self) -> None:
        if pem.is_readable_by_others(self._files.key):
            _log.warning("tls.key = %r can be read by every user of this machine: chmod 600", self._files.key)
        if not pem.names_host(self._contexts.certificate, self._files.host):
            _log.warning(
                "tls.cert = %r names %s, not %r, where clients look for this node (http.advertise)",
                self._files.cert,
                ", ".join(name for kind in pem.names(self._contexts.certificate) for name in kind),
                self._files.host,
            )
        self._warn_of_expiry()

    def _warn_of_expiry(self) -> None:
        now, contexts = self._now(), self._contexts
        early = min(EXPIRY_WARNING, (contexts.expires_at - contexts.certificate.not_valid_before_utc) / 3)
        if now < contexts.expires_at - early or (self._warned_at and now < self._warned_at + WARN_AGAIN):
            return
        self._warned_at = now
        _log.warning(
            "tls.cert = %r ends at %s, and then nobody connects to this node any more: renew it",
            self._files.cert,
            f"{contexts.expires_at:%Y-%m-%dT%H:%M:%SZ}",
        )


def signature(files: Files) -> Signature:
    """Differs as soon as any of the files does."""
    return tuple(_signature(path) for path in (files.cert, files.key, files.ca, files.client_ca) if path)


def _signature(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def load(files: Files, now: dt.datetime) -> Contexts:
    """Read the files, check all that can be checked without others, make the contexts. Raises TlsError."""
    began = signature(files)
    own, *_ = pem.certificates("tls.cert", files.cert)
    pem.check_key(own, files.cert, files.key)
    pem.check_validity("tls.cert", files.cert, own, now)
    pem.check_names_node(files.cert, own, files.node_id)
    pem.certificates("tls.ca", files.ca)
    contexts = Contexts(
        peers_accepting=_context(files, ssl.PROTOCOL_TLS_SERVER, "tls.ca", files.ca),
        peers_dialling=_context(files, ssl.PROTOCOL_TLS_CLIENT, "tls.ca", files.ca),
        clients=_clients(files),
        certificate=own,
        signature=began,
    )
    try:
        pem.check_handshake(contexts.peers_accepting, contexts.peers_dialling)
    except ssl.SSLCertVerificationError as error:
        raise TlsError(
            f"tls.cert = {files.cert!r} is not accepted by tls.ca = {files.ca!r}: {error.verify_message}"
        ) from None
    except ssl.SSLError as error:
        raise TlsError(f"tls.cert = {files.cert!r} can't be used: {error.reason or error}") from None
    if signature(files) != began:
        raise TlsError(f"tls.cert = {files.cert!r} or a file beside it changed while it was read")
    return contexts


def _context(files: Files, protocol: int, setting: str, ca: str) -> ssl.SSLContext:
    """Between peers: both ends are ours, so the newest protocol, and a certificate from everybody."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # nobody resumes a session here
    _fill(context, files, setting, ca)
    return context


def _clients(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if files.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        pem.certificates("tls.client_ca", files.client_ca)
    _fill(context, files, "tls.client_ca", files.client_ca)
    return context


def _fill(context: ssl.SSLContext, files: Files, setting: str, ca: str) -> None:
    try:
        context.load_cert_chain(files.cert, files.key)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"tls.cert = {files.cert!r} can't be used: {_reason(error)}") from None
    try:
        if ca:
            context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{setting} = {ca!r} can't be used: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    said = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return (said or str(error)).replace("_", " ").lower()
