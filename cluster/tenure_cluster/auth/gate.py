"""Who asks: from what a client shows to a caller with a tenant and rights.

Decided by this node alone, from its copy of the credentials and its wall clock, so it costs nothing that
waits. A copy may lag behind: a credential that was made elsewhere a moment ago is looked for again for a
short time before it is refused, and one that was revoked goes on here until the entry arrives.
"""

import asyncio
import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from tenure_cluster.auth import bearer
from tenure_cluster.lease.credentials import RIGHTS, Credential, Right

DEFAULT_TENANT: Final = "default"

LAG_S: Final = 1.0
"""For how long a credential that is not known is looked for again, at a node that may lag behind."""

LOOKS_PER_S: Final = 20
LATECOMERS_MAX: Final = 100
"""Most requests that so wait at once; the next is refused at once."""

_NO_DIGEST: Final = bytes(32)


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf something is asked."""

    tenant: str
    credential_id: str
    """Empty for everybody, while nobody needs a credential."""
    rights: frozenset[Right]
    prefixes: tuple[str, ...]
    """What its keys begin with; empty: any."""
    digest: bytes
    origin: str = ""
    """The address that it asks from, as this node sees it."""
    until_wall_ms: int = 0
    """When what it shows is over, if that is a token; 0: a credential, at which it is looked again."""

    def may_touch(self, key: str) -> bool:
        """Whether a key, or all that begins with it, is among its own. Exact: nothing is normalised."""
        return not self.prefixes or key.startswith(self.prefixes)


class TokenDesk(Protocol):
    """Knows the callers of tokens; see tokens.py."""

    def caller(self, shown: str, origin: str = "") -> Caller | None: ...


EVERYBODY: Final = Caller(DEFAULT_TENANT, "", frozenset(RIGHTS), (), b"")
"""The caller where no credential is needed."""


class Gate:
    """Tells callers by their credentials."""

    def __init__(
        self,
        credentials: Callable[[], Mapping[str, Credential]],
        wall_ms: Callable[[], int],
        may_lag: Callable[[], bool],
        tokens: TokenDesk | None = None,
    ) -> None:
        """``credentials`` gives this node's copy; ``may_lag`` says whether it may be behind. ``tokens`` tells
        callers who show a token of somebody else, if any are let in."""
        self._tokens = tokens
        self._credentials = credentials
        self._wall_ms = wall_ms
        self._may_lag = may_lag
        self._latecomers = 0
        self.refused = 0

    def caller(self, header: str | None, origin: str = "") -> Caller | None:
        """The caller of a request with this Authorization header, None if it shows no valid credential."""
        shown = bearer.of_header(header)
        if shown is not None and self._tokens is not None and not bearer.is_ours(shown):
            return self._tokens.caller(shown, origin)
        parts = bearer.parse(shown) if shown is not None else None
        return None if parts is None else self._find(*parts, origin)

    async def caller_in_time(self, header: str | None, origin: str = "") -> Caller | None:
        """As `caller`, but looks again for a moment if the credential may only not have arrived yet."""
        return self.caller(header, origin) or await self.late_caller(header, origin)

    async def late_caller(self, header: str | None, origin: str = "") -> Caller | None:
        """The caller of a request for which `caller` found none, if its credential arrives in a moment."""
        caller = None
        parts = bearer.parse(bearer.of_header(header) or "")
        if parts is not None and self._may_lag() and self._latecomers < LATECOMERS_MAX:
            self._latecomers += 1
            try:
                for _ in range(int(LAG_S * LOOKS_PER_S)):
                    await asyncio.sleep(1 / LOOKS_PER_S)
                    caller = self._find(*parts, origin)
                    if caller is not None:
                        break
            finally:
                self._latecomers -= 1
        self.refused += caller is None
        return caller

    def still(self, caller: Caller) -> bool:
        """Whether a caller of before would be told by the same credential now."""
        if not caller.credential_id:
            return True
        if caller.until_wall_ms:
            return self._wall_ms() < caller.until_wall_ms
        credential = self._credentials().get(caller.credential_id)
        return credential is not None and self._valid(credential, caller.digest)

    def _find(self, credential_id: str, secret: str, origin: str) -> Caller | None:
        digest = bearer.digest(secret)
        credential = self._credentials().get(credential_id)
        if credential is None:
            hmac.compare_digest(digest, _NO_DIGEST)  # as long as it takes where there is one
            return None
        if not self._valid(credential, digest):
            return None
        prefixes = () if "" in credential.prefixes else tuple(credential.prefixes)
        return Caller(
            credential.tenant,
            credential.credential_id,
            frozenset(credential.rights),
            prefixes,
            digest,
            origin,
        )

    def _valid(self, credential: Credential, digest: bytes) -> bool:
        now_ms = self._wall_ms()
        if credential.expires_wall_ms and credential.expires_wall_ms <= now_ms:
            return False
        return any(
            hmac.compare_digest(secret.digest, digest)
            and not (secret.until_wall_ms and secret.until_wall_ms <= now_ms)
            for secret in credential.secrets
        )
