"""JSON Web Tokens of an issuer that is trusted: it says who asks, for which tenant, and with which rights.

Needs PyJWT (`tenure[jwt]`); node.py imports this only where `[jwt]` is set.

Let in is a token that one of the keys has signed, by an algorithm with a public and a private half, whose
issuer and audience are the configured ones, which has not ended, and which names a subject, a tenant and at
least one right. There is no default for any of them: a claim that is missing lets nobody in. A token can't be
revoked, it ends; so issuers give short ones.

The keys are a file, a JSON Web Key Set or PEM, that is read again when it changes. Nothing is fetched from
anywhere: a node that serves leases must not wait for a server of keys, nor fall with it.

A token that was let in is remembered by its hash, so its signature is checked once and not at every call.
"""

import hashlib
import json
import logging
import math
import os
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from msgspec.structs import replace

from tenure_cluster.auth.gate import Caller
from tenure_cluster.lease import limits
from tenure_cluster.lease.credentials import RIGHTS, Right

SUBJECT_CHARS_MAX: Final = 128
TOKEN_CHARS_MAX: Final = 8_192
KEYS_BYTES_MAX: Final = 1 << 20
REMEMBERED_MAX: Final = 4_096
LOOK_S: Final = 5.0
"""How often it is looked whether the file has changed."""

ACTOR_PREFIX: Final = "jwt:"
"""Before the subject, where a credential has its id."""

_KEYS_OF: Final[dict[str, tuple[type, ...]]] = {
    "RS": (rsa.RSAPublicKey,),
    "PS": (rsa.RSAPublicKey,),
    "ES": (ec.EllipticCurvePublicKey,),
    "Ed": (ed25519.Ed25519PublicKey, ed448.Ed448PublicKey),
}
"""Which keys an algorithm is for, by the beginning of its name."""

_ALGORITHMS: Final = (*(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)), "EdDSA")
"""What a key in a set may say that it is for."""

_CURVES: Final[dict[str, tuple[str, ...]]] = {
    "RSA": (),
    "EC": ("P-256", "P-384", "P-521"),
    "OKP": ("Ed25519", "Ed448"),
}
"""Kinds of keys in a set that are taken, with the curves that are, where a kind has some."""

_UNTELLABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, ends of lines, and lone surrogates, which are no text."""

_log = logging.getLogger("tenure.auth")


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Which tokens are let in: the section [jwt] of the configuration, which says what each means."""

    issuer: str
    audience: str
    keys: str
    algorithms: str
    """Of those alone by which whoever can verify can't sign."""
    tenant_claim: str
    rights_claim: str
    prefixes_claim: str
    leeway_ms: int


class KeysUnusable(Exception):
    """The file of keys can't be used; one line that says why."""


class Tokens:
    """Tells callers by their tokens."""

    def __init__(self, rules: Rules, wall_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        """Raises KeysUnusable."""
        self._rules = rules
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._algorithms = rules.algorithms.split()
        self._known: OrderedDict[bytes, Caller] = OrderedDict()
        self._seen = self._stat()
        self._keys = _read(rules.keys)
        self._looked_s = monotonic()
        self._fault = ""

    def caller(self, shown: str, origin: str = "") -> Caller | None:
        """The caller who shows this token, None if it is not valid."""
        self._look()
        if len(shown) > TOKEN_CHARS_MAX or shown.count(".") != 2:
            return None
        digest = hashlib.sha256(shown.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is None:
            known = self._verified(shown, digest)
            if known is None:
                return None
            self._known[digest] = known
            while len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        if known.until_wall_ms <= self._wall_ms():
            del self._known[digest]
            return None
        return replace(known, origin=origin)

    def _verified(self, shown: str, digest: bytes) -> Caller | None:
        try:
            header = jwt.get_unverified_header(shown)
            claims = self._claims(shown, header)
            return None if claims is None else self._caller(claims, digest)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None

    def _claims(self, shown: str, header: dict[str, Any]) -> dict[str, Any] | None:
        """What is claimed, if one of the keys has signed it."""
        algorithm = header.get("alg")
        if algorithm not in self._algorithms or "crit" in header:  # what must be understood is not
            return None
        key_id = header.get("kid")
        for known_id, key in self._keys:
            if key_id is not None and known_id is not None and key_id != known_id:
                continue
            fits = isinstance(key, _KEYS_OF[algorithm[:2]])
            if not fits:
                continue
            try:
                claims: dict[str, Any] = jwt.decode(
                    shown,
                    key,
                    algorithms=[algorithm],
                    audience=self._rules.audience,
                    issuer=self._rules.issuer,
                    # Times are judged below, by this node's clock.
                    options={
                        "require": ["exp", "iss", "aud", "sub"],
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                    },
                )
            except jwt.InvalidSignatureError:
                continue
            return claims
        return None

    def _caller(self, claims: dict[str, Any], digest: bytes) -> Caller | None:
        rules, now_ms = self._rules, self._wall_ms()
        until_ms = _ms(claims["exp"])
        from_ms = _ms(claims["nbf"]) if "nbf" in claims else 0
        subject: Any = claims["sub"]
        tenant: Any = claims.get(rules.tenant_claim)
        rights = _rights(claims.get(rules.rights_claim))
        prefixes = _texts(claims.get(rules.prefixes_claim)) if rules.prefixes_claim else [""]
        if until_ms is None or from_ms is None or from_ms > now_ms + rules.leeway_ms:
            return None
        until_ms += rules.leeway_ms
        if not _is_name(subject) or len(subject) > SUBJECT_CHARS_MAX:
            return None
        if not _is_name(tenant) or len(tenant.encode()) > limits.TENANT_BYTES_MAX:
            return None
        if not rights or not prefixes or until_ms <= now_ms:
            return None
        return Caller(
            tenant,
            ACTOR_PREFIX + subject,
            rights,
            () if "" in prefixes else tuple(prefixes),
            digest,
            until_wall_ms=until_ms,
        )

    # The file of keys

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            told = os.stat(self._rules.keys)
        except OSError:
            return None
        return told.st_mtime_ns, told.st_size, told.st_ino

    def _look(self) -> None:
        """Read the keys again if their file has changed. If it can't be used, those of before are kept."""
        now_s = self._monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        seen = self._stat()
        if seen == self._seen and not self._fault:
            return
        try:
            self._keys = _read(self._rules.keys)
        except KeysUnusable as error:
            if str(error) != self._fault:
                self._fault = str(error)
                _log.error("%s; the keys of before are kept (said once while it stays so)", error)
            return
        self._seen, self._fault = seen, ""
        self._known.clear()  # a key may be gone, and with it what it signed
        _log.info("%s read again: %d keys", self._rules.keys, len(self._keys))


def _read(path: str) -> list[tuple[str | None, Any]]:
    """The keys in a file, with their ids. Raises KeysUnusable."""
    where = f"jwt.keys = {path!r}"
    try:
        with open(path, "rb") as file:
            content = file.read(KEYS_BYTES_MAX + 1)
    except OSError as error:
        raise KeysUnusable(f"{where}: {os.strerror(error.errno) if error.errno else error}") from None
    if len(content) > KEYS_BYTES_MAX:
        raise KeysUnusable(f"{where} is longer than {KEYS_BYTES_MAX} bytes")
    try:
        found = _of_pem(content) if b"-----BEGIN" in content else _of_set(content)
    except (ValueError, TypeError, jwt.PyJWTError, RecursionError) as error:
        raise KeysUnusable(
            f"{where} holds neither a JSON Web Key Set nor public keys in PEM: {error}"
        ) from None
    if not found:
        raise KeysUnusable(f"{where} holds no public key for signatures")
    return found


def _of_pem(content: bytes) -> list[tuple[str | None, Any]]:
    end = b"-----END PUBLIC KEY-----"
    parts = [part + end for part in content.split(end)[:-1]]
    if len(parts) != content.count(b"-----BEGIN") or b"PRIVATE" in content:
        raise ValueError("only PUBLIC KEY belongs there")
    return [(None, load_pem_public_key(part.lstrip())) for part in parts]


def _of_set(content: bytes) -> list[tuple[str | None, Any]]:
    document = json.loads(content)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise ValueError('it has no list "keys"')
    found = []
    for key in keys:
        if not isinstance(key, dict) or key.get("use", "sig") != "sig" or not _is_of_known_kind(key):
            continue
        if "d" in key:
            raise ValueError("it holds a private key")
        found.append((key.get("kid"), jwt.PyJWK(key).key))
    return found


def _is_of_known_kind(key: dict[str, Any]) -> bool:
    """Whether it is a key for signatures that are taken here. A set may hold others, which must not make the
    rest useless (RFC 7517, 5): for encryption, of later kinds, and secrets, which could sign as well."""
    curves = _CURVES.get(str(key.get("kty")))
    if curves is None or (curves and key.get("crv") not in curves):
        return False
    return "alg" not in key or key["alg"] in _ALGORITHMS


def _ms(value: object) -> int | None:
    """A time of a claim, in seconds, as milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value * 1000) if 0 <= value < 1e12 else None


def _is_name(value: object) -> bool:
    """Whether a claim is a text that can be told: in the log of the cluster, which is UTF-8, and in one line
    for people."""
    return isinstance(value, str) and value != "" and not _UNTELLABLE.search(value)


def _texts(value: object) -> list[str]:
    """A claim that is a list of texts, or one with blanks between them. Anything else is nothing."""
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value[: limits.CREDENTIAL_PREFIXES_MAX]
    return []


def _rights(value: object) -> frozenset[Right]:
    """The rights among what is claimed; an issuer may have other scopes in the same claim."""
    claimed = _texts(value)
    return frozenset(right for right in RIGHTS if right in claimed)
