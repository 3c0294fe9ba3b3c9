"""Certificates and keys in files: what can be wrong with them, said in one line with the setting's name.

What peers and clients will object to is found by doing what they do: a handshake of the node with itself, in
memory, with the very contexts that it is going to use.
"""

import datetime as dt
import ipaddress
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

FILE_BYTES_MAX: Final = 4 << 20
"""Longest file that is read: a bundle of all public authorities is a tenth of it."""
FLIGHTS_MAX: Final = 10
"""Turns in which a handshake of two is through; three are enough."""


class TlsError(Exception):
    """A file of [tls] can't be used; the message is one line that names the setting, the fault and the
    remedy."""


def read(setting: str, path: str) -> bytes:
    """The file's content. Raises TlsError."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise TlsError(f"{setting} = {path!r}: {reason}") from None
    if len(content) > FILE_BYTES_MAX:
        raise TlsError(f"{setting} = {path!r} is longer than {FILE_BYTES_MAX} bytes: it is no PEM file")
    return content


def certificates(setting: str, path: str) -> list[x509.Certificate]:
    """All certificates in a PEM file, at least one. Raises TlsError."""
    content = read(setting, path)
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        why = "it holds none in PEM" if b"BEGIN CERTIFICATE" not in content else str(error)
        raise TlsError(f"{setting} = {path!r} holds no usable certificate: {why}") from None


def check_key(certificate: x509.Certificate, cert_path: str, key_path: str) -> None:
    """The key is there, not encrypted, and the certificate's. Raises TlsError."""
    content = read("tls.key", key_path)
    where = f"tls.key = {key_path!r}"
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError:
        raise TlsError(f"{where} is encrypted, and there is nobody to ask: store it in the clear") from None
    except (ValueError, UnsupportedAlgorithm):
        raise TlsError(f"{where} holds no private key in PEM") from None
    try:
        fits = _bytes(key.public_key()) == _bytes(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TlsError(f"tls.cert = {cert_path!r} has a key that can't be used: {error}") from None
    if not fits:
        raise TlsError(f"{where} does not fit tls.cert = {cert_path!r}: it is the key of another certificate")


def _bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def check_validity(setting: str, path: str, certificate: x509.Certificate, now: dt.datetime) -> None:
    """Raises TlsError for a certificate that is not valid at `now`."""
    before, after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > after:
        raise TlsError(f"{setting} = {path!r} expired at {_shown(after)}: renew it (tenured tls renew)")
    if now < before:
        raise TlsError(
            f"{setting} = {path!r} is not valid before {_shown(before)}, and this machine's clock says "
            f"{_shown(now)}: set the clock, or wait"
        )


def _shown(at: dt.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def names(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    """DNS names and addresses that the certificate is for."""
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return [], []
    addresses = alternative.get_values_for_type(x509.IPAddress)
    return alternative.get_values_for_type(x509.DNSName), [str(address) for address in addresses]


def check_names_node(path: str, certificate: x509.Certificate, node_id: str) -> None:
    """The certificate names this node. Raises TlsError."""
    dns, addresses = names(certificate)
    if node_id not in dns:
        said = ", ".join([*dns, *addresses]) or "nobody"
        raise TlsError(
            f"tls.cert = {path!r} names {said}, not this node: its subject alternative names need the "
            f"DNS name {node_id!r}"
        )


def names_host(certificate: x509.Certificate, host: str) -> bool:
    """Whether clients that dial `host` will take the certificate; a name may have a wildcard."""
    dns, addresses = names(certificate)
    try:
        return str(ipaddress.ip_address(host)) in addresses
    except ValueError:
        wanted = host.lower()
        _, _, parent = wanted.partition(".")
        return any(name.lower() in (wanted, f"*.{parent}") for name in dns)


def check_handshake(accepting: ssl.SSLContext, dialling: ssl.SSLContext) -> None:
    """Let both contexts, which are of one node, meet each other. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = accepting.wrap_bio(to_server, to_client, server_side=True)
    client = dialling.wrap_bio(to_client, to_server)
    waiting: Sequence[ssl.SSLObject] = (client, server)
    for _ in range(FLIGHTS_MAX):
        # With TLS 1.3 the client is done before the server has judged its certificate, so both must be.
        waiting = [end for end in waiting if not _is_done(end)]
        if not waiting:
            return
    raise ssl.SSLError("the handshake does not end")


def _is_done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def is_readable_by_others(path: str) -> bool:
    """Whether any user of the machine may read the file."""
    try:
        return bool(Path(path).stat().st_mode & 0o004)
    except OSError:
        return False
