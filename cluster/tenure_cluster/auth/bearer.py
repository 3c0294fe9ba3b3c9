"""What a client shows: the text of a credential, and how it is made and taken apart.

    tenure.<credential id>.<secret>

The id finds the credential, and is no secret. The secret is 256 random bits; the state knows its SHA-256.
So looking up takes the same time whatever the secret is, and the digests are compared in constant time.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Final

SECRET_BYTES: Final = 32
ID_BYTES: Final = 9

_HEAD: Final = "tenure"
_LONGEST: Final = 256
"""No bearer text of ours is as long; what is longer is not looked at."""


def mint(draw: Callable[[int], bytes]) -> tuple[str, str]:
    """(id, secret) of a new credential; ``draw`` gives so many random bytes. The id does not begin like an
    option of a command line."""
    credential_id = urlsafe_b64encode(draw(ID_BYTES)).decode()
    return credential_id.replace("-", "A", 1) if credential_id[0] == "-" else credential_id, mint_secret(draw)


def mint_secret(draw: Callable[[int], bytes]) -> str:
    """A new secret."""
    return urlsafe_b64encode(draw(SECRET_BYTES)).rstrip(b"=").decode()


def text(credential_id: str, secret: str) -> str:
    """What the client is given, once."""
    return f"{_HEAD}.{credential_id}.{secret}"


def digest(secret: str) -> bytes:
    """What the state keeps of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def parse(shown: str) -> tuple[str, str] | None:
    """(id, secret) of what a client shows, None if it has not the form."""
    head, _, rest = shown.partition(".")
    credential_id, _, secret = rest.partition(".")
    if head != _HEAD or not credential_id or not secret or len(shown) > _LONGEST or not shown.isascii():
        return None
    return credential_id, secret


def is_ours(shown: str) -> bool:
    """Whether it is meant as a credential of the cluster's own."""
    return shown.startswith(f"{_HEAD}.")


def of_header(header: str | None) -> str | None:
    """The text in an Authorization header of the scheme Bearer."""
    if header is None:
        return None
    scheme, _, shown = header.partition(" ")
    return shown.strip() or None if scheme.lower() == "bearer" else None
