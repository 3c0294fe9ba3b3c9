"""When the rules of a version come into force: once every member knows them, and by the log."""

from pathlib import Path

import pytest
from service_cluster import Cluster, acquired, cluster, until

from tenure_cluster.lease.rules import PRESENT
from tenure_cluster.service import rules as rules_module
from tenure_cluster.service.versions import OWN

BEFORE = (PRESENT - 1, "0.1.0")


def rules(running: Cluster) -> set[int]:
    return {part.replica.table.rules for part in running.parts.values()}


async def test_a_new_cluster_adopts_the_rules_of_its_version(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        await running.leader()
        await until(lambda: rules(running) == {PRESENT}, "the rules everywhere")


async def test_beside_an_older_node_the_rules_stay_as_they_were_until_it_knows_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules_module, "BEGIN_S", 1.0)
    async with cluster(tmp_path, 3, knows={"n2": BEFORE}) as running:
        older = running.parts["n2"]
        for part in running.parts.values():
            part.raft.started_empty = False  # as if it had been there before: of others nothing is assumed
        await running.leader()
        await older.raft.hand_over(5.0)
        leader = await running.leader(but=older)
        await until(lambda: leader.raft.told_by("n2") == BEFORE, "the word of n2")
        looked = 0

        def look() -> None:
            nonlocal looked
            looked += 1
            office._see_to_it_as_it_is()

        office = leader.service._rules
        monkeypatch.setattr(office, "_see_to_it_as_it_is", office._see_to_it, raising=False)
        monkeypatch.setattr(office, "_see_to_it", look)
        await until(lambda: looked >= 2, "the leader to have looked twice")
        await acquired(leader, "k")
        assert rules(running) == {0}
        older.raft._transport.admission.knows = (OWN.tag, OWN.software)
        for link in running.around(older):
            link.cut()
        running.heal()
        await until(lambda: rules(running) == {PRESENT}, "the rules everywhere")
