"""A cluster's own authority, and the certificates that it issues to nodes.

A node's certificate serves both ends of a connection; its alternative names are the node's id and its hosts.
The time is an argument; keys and serial numbers are drawn by `cryptography`.
"""

import datetime as dt
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED: Final = dt.timedelta(hours=1)
"""A certificate is valid from this long before it was made: clocks of other machines may be behind."""

_NODE_ID: Final = re.compile(r"(?=[._-]*[A-Za-z0-9])[A-Za-z0-9._-]{1,64}")
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")


class AuthorityError(Exception):
    """Certificates can't be made as asked; the message is one line that says why."""


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def parse_nodes(texts: Sequence[str]) -> dict[str, list[str]]:
    """Hosts by node id, from `n1=host,host` or `n1=host,n2=host`, in any number. Raises AuthorityError."""
    nodes: dict[str, list[str]] = {}
    for text in texts:
        node_id = ""
        for item in text.split(","):
            before, equals, after = item.strip().partition("=")
            if equals:
                node_id = before
                if node_id in nodes:
                    raise AuthorityError(f"node {node_id} is named twice")
                nodes[node_id] = []
            if not node_id:
                raise AuthorityError(f"{text!r} is not ID=HOST,HOST…")
            nodes[node_id].append(after if equals else before)
    check_nodes(nodes)
    return nodes


def check_nodes(nodes: Mapping[str, Sequence[str]]) -> None:
    """Ids and hosts can be in certificates, and none stands for two nodes. Raises AuthorityError."""
    for node_id, hosts in nodes.items():
        if not _NODE_ID.fullmatch(node_id):
            raise AuthorityError(f"node id {node_id!r} must be 1 to 64 letters, digits, '-', '_' or '.'")
        for host in hosts:
            if not _address(host) and not _HOST.fullmatch(host):
                raise AuthorityError(f"{node_id}: {host!r} is neither a host's name nor an address")
            if host != node_id and host in nodes:
                raise AuthorityError(
                    f"{node_id}: {host!r} is the id of another node, for which {node_id} could pass then: "
                    "name its host by its address"
                )


def make_authority(lifetime: dt.timedelta, now: dt.datetime) -> Issued:
    """An authority that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Authorities that follow each other stand in one bundle, so each has a name of its own.
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"Tenure cluster authority {serial % 16**8:08x}")]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Issued(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Issued,
    node_id: str,
    hosts: Sequence[str],
    lifetime: dt.timedelta,
    now: dt.datetime,
) -> Issued:
    """A certificate for one node, that ends no later than its authority. Raises AuthorityError."""
    ends = authority.certificate.not_valid_after_utc
    if ends <= now:
        raise AuthorityError(f"the authority ended at {ends:%Y-%m-%d}: make another (tenured tls new-ca)")
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName(node_id)]
    for host in hosts:
        address = _address(host)
        if address is not None:
            names.append(x509.IPAddress(address))
        elif host != node_id:
            names.append(x509.DNSName(host))
    signer = authority.key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_id)]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(min(now + lifetime, ends))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
