"""The audit over HTTP and from the command line: who may read it, what it tells, and how it is verified."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from api_guarded import Guarded
from api_stream import stream
from test_api_credentials_cli import cli

from tenure.audit import verify


async def page(guarded: Guarded, after: int = 0) -> dict[str, Any]:
    reply = await guarded.ask("GET", f"/v1/audit?after={after}&limit=1000", bearer=guarded.root)
    assert reply.status == 200, reply
    return reply.json


async def told(guarded: Guarded, **wanted: Any) -> dict[str, Any]:
    """The record that has these fields, as soon as there is one."""
    for _ in range(500):
        for record in reversed((await page(guarded))["records"]):
            if wanted.items() <= record.items():
                return record
        await asyncio.sleep(0.02)
    raise TimeoutError(f"nothing with {wanted} was recorded")


@pytest.fixture(autouse=True)
async def begun(guarded: Guarded) -> None:
    await told(guarded, kind="audit_policy")


@pytest.mark.parametrize("rights", [["acquire", "observe", "commit", "force"], ["observe"]])
async def test_the_audit_needs_the_right_admin(guarded: Guarded, rights: list[str]) -> None:
    reply = await guarded.ask("GET", "/v1/audit", bearer=await guarded.bearer(*rights))
    assert (reply.status, reply.json["right"]) == (403, "admin")
    assert (await guarded.ask("GET", "/v1/audit")).status == 401


@pytest.mark.parametrize("query", ["after=-1", "limit=0", "limit=1001", "after=x", "until=3"])
async def test_a_page_that_cannot_be_is_refused(guarded: Guarded, query: str) -> None:
    reply = await guarded.ask("GET", f"/v1/audit?{query}", bearer=guarded.root)
    assert reply.status in (400, 422), reply


async def test_a_break_names_the_credential_and_the_address(guarded: Guarded) -> None:
    actor, bearer = await guarded.created(["acquire", "force"], tenant="broken")
    body = {"key": "job", "owner": "agent", "ttl_ms": 60_000}
    lease = (await guarded.ask("POST", "/v1/acquire", body, bearer)).json["lease"]
    await guarded.ask("POST", "/v1/break", {"key": "job", "reason": "it hangs"}, bearer)
    record = await told(guarded, kind="break", tenant="broken")
    assert (record["actor"], record["origin"], record["detail"]) == (actor, "127.0.0.1", "it hangs")
    assert (record["key"], record["token"], record["owner"]) == ("job", lease["token"], "agent")
    assert lease["lease_id"] not in json.dumps(await page(guarded))


async def test_a_refused_commit_names_its_token(guarded: Guarded) -> None:
    actor, bearer = await guarded.created(["acquire", "commit"], tenant="stale")
    body = {"key": "job", "owner": "agent", "ttl_ms": 60_000}
    lease = (await guarded.ask("POST", "/v1/acquire", body, bearer)).json["lease"]
    commit = {"key": "job", "lease_id": lease["lease_id"], "token": lease["token"] - 1, "mode": "once"}
    assert (await guarded.ask("POST", "/v1/commit", commit, bearer)).code == "stale_token"
    record = await told(guarded, kind="commit", tenant="stale")
    assert (record["code"], record["token"], record["key"]) == ("stale_token", lease["token"] - 1, "job")
    assert (record["actor"], record["origin"]) == (actor, "127.0.0.1")


async def test_what_lacks_a_right_is_recorded_wherever_it_is_asked(guarded: Guarded) -> None:
    """Alone, in a batch and over a stream."""
    actor, bearer = await guarded.created(["acquire"], tenant="lacking", prefixes=["a/"])
    await guarded.ask("POST", "/v1/break", {"key": "a/1", "reason": "r"}, bearer)
    record = await told(guarded, kind="refused", actor=actor, subject="break")
    assert (record["tenant"], record["code"], record["origin"]) == ("lacking", "forbidden", "127.0.0.1")

    acquire = {"op": "acquire", "key": "b/1", "owner": "o", "ttl_ms": 60_000}
    await guarded.ask("POST", "/v1/batch", {"ops": [acquire]}, bearer)
    assert (await told(guarded, kind="refused", actor=actor, subject="acquire"))["key"] == "b/1"

    async with stream(guarded.port, Authorization=f"Bearer {bearer}") as client:
        status, _ = await client.ask("commit", key="a/1", lease_id="l", token=1, mode="once")
        assert status == 403
    assert (await told(guarded, kind="refused", actor=actor, subject="commit"))["key"] == "a/1"


async def test_a_flood_of_refusals_is_one_record(guarded: Guarded) -> None:
    actor, bearer = await guarded.created(["acquire"], tenant="flood")
    await asyncio.gather(
        *(guarded.ask("GET", f"/v1/leases/k{number}", bearer=bearer) for number in range(40))
    )
    record = await told(guarded, actor=actor, subject="get_lease")
    assert 1 <= record["count"] <= 40
    assert (await guarded.ask("GET", "/v1/leases/k", bearer="tenure.nobody.nothing")).status == 401
    assert (await told(guarded, code="unauthenticated"))["actor"] == ""
    records = [one for one in (await page(guarded))["records"] if one["actor"] == actor]
    assert len(records) == 1


async def test_credentials_that_come_and_go_are_recorded_without_their_secrets(guarded: Guarded) -> None:
    credential_id, bearer = await guarded.created(["acquire"], name="comes and goes")
    root_id = guarded.root.split(".")[1]
    reply = await guarded.ask("DELETE", f"/v1/credentials/{credential_id}", bearer=guarded.root)
    assert reply.status == 200
    made = await told(guarded, kind="create_credential", subject=credential_id)
    gone = await told(guarded, kind="revoke_credential", subject=credential_id)
    assert {made["actor"], gone["actor"]} == {root_id}
    assert "comes and goes" in made["detail"]
    assert bearer.split(".")[2] not in json.dumps(await page(guarded))


async def test_the_first_administrator_is_recorded_too(guarded: Guarded) -> None:
    record = await told(guarded, kind="create_credential", subject=guarded.root.split(".")[1])
    assert record["detail"].startswith("first administrator: acquire, observe, commit, force, admin")
    assert (record["actor"], record["origin"]) == ("", "")


async def test_the_pages_hold_together_in_both_formats(guarded: Guarded) -> None:
    await guarded.created(["acquire"], name="ключ \u2028 é")
    whole = await page(guarded)
    assert verify(whole["records"]) == (whole["head_seq"], whole["head"])
    packed = await guarded.ask(
        "GET", "/v1/audit?limit=1000", bearer=guarded.root, accept="application/msgpack"
    )
    assert verify(msgspec.msgpack.decode(packed.body)["records"]).seq >= whole["head_seq"]


async def test_the_command_line_exports_verifies_and_goes_on(guarded: Guarded, tmp_path: Path) -> None:
    await guarded.created(["acquire"], name="one")
    first = await cli(guarded, "audit", "-o", "json", "--verify")
    assert first.returncode == 0, first.stderr
    assert first.stdout.isascii()
    records = [json.loads(line) for line in first.stdout.splitlines()]
    assert records[0]["kind"] == "audit_policy"
    end = verify(records)
    assert f"{end.seq}:{end.hash}" in first.stderr

    await guarded.created(["acquire"], name="two")
    where = f"{end.seq}:{end.hash}"
    second = await cli(guarded, "audit", "-o", "json", "--verify", "--after", where)
    assert second.returncode == 0, second.stderr
    more = [json.loads(line) for line in second.stdout.splitlines()]
    assert "two" in more[-1]["detail"]
    verify([*records, *more])

    another = f"{end.seq}:{'0' * 64}"
    broken = await cli(guarded, "audit", "--verify", "--after", another)
    assert broken.returncode == 1
    assert "does not continue the chain" in broken.stderr
    ahead = await cli(guarded, "audit", "--verify", "--after", f"{end.seq + 1_000}:{end.hash}")
    assert ahead.returncode == 1
    usage = await cli(guarded, "audit", "--after", "yesterday")
    assert usage.returncode == 2


async def test_the_command_line_tells_people_in_words(guarded: Guarded) -> None:
    await guarded.created(["acquire"], name="for people")
    shown = await cli(guarded, "audit")
    assert shown.returncode == 0, shown.stderr
    [line] = [line for line in shown.stdout.splitlines() if "for people" in line]
    assert "create_credential" in line
    assert f"by {guarded.root.split('.')[1]} from 127.0.0.1" in line


REFUSED_CALLS = {
    "break": ("POST", "/v1/break", {"key": "who/broke", "reason": "r"}),
    "acquire": ("POST", "/v1/acquire", {"keys": ["who/set", "b"], "owner": "o", "ttl_ms": 60_000}),
    "commit": ("POST", "/v1/commit", {"key": "who/wrote", "lease_id": "l", "token": 1, "mode": "once"}),
    "get_lease": ("GET", "/v1/leases/who%2Flooked", b""),
    "delete_record": ("DELETE", "/v1/records/who/deleted", b""),
    "list_leases": ("GET", "/v1/leases?prefix=who/lists", b""),
}


async def test_a_refused_call_is_recorded_with_the_key_that_it_named(guarded: Guarded) -> None:
    actor, bearer = await guarded.created(["admin"], tenant="keys")
    for operation, (method, target, body) in REFUSED_CALLS.items():
        reply = await guarded.ask(method, target, body, bearer)
        assert reply.code == "forbidden", (operation, reply)
        record = await told(guarded, kind="refused", actor=actor, subject=operation)
        assert record["key"].startswith("who/"), operation


async def test_a_refused_call_whose_body_is_none_is_refused_and_recorded_all_the_same(
    guarded: Guarded,
) -> None:
    actor, bearer = await guarded.created(["observe"], tenant="bodies")
    for body in (b"", b"{", b'{"key": 7}', b"\xff" * 300_000):
        assert (await guarded.ask("POST", "/v1/break", body, bearer)).code == "forbidden"
    assert (await told(guarded, kind="refused", actor=actor))["key"] == ""


async def test_what_strangers_send_is_not_recorded(guarded: Guarded) -> None:
    for method, target, body in REFUSED_CALLS.values():
        assert (await guarded.ask(method, target, body, "tenure.nobody.nothing")).status == 401
    assert (await told(guarded, code="unauthenticated"))["key"] == ""
    assert "who/" not in json.dumps([one for one in (await page(guarded))["records"] if not one["actor"]])


async def test_a_text_that_is_too_long_for_a_key_is_cut(guarded: Guarded) -> None:
    """It was refused before anybody looked at its length."""
    actor, bearer = await guarded.created(["observe"], tenant="long")
    long = {"op": "break", "key": "ä" * 30_000, "reason": "r"}
    reply = await guarded.ask("POST", "/v1/batch", {"ops": [long]}, bearer)
    assert reply.json["results"][0]["code"] == "forbidden"
    assert (await told(guarded, kind="refused", actor=actor))["key"] == "ä" * 100 + "…"
