"""What the links need of TLS, and whom a connection's certificate names.

Both sides of a link show a certificate of the cluster's authority, and both check that it names the node
they have to do with: the dialler that it has reached the node it meant, the acceptor that the Hello's node_id
is the certificate's. A node is named by a DNS name of the certificate that is exactly its id. Names are
compared here and not by OpenSSL, to which n1 and N1 are one, and `*` is everybody.
"""

import asyncio
import ssl
from typing import Protocol


class PeerTls(Protocol):
    """Contexts for the links. Each is asked for once a handshake, so it may be another every time."""

    def accepting(self) -> ssl.SSLContext:
        """Demands a certificate."""

    def dialling(self) -> ssl.SSLContext:
        """Demands a certificate, and checks no host name."""


def named(transport: asyncio.BaseTransport) -> frozenset[str]:
    """The DNS names in the certificate of the other side; none without TLS."""
    certificate = transport.get_extra_info("peercert") or {}
    return frozenset(name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS")


def why_not(node_id: str, transport: asyncio.BaseTransport) -> str | None:
    """Why the other side can't be this node by its certificate; None if it can."""
    names = named(transport)
    if node_id in names:
        return None
    return f"its certificate names {', '.join(sorted(names)) or 'nobody'}, not {node_id!r}"
