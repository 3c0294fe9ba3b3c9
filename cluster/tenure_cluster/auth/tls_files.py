"""The directory in which a cluster's certificates are made.

    DIR/ca.pem        the authority, or several while one follows another, the one that issues first
    DIR/ca.key        the key of the one that issues; no node needs it
    DIR/n1/cert.pem   what node n1 is given: its certificate, its key, and the authorities
    DIR/n1/key.pem
    DIR/n1/ca.pem

Keys are for the owner's eyes only. Nothing is overwritten but what is to be renewed, and that by renaming, so
that a reader finds the old or the new file and never half of either.
"""

import contextlib
import datetime as dt
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tenure_cluster.auth.authority import AuthorityError, Issued, check_nodes, issue, make_authority
from tenure_cluster.auth.certificates import names

CA: Final = "ca.pem"
CA_KEY: Final = "ca.key"
CERT: Final = "cert.pem"
KEY: Final = "key.pem"


def init(
    directory: Path,
    nodes: Mapping[str, Sequence[str]],
    *,
    lifetime: dt.timedelta,
    ca_lifetime: dt.timedelta,
    now: dt.datetime,
) -> None:
    """Make an authority, and a certificate for each node. Raises AuthorityError; nothing that is there is
    changed then."""
    targets = [directory / CA, directory / CA_KEY]
    targets += [directory / node_id / name for node_id in nodes for name in (CERT, KEY, CA)]
    for target in targets:
        if target.exists() or target.is_symlink():
            raise AuthorityError(
                f"{target} is there already, and nothing is overwritten: choose another directory, or renew "
                "what is in this one (tenured tls renew)"
            )
    authority = make_authority(ca_lifetime, now)
    issued = {node_id: issue(authority, node_id, hosts, lifetime, now) for node_id, hosts in nodes.items()}
    with _told(directory):
        _make(directory)
        _write(directory / CA, authority.certificate_pem(), 0o644)
        _write(directory / CA_KEY, authority.key_pem(), 0o600)
        for node_id, each in issued.items():
            _make(directory / node_id)
            _give(directory / node_id, each, authority.certificate_pem())


def add(
    directory: Path, nodes: Mapping[str, Sequence[str]], *, lifetime: dt.timedelta, now: dt.datetime
) -> None:
    """Issue certificates for further nodes, by the newest authority. Raises AuthorityError; nothing that is
    there is changed then."""
    authority, bundle = _authority(directory)
    for node_id in nodes:
        if (directory / node_id).exists():
            raise AuthorityError(
                f"{directory / node_id} is there already: renew it (tenured tls renew), or take another name"
            )
    check_nodes({**_known(directory), **nodes})
    issued = {node_id: issue(authority, node_id, hosts, lifetime, now) for node_id, hosts in nodes.items()}
    with _told(directory):
        for node_id, each in issued.items():
            _make(directory / node_id)
            _give(directory / node_id, each, bundle)


def renew(
    directory: Path,
    only: Sequence[str] = (),
    *,
    moved: Mapping[str, Sequence[str]] = {},
    lifetime: dt.timedelta,
    now: dt.datetime,
) -> list[str]:
    """Issue every node (or only some) a new certificate and key, by the newest authority, for the same hosts
    or, if it has `moved`, for others; returns their ids. Raises AuthorityError."""
    authority, bundle = _authority(directory)
    node_ids = [*only, *moved] or _nodes(directory)
    hosts = {node_id: moved.get(node_id) or _hosts(directory, node_id) for node_id in node_ids}
    for node_id in moved:
        _hosts(directory, node_id)  # who is not there can't be renewed
    check_nodes({**_known(directory), **hosts})
    issued = {node_id: issue(authority, node_id, named, lifetime, now) for node_id, named in hosts.items()}
    with _told(directory):
        for node_id, each in issued.items():
            _give(directory / node_id, each, bundle)
    return node_ids


def new_ca(directory: Path, *, ca_lifetime: dt.timedelta, now: dt.datetime) -> None:
    """Make another authority, that issues from now on, and let every bundle have both: the first step of a
    change of authority. Raises AuthorityError."""
    _, bundle = _authority(directory)
    authority = make_authority(ca_lifetime, now)
    with _told(directory):
        _write(directory / CA_KEY, authority.key_pem(), 0o600)
        _spread(directory, authority.certificate_pem() + bundle)


def drop_old_ca(directory: Path) -> int:
    """Let every bundle have only the authority that issues: the last step. Returns how many were dropped.
    Raises AuthorityError while a node's certificate is of another."""
    authority, bundle = _authority(directory)
    for node_id in _nodes(directory):
        certificate = _certificates(directory / node_id / CERT)[0]
        try:
            certificate.verify_directly_issued_by(authority.certificate)
        except (InvalidSignature, TypeError, ValueError):
            raise AuthorityError(
                f"{directory / node_id / CERT} is still of an older authority: renew it first "
                "(tenured tls renew), and give it to its node"
            ) from None
    with _told(directory):
        _spread(directory, authority.certificate_pem())
    return len(x509.load_pem_x509_certificates(bundle)) - 1


def _authority(directory: Path) -> tuple[Issued, bytes]:
    """The authority that issues, and the bundle."""
    certificates = _certificates(directory / CA)
    with _told(directory):
        content = (directory / CA_KEY).read_bytes()
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise AuthorityError(f"{directory / CA_KEY} can't be used: {error}") from None
    for certificate in certificates:
        if isinstance(key, ec.EllipticCurvePrivateKey) and certificate.public_key() == key.public_key():
            bundle = b"".join(each.public_bytes(Encoding.PEM) for each in certificates)
            return Issued(certificate, key), bundle
    raise AuthorityError(f"{directory / CA_KEY} is the key of no certificate in {directory / CA}")


def _certificates(path: Path) -> list[x509.Certificate]:
    with _told(path.parent):
        content = path.read_bytes()
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise AuthorityError(f"{path} can't be used: {error}") from None


def _nodes(directory: Path) -> list[str]:
    found = sorted(path.parent.name for path in directory.glob(f"*/{CERT}"))
    if not found:
        raise AuthorityError(f"{directory} holds no node's certificate")
    return found


def _known(directory: Path) -> dict[str, list[str]]:
    """All nodes that have a certificate, with their hosts."""
    found = sorted(path.parent.name for path in directory.glob(f"*/{CERT}"))
    return {node_id: _hosts(directory, node_id) for node_id in found}


def _hosts(directory: Path, node_id: str) -> list[str]:
    dns, addresses = names(_certificates(directory / node_id / CERT)[0])
    return [name for name in dns if name != node_id] + addresses


def _give(directory: Path, issued: Issued, bundle: bytes) -> None:
    # A reader between the two finds a key that doesn't fit, and takes neither.
    _write(directory / KEY, issued.key_pem(), 0o600)
    _write(directory / CERT, issued.certificate_pem(), 0o644)
    _write(directory / CA, bundle, 0o644)


def _spread(directory: Path, bundle: bytes) -> None:
    _write(directory / CA, bundle, 0o644)
    for node_id in _nodes(directory):
        _write(directory / node_id / CA, bundle, 0o644)


def _make(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write(path: Path, content: bytes, mode: int) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    os.replace(draft, path)


@contextlib.contextmanager
def _told(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AuthorityError(f"{error.filename or directory}: {error.strerror or error}") from None
