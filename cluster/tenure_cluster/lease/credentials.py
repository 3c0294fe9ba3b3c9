"""Credentials: who may ask for what, as a part of the state of its own.

A credential belongs to a tenant and gives rights on keys with certain beginnings. What its bearer shows is a
random secret of 256 bits; the state has the secret's SHA-256 alone. That is enough: nobody can guess such a
secret, so neither salt nor a slow hash would add anything, and whoever reads a journal or a backup can't show
what he has not read.

Nothing here decides about leases, and nothing of leases decides here. Whether a credential has run out is
decided where it is shown (auth/gate.py), by that node's wall clock: the times in here are the leader's, in
Unix milliseconds, as everything is that has a date for people. No lease depends on them.

At most one secret is current. Rotating puts a new one before it, and leaves the old one valid for an overlap
in which its bearers go over. One that is in its overlap stays so when it is rotated once more, so that a
rotation whose answer was lost can be made again without locking its bearers out.

There is always a credential with the right `admin` once there has been one.
"""

from typing import Final, Literal, TypeAlias, get_args

import msgspec

from tenure_cluster.lease import limits
from tenure_cluster.lease.results import Invalid
from tenure_cluster.lease.types import TenantId

Right: TypeAlias = Literal["acquire", "observe", "commit", "force", "admin"]
"""acquire: hold leases and sessions. observe: look and watch. commit: write through guards. force: act on
what others hold or have written. admin: everything about the cluster, and all credentials of all tenants.
"""

RIGHTS: Final[tuple[Right, ...]] = get_args(Right)

DIGEST_BYTES: Final = 32


class Secret(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What can be shown for a credential."""

    digest: bytes
    """SHA-256 of the secret."""
    until_wall_ms: int
    """When it is over; 0: with its credential."""


class Credential(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One credential."""

    credential_id: str
    tenant: TenantId
    name: str
    """For people."""
    rights: list[Right]
    prefixes: list[str]
    """The keys that it is for begin with one of these; an empty one is for all."""
    secrets: list[Secret]
    """The current one, then those that are on their way out, the newest first."""
    lifetime_ms: int
    """For how long it is made and rotated; 0: without an end."""
    expires_wall_ms: int
    """0: never."""
    created_wall_ms: int
    created_by: str
    """The id of the credential that made it; empty if none did."""
    rotated_wall_ms: int


class _Command(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of the commands. ``actor`` is the id of the credential that asks; empty if none was needed.
    ``origin`` is the address that it was asked from."""


class CreateCredential(_Command, frozen=True, tag=16):
    """Make a credential. ``first``: only if there is none yet with the right `admin`."""

    credential_id: str
    tenant: TenantId
    name: str
    rights: list[Right]
    prefixes: list[str]
    digest: bytes
    lifetime_ms: int
    first: bool
    actor: str
    wall_ms: int
    origin: str = ""


class RevokeCredential(_Command, frozen=True, tag=17):
    """Take a credential away, with all its secrets."""

    credential_id: str
    actor: str
    wall_ms: int
    origin: str = ""


class RotateCredential(_Command, frozen=True, tag=18):
    """Give a credential a new secret, and let the present one be valid for the overlap; with none, all of
    before are over at once. Its lifetime begins anew."""

    credential_id: str
    digest: bytes
    overlap_ms: int
    actor: str
    wall_ms: int
    origin: str = ""


CredentialCommand: TypeAlias = CreateCredential | RevokeCredential | RotateCredential


class _Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of the results."""


class CredentialIs(_Result, frozen=True):
    """The credential as it stands. Asked again with the same secret, a command is answered with this too."""

    credential: Credential


class CredentialRevoked(_Result, frozen=True):
    """The credential that is gone."""

    credential: Credential


class NoCredential(_Result, frozen=True):
    """Refused: there is no such credential."""


class LastAdministrator(_Result, frozen=True):
    """Refused: without it nobody could make another credential."""


class NotFirst(_Result, frozen=True):
    """Refused: there is an administrator."""


class CredentialsFull(_Result, frozen=True):
    """Refused: there are as many credentials as there may be."""

    credentials_max: int


CredentialResult: TypeAlias = (
    CredentialIs | CredentialRevoked | NoCredential | LastAdministrator | NotFirst | CredentialsFull | Invalid
)


def faults(credentials: dict[str, Credential]) -> str:
    """What contradicts itself among the credentials; empty if nothing does."""
    for credential_id, credential in credentials.items():
        if credential.credential_id != credential_id:
            return f"credential {credential_id!r} stands under another id"
        if (
            not 1 <= len(credential.secrets) <= limits.SECRETS_MAX
            or not credential.rights
            or not credential.prefixes
        ):
            return f"credential {credential_id!r} has no secret, no right or no prefix"
        if any(len(secret.digest) != DIGEST_BYTES for secret in credential.secrets):
            return f"credential {credential_id!r} has a secret that is no digest"
    if len(credentials) > limits.CREDENTIALS_MAX:
        return "there are more credentials than there may be"
    return ""
