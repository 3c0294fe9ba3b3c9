"""`tenure credentials`, and the client with a credential, against a node that asks for one."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from api_guarded import Guarded

import tenure

TIMEOUT_S = 60


async def cli(
    guarded: Guarded, *arguments: str | Path, credential: str | None = None
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    shown = guarded.root if credential is None else credential
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tenure.cli", *map(str, arguments)],
        env={**kept, "TENURE_ENDPOINTS": guarded.node.url, "TENURE_CREDENTIAL": shown},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


async def test_a_credential_lives_from_creation_to_revocation(guarded: Guarded, tmp_path: Path) -> None:
    made = await cli(
        guarded,
        *("credentials", "create", "agent-a", "--right", "acquire", "--right", "observe"),
        *("--prefix", "jobs/", "--lifetime", "1h", "-o", "json"),
    )
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    credential_id, bearer = document["credential"]["credential_id"], document["bearer"]
    assert document["credential"]["rights"] == ["acquire", "observe"]

    acquired = await cli(guarded, "acquire", "jobs/1", "--ttl", "30s", credential=bearer)
    assert acquired.returncode == 0, acquired.stderr
    outside = await cli(guarded, "acquire", "other", "--ttl", "30s", credential=bearer)
    assert outside.returncode == 1
    assert "credential" in outside.stderr

    listed = await cli(guarded, "credentials", "list")
    assert credential_id in listed.stdout
    assert bearer.rpartition(".")[2] not in listed.stdout

    file = tmp_path / "next.credential"
    rotated = await cli(guarded, "credentials", "rotate", credential_id, "--overlap", "0", "--to", file)
    assert rotated.returncode == 0, rotated.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (await cli(guarded, "get", "jobs/1", credential=bearer)).returncode == 1
    shown = await cli(guarded, "get", "jobs/1", "--credential-file", file, credential="")
    assert shown.returncode == 0, shown.stderr

    assert (await cli(guarded, "credentials", "revoke", credential_id)).stdout == "revoked\n"
    again = await cli(guarded, "credentials", "revoke", credential_id)
    assert (again.returncode, credential_id in again.stderr) == (1, True)


async def test_a_file_that_is_there_is_not_written_over_and_nothing_is_made(
    guarded: Guarded, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("mine")
    refused = await cli(
        guarded,
        *("credentials", "create", "unwritten", "--right", "observe", "--to", tmp_path / "taken"),
    )
    assert refused.returncode == 2
    assert (tmp_path / "taken").read_text() == "mine"
    assert "unwritten" not in (await cli(guarded, "credentials", "list")).stdout


async def test_a_refused_creation_leaves_no_file(guarded: Guarded, tmp_path: Path) -> None:
    weak = await guarded.bearer("observe")
    file = tmp_path / "none"
    refused = await cli(
        guarded, "credentials", "create", "x", "--right", "admin", "--to", file, credential=weak
    )
    assert (refused.returncode, "admin" in refused.stderr) == (1, True)
    assert not file.exists()


async def test_the_last_administrator_is_kept(guarded: Guarded) -> None:
    root_id = guarded.root.split(".")[1]
    listed = json.loads((await cli(guarded, "credentials", "list", "-o", "json")).stdout)["credentials"]
    for credential in listed:
        if "admin" in credential["rights"] and credential["credential_id"] != root_id:
            await cli(guarded, "credentials", "revoke", credential["credential_id"])
    refused = await cli(guarded, "credentials", "revoke", root_id)
    assert (refused.returncode, "last credential" in refused.stderr) == (2, True)


async def test_the_client_holds_a_lease_and_watches_with_its_credential(guarded: Guarded) -> None:
    bearer = await guarded.bearer("acquire", "observe", "commit", tenant="library")
    async with tenure.connect(guarded.node.url, credential=bearer) as client:
        async with client.lease("k", ttl=30, owner="o") as held:
            await held.commit("value", mode="once")
            seen = []
            async for event in client.watch(after=0):
                seen.append(event.kind)
                if event.kind == "committed":
                    break
        assert seen[0] == "granted"
        with pytest.raises(tenure.NotAuthorized, match="force"):
            await client.break_("k", reason="r")
    async with tenure.connect(guarded.node.url, credential="tenure.no.such") as client:
        with pytest.raises(tenure.NotAuthorized):
            await client.get("k")


async def test_a_quota_is_set_shown_and_reset(guarded: Guarded) -> None:
    bearer = await guarded.bearer(tenant="narrow")
    quota = await cli(guarded, "tenants", "set", "narrow", "--leases", "1", "--ttl-max", "1m")
    assert (quota.returncode, "leases 1, ttl-max 1m00s" in quota.stdout) == (0, True), quota
    assert (await cli(guarded, "acquire", "a", "--ttl", "30s", credential=bearer)).returncode == 0
    refused = await cli(guarded, "acquire", "b", "--ttl", "30s", credential=bearer)
    assert (refused.returncode, "leases" in refused.stderr) == (1, True)
    assert "ttl-max" in (await cli(guarded, "tenants", "list")).stdout
    listed = json.loads((await cli(guarded, "tenants", "list", "-o", "json")).stdout)["tenants"]
    assert [body["leases"] for body in listed if body["tenant"] == "narrow"] == [1]
    assert (await cli(guarded, "tenants", "reset", "narrow")).returncode == 0
    assert (await cli(guarded, "acquire", "b", "--ttl", "30s", credential=bearer)).returncode == 0
