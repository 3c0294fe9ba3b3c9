"""Credentials in the replicated state: made, revoked, rotated, kept by snapshots."""

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lease_world import EPOCH_WALL_MS, World

from tenure_cluster.lease import credentials, limits, snapshot
from tenure_cluster.lease.credentials import (
    CreateCredential,
    Credential,
    CredentialIs,
    CredentialRevoked,
    CredentialsFull,
    LastAdministrator,
    NoCredential,
    NotFirst,
    RevokeCredential,
    RotateCredential,
)
from tenure_cluster.lease.results import Invalid
from tenure_cluster.lease.table import LeaseTable

HOUR_MS = 3_600_000


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def create(world: World, credential_id: str, *, secret: str = "s", **fields: Any) -> Any:
    command = CreateCredential(
        credential_id=credential_id,
        tenant=fields.pop("tenant", "team"),
        name=fields.pop("name", "an agent"),
        rights=fields.pop("rights", ["acquire"]),
        prefixes=fields.pop("prefixes", [""]),
        digest=fields.pop("digest", digest(secret)),
        lifetime_ms=fields.pop("lifetime_ms", 0),
        first=fields.pop("first", False),
        actor=fields.pop("actor", "root"),
        wall_ms=world.wall_ms,
    )
    assert not fields
    return world.apply(command)


def revoke(world: World, credential_id: str) -> Any:
    return world.apply(RevokeCredential(credential_id, "root", world.wall_ms))


def rotate(world: World, credential_id: str, secret: str, overlap_ms: int = HOUR_MS) -> Any:
    return world.apply(RotateCredential(credential_id, digest(secret), overlap_ms, "root", world.wall_ms))


def made(result: Any) -> Credential:
    assert isinstance(result, CredentialIs), result
    return result.credential


@pytest.fixture
def world() -> World:
    return World()


def test_a_credential_is_kept_as_it_was_made_without_its_secret(world: World) -> None:
    credential = made(create(world, "c", secret="open sesame", rights=["commit", "acquire"]))
    assert (credential.tenant, credential.rights, credential.created_by) == (
        "team",
        ["acquire", "commit"],
        "root",
    )
    assert credential.created_wall_ms == EPOCH_WALL_MS + world.now_ms
    assert world.table.credentials == {"c": credential}
    assert b"open sesame" not in b"".join(snapshot.dump(world.table))


def test_making_it_again_with_the_same_secret_is_answered_with_the_first(world: World) -> None:
    first = made(create(world, "c", secret="one"))
    world.wait(5_000)
    assert made(create(world, "c", secret="one")) == first
    assert isinstance(create(world, "c", secret="two"), Invalid)


def test_the_first_administrator_is_made_once(world: World) -> None:
    made(create(world, "worker"))
    made(create(world, "root", rights=list(credentials.RIGHTS), first=True))
    assert create(world, "other", rights=["admin"], first=True) == NotFirst()
    assert list(world.table.credentials) == ["worker", "root"]


def test_the_last_administrator_cannot_be_revoked(world: World) -> None:
    made(create(world, "worker"))
    made(create(world, "root", rights=["admin"]))
    assert revoke(world, "root") == LastAdministrator()
    made(create(world, "next", rights=["admin"]))
    assert isinstance(revoke(world, "root"), CredentialRevoked)
    assert revoke(world, "root") == NoCredential()
    assert isinstance(revoke(world, "worker"), CredentialRevoked)


def test_rotation_leaves_the_old_secret_for_the_overlap(world: World) -> None:
    made(create(world, "c", secret="one"))
    credential = made(rotate(world, "c", "two"))
    assert [secret.digest for secret in credential.secrets] == [digest("two"), digest("one")]
    assert [secret.until_wall_ms for secret in credential.secrets] == [0, world.wall_ms + HOUR_MS]
    assert made(rotate(world, "c", "two")) == credential


def test_rotation_made_twice_locks_no_bearer_out_and_one_without_overlap_locks_all_out(world: World) -> None:
    made(create(world, "c", secret="one"))
    made(rotate(world, "c", "two"))
    world.wait(1_000)
    credential = made(rotate(world, "c", "three"))
    assert [secret.digest for secret in credential.secrets] == [digest("three"), digest("two"), digest("one")]
    world.wait(HOUR_MS - 1_000)
    credential = made(rotate(world, "c", "four"))
    assert [secret.digest for secret in credential.secrets] == [
        digest("four"),
        digest("three"),
        digest("two"),
    ]
    alone = made(rotate(world, "c", "five", overlap_ms=0))
    assert [secret.digest for secret in alone.secrets] == [digest("five")]


def test_a_credential_has_no_more_than_so_many_secrets(world: World) -> None:
    made(create(world, "c", secret="0"))
    for number in range(1, 10):
        credential = made(rotate(world, "c", str(number)))
    assert [secret.digest for secret in credential.secrets] == [digest(str(n)) for n in (9, 8, 7, 6)]


def test_rotation_begins_the_lifetime_anew_but_not_that_of_the_old_secret(world: World) -> None:
    before = made(create(world, "c", lifetime_ms=HOUR_MS))
    assert before.expires_wall_ms == world.wall_ms + HOUR_MS
    world.wait(HOUR_MS // 2)
    after = made(rotate(world, "c", "two", overlap_ms=10 * HOUR_MS))
    assert after.expires_wall_ms == world.wall_ms + HOUR_MS
    assert after.secrets[1].until_wall_ms == before.expires_wall_ms


@pytest.mark.parametrize(
    "wrong",
    [
        {"rights": []},
        {"prefixes": []},
        {"prefixes": [str(n) for n in range(limits.CREDENTIAL_PREFIXES_MAX + 1)]},
        {"digest": b"short"},
        {"lifetime_ms": -1},
        {"tenant": ""},
        {"credential_id": ""},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_command_out_of_bounds_changes_nothing(world: World, wrong: dict[str, Any]) -> None:
    assert isinstance(create(world, wrong.pop("credential_id", "c"), **wrong), Invalid)
    assert not world.table.credentials


def test_there_is_a_bound_to_how_many_there_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CREDENTIALS_MAX", 2)
    made(create(world, "a"))
    made(create(world, "b"))
    assert create(world, "c") == CredentialsFull(2)


def test_credentials_survive_a_restart_beside_leases(world: World) -> None:
    world.granted("k", ttl_ms=30_000)
    kept = made(create(world, "c", prefixes=["b/", "a/"], lifetime_ms=HOUR_MS))
    made(rotate(world, "c", "two"))
    world.restart()
    assert world.table.credentials["c"].prefixes == kept.prefixes == ["a/", "b/"]
    assert len(world.table.credentials["c"].secrets) == 2


def test_a_table_without_credentials_is_written_as_the_version_before_wrote_it(world: World) -> None:
    world.table.rules = world.replica.table.rules = 0
    world.granted("k")
    header, *_ = snapshot.dump(world.table)
    assert msgspec.msgpack.decode(header)[1] == 2
    assert len(msgspec.msgpack.decode(header)[4]) == 11
    made(create(world, "c"))
    header, *_ = snapshot.dump(world.table)
    assert msgspec.msgpack.decode(header)[1] == 3


def test_a_snapshot_whose_credential_contradicts_itself_is_refused(world: World) -> None:
    credential = made(create(world, "c"))
    world.table.credentials["c"] = msgspec.structs.replace(credential, secrets=[])
    with pytest.raises(snapshot.SnapshotDamaged, match="credential 'c'"):
        snapshot.load(list(snapshot.dump(world.table)))


def test_the_digest_tells_tables_of_different_credentials_apart(world: World) -> None:
    empty = snapshot.digest(LeaseTable())
    made(create(world, "c"))
    one = snapshot.digest(world.table)
    made(rotate(world, "c", "two"))
    assert len({empty, one, snapshot.digest(world.table)}) == 3


_steps = st.lists(
    st.tuples(
        st.sampled_from(["create", "first", "revoke", "rotate"]),
        st.sampled_from("abc"),
        st.sampled_from(["one", "two", "three"]),
        st.booleans(),
    ),
    max_size=30,
)


@given(_steps)
@settings(max_examples=60, deadline=None)
def test_any_history_gives_what_a_plain_model_says(steps: list[tuple[str, str, str, bool]]) -> None:
    """The model knows each credential as (is an administrator, its secrets)."""
    world = World()
    model: dict[str, tuple[bool, list[str]]] = {}
    for does, name, secret, admin in steps:
        admins = [other for other, (is_admin, _) in model.items() if is_admin]
        if does in ("create", "first"):
            rights = ["admin"] if admin else ["observe"]
            result = create(world, name, secret=secret, rights=rights, first=does == "first")
            if name in model:
                assert isinstance(result, CredentialIs if model[name][1][0] == secret else Invalid)
            elif does == "first" and admins:
                assert result == NotFirst()
            else:
                made(result)
                model[name] = (admin, [secret])
        elif name not in model:
            result = revoke(world, name) if does == "revoke" else rotate(world, name, secret)
            assert result == NoCredential()
        elif does == "revoke":
            if admins == [name]:
                assert revoke(world, name) == LastAdministrator()
            else:
                assert isinstance(revoke(world, name), CredentialRevoked)
                del model[name]
        else:
            made(rotate(world, name, secret))
            is_admin, secrets = model[name]
            if secrets[0] != secret:
                model[name] = (is_admin, [secret, *secrets][: limits.SECRETS_MAX])
        kept = {
            name: ("admin" in credential.rights, [secret.digest for secret in credential.secrets])
            for name, credential in world.table.credentials.items()
        }
        assert kept == {name: (is_admin, [*map(digest, of)]) for name, (is_admin, of) in model.items()}
    world.restart()
