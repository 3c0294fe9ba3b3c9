"""A node that lets in the tokens of an issuer beside its own credentials."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from api_guarded import Guarded
from api_stream import stream
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from test_api_audit import told

from tenure_cluster.settings import Jwt

KEY = ec.generate_private_key(ec.SECP256R1())


def token(**changes: Any) -> str:
    good = {
        "iss": "issuer",
        "aud": "orders",
        "sub": "agent-a",
        "exp": time.time() + 300,
        "tenant": "team",
        "rights": ["acquire", "observe"],
        "keys": ["a/"],
    }
    return jwt.encode(good | changes, KEY, "ES256")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory: Path = tmp_path_factory.mktemp("tokens")
    keys = directory / "keys.pem"
    keys.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    rules = Jwt(issuer="issuer", audience="orders", keys=str(keys), prefixes_claim="keys")
    made = Guarded(directory / "node", jwt=rules)
    yield made
    made.node.stop()


async def test_a_token_opens_what_it_claims_and_no_more(guarded: Guarded) -> None:
    body = {"key": "a/1", "owner": "o", "ttl_ms": 60_000}
    assert (await guarded.ask("POST", "/v1/acquire", body, token())).status == 200
    assert (await guarded.ask("GET", "/v1/leases/a/1", bearer=token())).json["owner"] == "o"
    assert (await guarded.ask("GET", "/v1/leases/b/1", bearer=token())).status == 403
    refused = await guarded.ask("POST", "/v1/break", {"key": "a/1", "reason": "r"}, token())
    assert (refused.status, refused.json["right"]) == (403, "force")
    other = await guarded.ask("GET", "/v1/leases/a/1", bearer=token(tenant="another"))
    assert other.code == "not_held"


@pytest.mark.parametrize(
    "changes", [{"exp": 1}, {"aud": "invoices"}, {"iss": "another"}, {"keys": []}], ids=str
)
async def test_another_token_is_answered_like_none(guarded: Guarded, changes: dict[str, Any]) -> None:
    without = await guarded.ask("GET", "/v1/leases/a/1")
    shown = await guarded.ask("GET", "/v1/leases/a/1", bearer=token(**changes))
    assert (shown.status, shown.body) == (without.status, without.body)
    assert shown.status == 401


async def test_credentials_go_on_beside_tokens(guarded: Guarded) -> None:
    assert (await guarded.ask("GET", "/v1/credentials", bearer=guarded.root)).status == 200
    assert (await guarded.ask("GET", "/v1/credentials", bearer=token())).status == 403


async def test_a_stream_is_the_tokens_too(guarded: Guarded) -> None:
    async with stream(guarded.port, Authorization=f"Bearer {token()}") as client:
        assert (await client.ask("acquire", key="a/stream", owner="o", ttl_ms=60_000))[0] == 200
        assert (await client.ask("acquire", key="b/stream", owner="o", ttl_ms=60_000))[0] == 403


async def test_the_audit_names_the_subject(guarded: Guarded) -> None:
    await guarded.ask("POST", "/v1/break", {"key": "a/1", "reason": "r"}, token(sub="somebody"))
    record = await told(guarded, kind="refused", actor="jwt:somebody")
    assert (record["tenant"], record["subject"], record["code"]) == ("team", "break", "forbidden")


async def test_a_token_that_lets_nobody_in_is_verified_once(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[object] = []
    decode = jwt.decode

    def counting(*args: Any, **more: Any) -> Any:
        verified.append(args[0])
        return decode(*args, **more)

    monkeypatch.setattr(jwt, "decode", counting)
    forged = token()[:-8] + "AAAAAAAA"
    assert (await guarded.ask("GET", "/v1/leases/a/1", bearer=forged)).status == 401
    assert verified == [forged]
