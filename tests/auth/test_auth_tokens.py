"""Tokens of an issuer: which let in, as whom, until when; and whatever else is shown, which does not."""

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tenure_cluster.auth import tokens
from tenure_cluster.auth.gate import Caller, Gate
from tenure_cluster.auth.tokens import KeysUnusable, Rules, Tokens
from tenure_cluster.config import ConfigError, load

NOW_S = 1_900_000_000
ISSUER, AUDIENCE = "https://issuer.test", "orders"

EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def pem(key: Any) -> bytes:
    made: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return made


def key_set(**keys: Any) -> bytes:
    """A JSON Web Key Set of elliptic keys, by their ids."""
    made = []
    for key_id, key in keys.items():
        document = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
        made.append({**document, "kid": key_id, "use": "sig", "alg": "ES256"})
    return json.dumps({"keys": made}).encode()


class Desk:
    """Tokens of one issuer, with clocks that the test sets."""

    def __init__(self, directory: Path, keys: bytes, **rules: Any) -> None:
        self.file = directory / "keys"
        self.file.write_bytes(keys)
        self.now_s = NOW_S
        self.monotonic_s = 0.0
        told = {"algorithms": "ES256 RS256 EdDSA", "prefixes_claim": "", "leeway_ms": 0} | rules
        self.tokens = Tokens(
            Rules(
                issuer=ISSUER,
                audience=AUDIENCE,
                keys=str(self.file),
                tenant_claim="tenant",
                rights_claim="rights",
                **told,
            ),
            lambda: self.now_s * 1000,
            lambda: self.monotonic_s,
        )

    def caller(self, shown: str) -> Caller | None:
        return self.tokens.caller(shown, "10.0.0.7")

    def later(self, seconds: float) -> None:
        self.monotonic_s += seconds


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, pem(EC_KEY))


def claims(**changes: Any) -> dict[str, Any]:
    """What a good token claims, with changes; None takes a claim away."""
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "agent-a",
        "exp": NOW_S + 60,
        "tenant": "team",
        "rights": ["acquire", "observe"],
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def token(
    key: Any = EC_KEY, algorithm: str = "ES256", head: dict[str, Any] | None = None, **changes: Any
) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers=head)


def test_a_token_says_who_asks_for_whom_and_with_what_rights(desk: Desk) -> None:
    caller = desk.caller(token())
    assert caller is not None
    assert (caller.credential_id, caller.tenant, caller.origin) == ("jwt:agent-a", "team", "10.0.0.7")
    assert caller.rights == {"acquire", "observe"}
    assert caller.may_touch("anything")


@pytest.mark.parametrize(
    ("key", "algorithm"), [(EC_KEY, "ES256"), (RSA_KEY, "RS256"), (ED_KEY, "EdDSA")], ids=["EC", "RSA", "Ed"]
)
def test_every_kind_of_key_is_taken_from_one_file(tmp_path: Path, key: Any, algorithm: str) -> None:
    desk = Desk(tmp_path, pem(RSA_KEY) + pem(EC_KEY) + pem(ED_KEY))
    assert desk.caller(token(key, algorithm)) is not None


def test_rights_may_stand_among_other_scopes(desk: Desk) -> None:
    caller = desk.caller(token(rights="openid commit profile"))
    assert caller is not None
    assert caller.rights == {"commit"}


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.test"},
        {"iss": None},
        {"aud": "invoices"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "x" * 200},
        {"sub": "\ud800"},
        {"sub": "agent-a\nwarning: forged"},
        {"exp": None},
        {"exp": NOW_S},
        {"exp": NOW_S - 1},
        {"exp": "soon"},
        {"exp": True},
        {"exp": -1},
        {"nbf": NOW_S + 1},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": "t" * 500},
        {"tenant": ["team"]},
        {"tenant": "\udfff"},
        {"tenant": "team\x00"},
        {"rights": None},
        {"rights": []},
        {"rights": "openid"},
        {"rights": ["root"]},
        {"rights": [1]},
        {"rights": {"admin": True}},
    ],
    ids=str,
)
def test_whatever_is_missing_or_wrong_lets_nobody_in(desk: Desk, changes: dict[str, Any]) -> None:
    assert desk.caller(token()) is not None
    assert desk.caller(token(**changes)) is None


def _unsigned() -> str:
    return jwt.encode(claims(), None, "none")  # type: ignore[arg-type]


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _signed_with_the_public_key() -> str:
    """The old trick: the verifier's public key taken for a shared secret."""
    import hashlib
    import hmac

    body = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims())}"
    signature = hmac.digest(pem(EC_KEY), body.encode(), hashlib.sha256)
    return f"{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _changed() -> str:
    head, _, signature = token().split(".")
    return f"{head}.{_part(claims(tenant='another'))}.{signature}"


FORGED = {
    "by another key": lambda: token(OTHER_KEY),
    "by another key that brings itself": lambda: token(
        OTHER_KEY, head={"jwk": json.loads(key_set(a=OTHER_KEY))}
    ),
    "with something that must be understood": lambda: token(head={"crit": ["b32"], "b32": 1}),
    "unsigned": _unsigned,
    "signed with the public key": _signed_with_the_public_key,
    "changed": _changed,
    "without its signature": lambda: token().rpartition(".")[0] + ".",
    "two parts": lambda: token().rpartition(".")[0],
    "four parts": lambda: token() + ".x",
    "too long": lambda: token(more="x" * 10_000),
    "nothing": lambda: "..",
    "no base64": lambda: "a.%%.ü",
    "no JSON": lambda: "YQ.YQ.YQ",
    "a list": lambda: f"{_part([])}.{_part([])}.YQ",
    "deep": lambda: f"{base64.urlsafe_b64encode(b'[' * 4_000).decode()}.YQ.YQ",
    "surrogates": lambda: "\udcff.\udcff.\udcff",
}


@pytest.mark.parametrize("made", FORGED.values(), ids=FORGED.keys())
def test_what_the_issuer_has_not_signed_lets_nobody_in(desk: Desk, made: Any) -> None:
    assert desk.caller(made()) is None


def test_algorithms_that_are_not_named_are_not_taken(tmp_path: Path) -> None:
    desk = Desk(tmp_path, pem(RSA_KEY), algorithms="ES256 PS256")
    assert desk.caller(token(RSA_KEY, "PS256")) is not None
    assert desk.caller(token(RSA_KEY, "RS256")) is None


def test_a_token_ends_by_this_nodes_clock_and_so_does_what_it_opened(tmp_path: Path) -> None:
    desk = Desk(tmp_path, pem(EC_KEY), leeway_ms=10_000)
    gate = Gate(dict, lambda: desk.now_s * 1000, lambda: False, desk.tokens)
    header = f"Bearer {token(nbf=NOW_S + 10)}"
    caller = gate.caller(header)
    assert caller is not None
    assert gate.caller(f"Bearer {token(nbf=NOW_S + 11)}") is None
    desk.now_s += 69
    assert gate.still(caller)
    assert gate.caller(header) is not None
    desk.now_s += 1
    assert not gate.still(caller)
    assert gate.caller(header) is None


def test_where_keys_are_claimed_a_token_without_them_is_for_none(tmp_path: Path) -> None:
    desk = Desk(tmp_path, pem(EC_KEY), prefixes_claim="keys")
    caller = desk.caller(token(keys=["a/", "b/"]))
    assert caller is not None
    assert (caller.may_touch("a/1"), caller.may_touch("c/1")) == (True, False)
    assert desk.caller(token()) is None
    assert desk.caller(token(keys=[])) is None


def test_a_signature_is_checked_once_and_the_end_every_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []
    decode = jwt.decode
    monkeypatch.setattr(
        tokens.jwt, "decode", lambda *args, **more: (checked.append(1), decode(*args, **more))[1]
    )
    shown = token()
    for _ in range(5):
        assert desk.caller(shown) is not None
    assert len(checked) == 1
    desk.now_s += 60
    assert desk.caller(shown) is None


def test_no_more_is_remembered_than_may_be(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED_MAX", 3)
    for number in range(10):
        assert desk.caller(token(sub=f"agent-{number}")) is not None
    assert len(desk.tokens._known) == 3


# Keys


def test_a_key_is_found_by_its_id_and_by_no_other(tmp_path: Path) -> None:
    desk = Desk(tmp_path, key_set(one=EC_KEY, two=OTHER_KEY))
    assert desk.caller(token(EC_KEY, head={"kid": "one"})) is not None
    assert desk.caller(token(OTHER_KEY, head={"kid": "two"})) is not None
    assert desk.caller(token(EC_KEY, head={"kid": "two"})) is None
    assert desk.caller(token(EC_KEY, head={"kid": "three"})) is None


def test_keys_change_while_the_node_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(tmp_path, key_set(one=EC_KEY))
    old, new = token(EC_KEY), token(OTHER_KEY)
    assert (desk.caller(old) is None, desk.caller(new) is None) == (False, True)
    desk.file.write_bytes(key_set(one=EC_KEY, two=OTHER_KEY))
    desk.later(tokens.LOOK_S)
    assert (desk.caller(old) is None, desk.caller(new) is None) == (False, False)
    desk.file.write_bytes(b"half of")
    desk.later(tokens.LOOK_S)
    assert (desk.caller(old) is None, desk.caller(new) is None) == (False, False)
    assert "the keys of before are kept" in caplog.text
    desk.file.unlink()
    desk.later(tokens.LOOK_S)
    assert desk.caller(new) is not None
    desk.file.write_bytes(key_set(two=OTHER_KEY))
    desk.later(tokens.LOOK_S)
    assert (desk.caller(old) is None, desk.caller(new) is None) == (True, False)


@pytest.mark.parametrize(
    "other",
    [
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA", "use": "sig"},
        {"kty": "OKP", "crv": "X25519", "x": "3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08"},
        {"kty": "EC", "crv": "BP-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "RSA", "alg": "RSA-OAEP", "n": "AAAA", "e": "AQAB"},
        {"kty": "RSA", "use": "enc", "n": "AAAA", "e": "AQAB"},
        {"kty": 7},
        "no key",
    ],
    ids=str,
)
def test_a_key_of_another_kind_is_passed_over(tmp_path: Path, other: object) -> None:
    made = json.loads(key_set(one=EC_KEY))
    made["keys"].insert(0, other)
    desk = Desk(tmp_path, json.dumps(made).encode())
    assert desk.caller(token(head={"kid": "one"})) is not None


SECRET_PEM = EC_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        b'{"keys": [{"kty": "EC"}]}',
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        pem(EC_KEY) + SECRET_PEM,
        SECRET_PEM,
        b"x" * (2 << 20),
    ],
    ids=["empty", "object", "list", "no keys", "a secret", "half", "no key", "both", "private", "huge"],
)
def test_a_file_that_cannot_be_used_is_told_with_its_setting(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(KeysUnusable, match=r"jwt\.keys = "):
        Desk(tmp_path, content)


# Settings

NAMES = {"TENURE_CLUSTER_ID": "c", "TENURE_NODE_ID": "n1", "TENURE_AUTH_REQUIRED": "true"}
SET = {"TENURE_JWT_ISSUER": ISSUER, "TENURE_JWT_AUDIENCE": AUDIENCE, "TENURE_JWT_KEYS": "keys.json"}


def test_the_file_is_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "n1.toml").write_text("")
    assert load(tmp_path / "n1.toml", NAMES | SET).jwt.keys == str(tmp_path / "keys.json")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"TENURE_JWT_AUDIENCE": ""}, "jwt.audience must be set"),
        ({"TENURE_JWT_ISSUER": "", "TENURE_JWT_KEYS": ""}, "jwt.issuer, jwt.keys must be set"),
        ({"TENURE_AUTH_REQUIRED": "false"}, "auth.required is not"),
        ({"TENURE_JWT_ALGORITHMS": "ES256 HS256"}, "jwt.algorithms = 'ES256 HS256' must be some of"),
        ({"TENURE_JWT_ALGORITHMS": "none"}, "must be some of"),
        ({"TENURE_JWT_ALGORITHMS": " "}, "must be some of"),
        ({"TENURE_JWT_TENANT_CLAIM": ""}, "must not be empty"),
        ({"TENURE_JWT_LEEWAY_MS": "300001"}, "jwt.leeway_ms = 300001 is above 300000"),
    ],
)
def test_settings_that_would_let_in_whom_nobody_meant_are_refused(changes: dict[str, str], told: str) -> None:
    load(None, NAMES | SET)
    with pytest.raises(ConfigError) as refused:
        load(None, NAMES | SET | changes)
    assert told in str(refused.value)
