"""What is shed, and in which order: those who hold keep holding."""

import asyncio
from pathlib import Path

import pytest
from service_cluster import acquired, ask, asking, cluster, refused

from tenure_cluster.service.admission import SHARES, Admission
from tenure_cluster.service.requests import OPERATIONS
from tenure_cluster.settings import Admission as AdmissionSettings


def test_every_operation_has_its_share() -> None:
    assert set(SHARES) == set(OPERATIONS)


def test_the_shedding_order_is_reads_then_acquires_then_releases_then_renewals() -> None:
    shares = [SHARES[name] for name in ("list_leases", "acquire", "release", "renew")]
    assert shares == sorted(set(shares))
    assert SHARES["renew"] == 1.0


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_each_operation_is_admitted_up_to_its_share_and_no_further(operation: str) -> None:
    admission = Admission(AdmissionSettings(pending_max=1_000))
    admitted_below = int(SHARES[operation] * 1_000)
    assert admission.refusal(operation, admitted_below - 1) is None
    problem = admission.refusal(operation, admitted_below)
    assert problem is not None
    assert (problem.code, problem.status) == ("overloaded", 429)
    assert problem.retry_after_s
    assert str(admitted_below) in problem.detail


def test_short_of_space_acquires_go_first_and_renewals_never() -> None:
    admission = Admission(AdmissionSettings(disk_reserve_bytes=1_000))

    def refused_with(free_bytes: int) -> set[str]:
        admission.note_free_bytes(free_bytes)
        return {name for name in OPERATIONS if admission.refusal(name, 0) is not None}

    assert refused_with(1_000) == set()
    assert refused_with(999) == {"acquire", "open_session"}
    assert refused_with(499) == {"acquire", "open_session", "commit", "break", "delete_record"}
    assert refused_with(0) & {"renew", "release", "abandon", "close_session"} == set()
    assert refused_with(1_000) == set()


async def test_a_leader_short_of_space_refuses_acquires_and_renews(tmp_path: Path) -> None:
    free = [1 << 40]
    async with cluster(tmp_path, free_bytes=lambda: free[0]) as running:
        node = await running.leader()
        lease = await acquired(node, "k")
        free[0] = 0
        node.service.admission.note_free_bytes(0)
        assert (await refused(ask(node, "acquire", key="k2", owner="a", ttl_ms=5000))).code == "overloaded"
        assert (await ask(node, "renew", lease_id=lease.lease_id)).lease.token == lease.token
        assert (await ask(node, "release", lease_id=lease.lease_id)).status == "released"


async def test_an_overloaded_leader_refuses_the_surplus_at_once_and_does_the_rest(tmp_path: Path) -> None:
    async with cluster(tmp_path, admission=AdmissionSettings(pending_max=100)) as running:
        node = await running.leader()
        lease = await acquired(node, "held")
        acquires = [asking(node, "acquire", key=f"k{n}", owner="a", ttl_ms=5000) for n in range(80)]
        renewal = asking(node, "renew", lease_id=lease.lease_id)
        answers = await asyncio.gather(*acquires)
        codes = [getattr(answer, "code", "granted") for answer in answers]
        assert codes == ["granted"] * 60 + ["overloaded"] * 20
        assert (await renewal).lease.token == lease.token  # type: ignore[union-attr]
        assert node.service.proposer.pending == 0
        await acquired(node, "k79")


async def test_only_so_many_may_wait_on_one_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, admission=AdmissionSettings(polls_max=2)) as running:
        node = await running.leader()
        await acquired(node, "k")
        fields = {"key": "k", "owner": "b", "ttl_ms": 5000, "wait_ms": 400}
        first = [asking(node, "acquire", **fields, request_id=f"r{n}") for n in range(2)]
        await asyncio.sleep(0.1)
        problem = await refused(ask(node, "acquire", **fields))
        assert problem.code == "overloaded"
        assert [(await task).status for task in first] == ["waiting"] * 2  # type: ignore[union-attr]
