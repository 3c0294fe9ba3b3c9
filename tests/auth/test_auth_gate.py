"""Callers told by what they show: the gate alone, with credentials and a clock that the test sets."""

import asyncio
import itertools
from typing import Any

import pytest

from tenure_cluster.auth import bearer, gate
from tenure_cluster.auth.gate import EVERYBODY, Caller, Gate
from tenure_cluster.lease.credentials import Credential, Secret

_drawn = itertools.count(1)


def draw(size: int) -> bytes:
    return next(_drawn).to_bytes(size)


class Desk:
    """A gate with its credentials and its clock."""

    def __init__(self, *, may_lag: bool = False) -> None:
        self.credentials: dict[str, Credential] = {}
        self.now_ms = 1_000
        self.may_lag = may_lag
        self.gate = Gate(lambda: self.credentials, lambda: self.now_ms, lambda: self.may_lag)

    def made(self, **fields: Any) -> tuple[Credential, str]:
        """A credential that is not known yet, and its header."""
        credential_id, secret = bearer.mint(draw)
        known: dict[str, Any] = {
            "tenant": "team",
            "name": "n",
            "rights": ["observe"],
            "prefixes": [""],
            "secrets": [Secret(bearer.digest(secret), 0)],
            "lifetime_ms": 0,
            "expires_wall_ms": 0,
            "created_wall_ms": 0,
            "created_by": "",
            "rotated_wall_ms": 0,
        }
        credential = Credential(credential_id=credential_id, **known | fields)
        return credential, f"Bearer {bearer.text(credential_id, secret)}"

    def known(self, **fields: Any) -> tuple[Credential, str]:
        credential, header = self.made(**fields)
        self.credentials[credential.credential_id] = credential
        return credential, header


def let_in(caller: Caller | None) -> Caller:
    assert caller is not None
    return caller


def test_a_caller_has_the_tenant_and_the_rights_of_its_credential() -> None:
    desk = Desk()
    credential, header = desk.known(rights=["observe", "force"], prefixes=["a/", "b/"])
    caller = let_in(desk.gate.caller(header))
    assert (caller.tenant, caller.credential_id) == ("team", credential.credential_id)
    assert caller.rights == {"observe", "force"}
    assert caller.may_touch("a/x")
    assert not caller.may_touch("c")


def test_the_scheme_is_taken_in_any_case_and_nothing_else_is() -> None:
    desk = Desk()
    _, header = desk.known()
    assert desk.gate.caller(header.replace("Bearer", "bearer")) is not None
    assert desk.gate.caller(header.swapcase()) is None
    assert desk.gate.caller(header.replace("Bearer", "Basic")) is None


def test_a_secret_of_one_credential_does_not_open_another() -> None:
    desk = Desk()
    one, header = desk.known()
    other, _ = desk.known()
    swapped = header.replace(one.credential_id, other.credential_id)
    assert desk.gate.caller(header) is not None
    assert desk.gate.caller(swapped) is None


def test_a_credential_and_a_secret_on_its_way_out_end_at_their_time() -> None:
    desk = Desk()
    credential, header = desk.known(expires_wall_ms=2_000)
    caller = let_in(desk.gate.caller(header))
    desk.now_ms = 1_999
    assert desk.gate.still(caller)
    desk.now_ms = 2_000
    assert desk.gate.caller(header) is None
    assert not desk.gate.still(caller)
    _, old = desk.known(secrets=[Secret(bytes(32), 0), Secret(credential.secrets[0].digest, 3_000)])
    secret = header.rpartition(".")[2]
    shown = f"{old.rpartition('.')[0]}.{secret}"
    assert desk.gate.caller(shown) is not None
    desk.now_ms = 3_000
    assert desk.gate.caller(shown) is None


def test_a_caller_is_no_longer_let_in_when_its_secret_is_gone() -> None:
    desk = Desk()
    credential, header = desk.known()
    caller = let_in(desk.gate.caller(header))
    assert desk.gate.still(caller)
    assert desk.gate.still(EVERYBODY)
    del desk.credentials[credential.credential_id]
    assert not desk.gate.still(caller)


async def test_a_credential_that_arrives_a_moment_later_is_waited_for_at_a_node_that_may_lag() -> None:
    desk = Desk(may_lag=True)
    credential, header = desk.made()
    asking = asyncio.ensure_future(desk.gate.caller_in_time(header))
    await asyncio.sleep(0)
    desk.credentials[credential.credential_id] = credential
    assert let_in(await asking).credential_id == credential.credential_id


@pytest.mark.parametrize("header", [None, "", "Bearer x", "Bearer tenure.a"])
async def test_what_has_not_even_the_form_is_not_waited_for(
    header: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "LAG_S", 3_600)
    desk = Desk(may_lag=True)
    assert await asyncio.wait_for(desk.gate.caller_in_time(header), 5) is None


async def test_a_crowd_of_strangers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LAG_S", 3_600)
    desk = Desk(may_lag=True)
    waiting = [
        asyncio.ensure_future(desk.gate.caller_in_time(desk.made()[1])) for _ in range(gate.LATECOMERS_MAX)
    ]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(desk.gate.caller_in_time(desk.made()[1]), 5) is None
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert await asyncio.wait_for(_refused_at_once(desk), 5) is None


async def _refused_at_once(desk: Desk) -> Caller | None:
    desk.may_lag = False
    return await desk.gate.caller_in_time(desk.made()[1])


def test_minted_texts_have_the_form_and_their_ids_begin_like_no_option() -> None:
    for first in range(256):
        credential_id, secret = bearer.mint(bytes([first]).__mul__)
        assert bearer.parse(bearer.text(credential_id, secret)) == (credential_id, secret)
        assert not credential_id.startswith("-")
