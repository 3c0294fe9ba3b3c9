"""Nodes of two versions side by side: what a member would have to stop at is not proposed."""

from pathlib import Path
from typing import Any

import pytest
from service_cluster import TENANT, Cluster, Part, acquired, cluster, request, until

from tenure_cluster.service import proposals
from tenure_cluster.service.asks import READS, Ask
from tenure_cluster.service.credential_replies import CredentialReply, QuotaReply
from tenure_cluster.service.credential_requests import (
    CreateCredentialRequest,
    EntrustRequest,
    ListCredentialsRequest,
    SetQuotaRequest,
)
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import RenewedReply
from tenure_cluster.service.requests import OPERATIONS
from tenure_cluster.service.versions import BASE, NEWER, OLD, OWN, Knows, VersionFile, Versions, tag_of

ENTRUST = EntrustRequest(
    asked=CreateCredentialRequest(name="n", rights=["observe"]), credential_id="c", digest=bytes(32)
)


class Told:
    """What of consensus is asked for."""

    def __init__(self, *, empty: bool = True, **words: tuple[int, str]) -> None:
        self.started_empty = empty
        self.words = words

    def told_by(self, peer: str) -> tuple[int, str] | None:
        return self.words.get(peer)


def versions(told: Told, kept: VersionFile | None = None) -> Versions:
    return Versions(told, "n1", lambda: ["n1", "n2", "n3"], kept, Knows(20, "2.0"))


def test_what_was_there_from_the_beginning_is_never_held_back() -> None:
    assert versions(Told(empty=False, n2=(0, ""))).refusal(BASE) is None


def test_a_command_waits_for_the_member_that_knows_least() -> None:
    told = Told(n2=(18, "1.8"), n3=(20, "2.0"))
    asked = versions(told)
    assert asked.refusal(18) is None
    refusal = asked.refusal(19)
    assert refusal is not None
    assert (refusal.code, refusal.status, refusal.extra["nodes"]) == ("mixed_versions", 503, ["n2"])
    assert "n2 runs version 1.8" in refusal.detail
    assert refusal.retry_after_s
    told.words["n2"] = (21, "2.1")
    assert asked.refusal(19) is None


def test_a_new_member_counts_from_when_it_is_one() -> None:
    members = ["n1", "n2"]
    told = Told(empty=False, n2=(20, "2.0"))
    asked = Versions(told, "n1", lambda: members, None, Knows(20, "2.0"))
    assert asked.refusal(20) is None
    members.append("n4")
    refusal = asked.refusal(20)
    assert refusal is not None
    assert "n4 has not said yet which version it runs" in refusal.detail
    assert asked.refusal(20, ["n2"]) is None  # where only the leader must know it
    told.words["n4"] = (20, "2.0")
    assert asked.refusal(20) is None
    members.remove("n4")
    asked.refresh()
    members.append("n4")
    told.words.clear()
    assert asked.refusal(20) is not None, "what it said as a member of before is forgotten"


def test_no_member_is_asked_for_more_than_this_node_knows_itself() -> None:
    refusal = versions(Told(n2=(40, "4.0"), n3=(40, "4.0"))).refusal(21)
    assert refusal is not None
    assert refusal.extra["nodes"] == ["n1"]


def test_a_member_that_says_nothing_is_of_an_older_version() -> None:
    refusal = versions(Told(n2=(0, ""), n3=(20, "2.0"))).refusal(BASE + 1)
    assert refusal is not None
    assert "n2 runs an older version" in refusal.detail


def test_a_member_never_heard_of_counts_as_this_node_in_a_new_cluster_alone() -> None:
    assert versions(Told()).refusal(20) is None
    refusal = versions(Told(empty=False)).refusal(BASE + 1)
    assert refusal is not None
    assert refusal.extra["nodes"] == ["n2", "n3"]


def test_last_words_outlive_the_process(tmp_path: Path) -> None:
    file = VersionFile(tmp_path / "versions.json")
    versions(Told(n2=(17, "1.7"), n3=(20, "2.0"), n4=(20, "2.0")), file).refresh()
    after = versions(Told(empty=False), VersionFile(tmp_path / "versions.json"))
    assert (after.of("n2"), after.of("n3"), after.of("n4")) == (Knows(17, "1.7"), Knows(20, "2.0"), OLD)
    # Who is no member any more is forgotten, and whoever comes back with another version says so.
    changed = versions(Told(empty=False, n2=(0, "")), file)
    changed.refresh()
    assert VersionFile(tmp_path / "versions.json").load()["n2"] == OLD


@pytest.mark.parametrize("content", [b"", b"{", b'{"n2": 3}', b'{"n2": {"tag": "x", "software": ""}}'])
def test_a_damaged_file_is_no_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "versions.json").write_bytes(content)
    assert VersionFile(tmp_path / "versions.json").load() == {}


def test_a_file_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    VersionFile(tmp_path / "none" / "versions.json").save({"n2": OLD})
    assert "could not be written" in caplog.text


async def says(running: Cluster, part: Part, to: Part, knows: tuple[int, str]) -> None:
    """As after a start with another version."""
    part.raft._transport.admission.knows = knows
    for link in running.around(part):
        link.cut()
    running.heal()
    await until(lambda: to.raft.told_by(part.node_id) == knows, "the word of the other")


async def test_a_newer_command_is_held_back_wherever_it_comes_from(tmp_path: Path) -> None:
    """Alone, in a batch, or in a frame of a stream, whose other operations go on."""
    async with cluster(tmp_path, 3) as running:
        other = await running.follower()
        leader = await running.leader()
        await says(running, other, leader, (BASE, "1.0"))
        tags: list[int] = []
        leader.replica.on_applied = lambda commands, results, events: tags.extend(
            tag_of(type(command)) for command in commands
        )
        lease = await acquired(leader, "job", mode="permit", slots=1)
        asked = [
            ("renew", request("renew", lease_id=lease.lease_id)),
            ("resize", request("resize", key="job", slots=2)),
            ("resize", request("resize", key="job", slots=3)),
            ("renew", request("renew", lease_id=lease.lease_id)),
            ("get_lease", request("get_lease", key="job")),
        ]
        for part in running.parts.values():
            alone = await part.service.call("resize", TENANT, request("resize", key="job", slots=2))
            batch = await part.service.batch(TENANT, asked[:3])
            answers: dict[int, Any] = {}
            part.service.submit(TENANT, asked, answers.__setitem__)
            await until(lambda told=answers: len(told) == len(asked), "all answers")
            for refused in (alone, *batch[1:], answers[1], answers[2]):
                assert isinstance(refused, Problem)
                assert refused.code == "mixed_versions"
            assert not any(isinstance(answers[place], Problem) for place in (0, 3, 4))
        assert tags
        assert max(tags) <= BASE
        await says(running, other, leader, (OWN.tag, OWN.software))
        leader.service.submit(TENANT, asked, answers.__setitem__)
        await until(lambda: answers[2].status == "resized", "another number of slots")


async def test_an_older_leader_is_not_asked_for_a_newer_command(tmp_path: Path) -> None:
    """It would not understand the question, nor answer anything that stands in it."""
    async with cluster(tmp_path, 3) as running:
        leader, follower = await running.leader(), await running.follower()
        await acquired(leader, "job", mode="permit", slots=1)
        await says(running, leader, follower, (BASE, "1.0"))
        resize = request("resize", key="job", slots=2)
        answers: dict[int, Any] = {}
        follower.service.submit(TENANT, [("resize", resize)], answers.__setitem__)
        alone = await follower.service.call("resize", TENANT, resize)
        [batched] = await follower.service.batch(TENANT, [("resize", resize)])
        for refused in (alone, batched, answers[0]):
            assert isinstance(refused, Problem)
            assert (refused.code, refused.extra["node"]) == ("mixed_versions", leader.node_id)


def test_every_operation_that_needs_a_newer_command_says_so() -> None:
    """What a request becomes is looked for among the newer commands by making it."""
    examples: dict[str, dict[str, Any]] = {
        "acquire": {"owner": "o", "key": "k", "ttl_ms": 9_000},
        "renew": {"lease_id": "l"},
        "release": {"lease_id": "l"},
        "handover": {"lease_id": "l", "to_session_id": "s"},
        "park": {"lease_id": "l", "limit_ms": 9_000},
        "unpark": {"lease_id": "l"},
        "abandon": {"request_id": "r"},
        "break": {"key": "k", "reason": "r"},
        "resize": {"key": "k", "slots": 1},
        "commit": {"key": "k", "lease_id": "l", "token": 1, "mode": "once"},
        "delete_record": {"key": "k"},
        "open_session": {"owner": "o", "ttl_ms": 9_000},
        "close_session": {"session_id": "s"},
    }
    assert set(examples) == set(OPERATIONS) - READS
    needed = {}
    for operation, fields in examples.items():
        asked = Ask(operation, TENANT, request(operation, **fields))
        command = proposals._COMMANDS[type(asked.request)](asked, asked.request, lambda: "id", 0)
        if type(command) in NEWER:
            needed[type(asked.request)] = NEWER[type(command)]
    assert needed == proposals.NEEDED


async def test_beside_an_older_node_nothing_new_is_proposed_and_everything_else_is(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, knows={"n2": (0, "")}) as running:
        leader, follower = await running.leader(), await running.follower()
        tags: list[int] = []
        for part in running.parts.values():
            part.replica.on_applied = lambda commands, results, events: tags.extend(
                tag_of(type(command)) for command in commands
            )

        def heard() -> bool:
            return all(
                part.raft.told_by("n2") is not None for name, part in running.parts.items() if name != "n2"
            )

        await until(heard, "the word of n2")
        newer = [part for part in (leader, follower) if part.node_id != "n2"]
        for part in newer:
            for operation, asked in [
                ("entrust", ENTRUST),
                ("set_quota", SetQuotaRequest(tenant="t", leases_max=1)),
                ("list_credentials", ListCredentialsRequest()),
            ]:
                refused = await part.service.call(operation, TENANT, asked)
                assert isinstance(refused, Problem), (operation, refused)
                assert (refused.code, refused.extra["node"]) == ("mixed_versions", "n2")
        lease = await acquired(follower, "job")
        renewed = await leader.service.call("renew", TENANT, request("renew", lease_id=lease.lease_id))
        assert isinstance(renewed, RenewedReply)
        assert tags
        assert max(tags) <= BASE


async def test_as_soon_as_all_know_it_it_is_proposed(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        other = await running.follower()
        leader = await running.leader()
        await says(running, other, leader, (BASE + 1, "1.1"))
        refused = await leader.service.call("set_quota", TENANT, SetQuotaRequest(tenant="t", leases_max=1))
        assert isinstance(refused, Problem)
        assert refused.code == "mixed_versions"
        made = await leader.service.call("entrust", TENANT, ENTRUST)
        assert isinstance(made, CredentialReply), "that one it knows"
        await says(running, other, leader, (OWN.tag, OWN.software))
        done = await leader.service.call("set_quota", TENANT, SetQuotaRequest(tenant="t", leases_max=1))
        assert isinstance(done, QuotaReply)
