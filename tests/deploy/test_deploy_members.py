"""A real cluster of three becomes one of five and one of three others, under load, by the command line. One
of changed members is backed up, restored with others, and joined."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy_kit import free_port
from deploy_nodes import PATIENCE_S, NodeProcess, await_that, nodes
from deploy_renewing import TTL_MS, Renewing, view

EXIT_REMOVED = 5
LONG_MS = 3_600_000


def variables(name: str, known: dict[str, tuple[int, int]]) -> dict[str, str]:
    """A node's configuration; `known` are the ports of the members, itself among them."""
    port, peer = known[name]
    members = ",".join(f"{n}=127.0.0.1:{q}@http://127.0.0.1:{p}" for n, (p, q) in known.items())
    return {
        "TENURE_CLUSTER_ID": "deploy",
        "TENURE_NODE_ID": name,
        "TENURE_MEMBERS": members,
        "TENURE_HTTP_LISTEN": f"127.0.0.1:{port}",
        "TENURE_PEER_LISTEN": f"127.0.0.1:{peer}",
    }


def joining(directory: Path, name: str, known: dict[str, tuple[int, int]]) -> NodeProcess:
    """A node that is to join."""
    return NodeProcess(directory / name, {**variables(name, known), "TENURE_JOIN": "true"})


@contextlib.contextmanager
def ended(started: list[NodeProcess]) -> Iterator[None]:
    """Kill what is left of these at the end of the block."""
    try:
        yield
    finally:
        for node in started:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


def tenure(node: NodeProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenure.cli", "--endpoints", f"http://127.0.0.1:{node.port}"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=4 * PATIENCE_S)


def addresses(ports: tuple[int, int]) -> list[str]:
    port, peer = ports
    return ["--peer", f"127.0.0.1:{peer}", "--http", f"http://127.0.0.1:{port}"]


STEPS = (
    ("n4", ("add", "n4")),
    ("n5", ("add", "n5")),
    ("", ("remove", "n1")),
    ("n6", ("replace", "n2", "n6")),
    ("", ("remove", "n3")),
)
"""Which node is started, and what is typed then: three become five, and three others are left."""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_become_five_and_three_others_under_load_and_no_renewal_fails(tmp_path: Path) -> None:
    started: list[NodeProcess] = []
    with nodes(tmp_path, 3) as cluster, ended(started), Renewing(cluster) as renewing:
        began = time.monotonic()
        status, answer = cluster[0].call("acquire", key="long", owner="o", ttl_ms=LONG_MS)
        assert status == 200
        long = answer["lease"]
        ports = {
            member["id"]: tuple(int(member[key].rpartition(":")[2]) for key in ("http", "peer"))
            for member in view(cluster[0])["members"]
        }
        present = {f"n{n}": node for n, node in enumerate(cluster, 1)}
        sizes = []
        for new, words in STEPS:
            where = []
            if new:
                ports[new] = (free_port(), free_port())
                node = joining(tmp_path, new, {name: ports[name] for name in (*present, new)})
                started.append(node)
                node.start()
                where = addresses(ports[new])
            renewing.await_more()
            leaving = None if words[0] == "add" else present.pop(words[1])
            # Whoever is asked through a node that is leaving may be told that it stops.
            renewing.cluster = [*present.values()]
            renewing.await_more()
            asked = next(iter(present.values()))
            done = tenure(asked, "members", *words, *where)
            assert done.returncode == 0, done.stderr + done.stdout
            if leaving is not None:
                assert leaving.process is not None
                assert leaving.process.wait(PATIENCE_S) == EXIT_REMOVED
                assert "has been removed from cluster deploy" in leaving.log
            if new:
                present[new] = node
                await_that(lambda node=node: node.ready, f"{new} to serve")
            renewing.cluster = [*present.values()]
            renewing.await_more()
            members = view(asked)["members"]
            assert all(member["voter"] for member in members)
            sizes.append(len(members))
        assert sizes == [4, 5, 4, 4, 3]
        assert renewing.failed == []
        assert renewing.shortest_ms > 0.9 * TTL_MS
        assert [member["id"] for member in view(present["n6"])["members"]] == ["n4", "n5", "n6"]

        # A lease that nobody has touched lasts as long as it was to last, and not shorter.
        status, body = present["n6"].ask("GET", "/v1/leases/long")
        kept, left_ms = json.loads(body), LONG_MS - (time.monotonic() - began) * 1000
        assert (status, kept["token"]) == (200, long["token"])
        assert kept["expires_in_ms"] >= 0.99 * left_ms

        # Who was removed does not come back with its data, and says why at once.
        cluster[0].start()
        assert cluster[0].process is not None
        assert cluster[0].process.wait(PATIENCE_S) == EXIT_REMOVED
        assert "removed from the cluster" in cluster[0].log.splitlines()[-1]

        refused = tenure(present["n4"], "members", "add", "n1", *addresses(ports["n1"]))
        assert refused.returncode != 0
        assert "not given again" in refused.stderr

        # The new ones find one another by what the log says of them.
        for node in present.values():
            node.stop()
        for node in present.values():
            node.start()
        await_that(lambda: all(node.ready for node in present.values()), "the new cluster to serve again")
        renewing.await_more()


@pytest.mark.process
@pytest.mark.slow
def test_what_the_living_could_not_go_on_without_is_refused(tmp_path: Path) -> None:
    with nodes(tmp_path, 3) as cluster:
        leading = next(node for node in cluster if view(node)["role"] == "leader")
        dead, alive = [node for node in cluster if node is not leading]
        assert dead.process is not None
        dead.process.kill()
        dead.process.wait()
        status, body = leading.ask("DELETE", f"/v1/cluster/members/{view(alive)['node']}")
        answer = json.loads(body)
        while answer["code"] == "outcome_unknown":
            status, body = leading.ask("DELETE", f"/v1/cluster/members/{view(alive)['node']}")
            answer = json.loads(body)
        assert (status, answer["code"]) == (409, "change_refused"), answer
        assert leading.call("acquire", key="k", owner="o", ttl_ms=10_000)[0] == 200


@pytest.mark.process
@pytest.mark.slow
def test_a_cluster_of_changed_members_is_restored_with_others_and_joined(tmp_path: Path) -> None:
    started: list[NodeProcess] = []
    ports = {name: (free_port(), free_port()) for name in ("n2", "n7", "n8")}
    backup = tmp_path / "backup"
    with ended(started):
        with nodes(tmp_path, 1) as [first]:
            [own] = view(first)["members"]
            ports["n1"] = (first.port, int(own["peer"].rpartition(":")[2]))
            second = joining(tmp_path, "n2", {name: ports[name] for name in ("n1", "n2")})
            started.append(second)
            second.start()
            assert tenure(first, "members", "add", "n2", *addresses(ports["n2"])).returncode == 0
            assert first.call("acquire", key="k", owner="o", ttl_ms=600_000)[0] == 200
            await_that(lambda: second.ready, "n2 to serve")
            saved = tenure(second, "backup", "save", str(backup))
            assert saved.returncode == 0, saved.stderr
            second.stop()

        own_ports = {"n7": ports["n7"]}
        restored = NodeProcess(tmp_path / "n7", variables("n7", own_ports))
        started.append(restored)
        made = subprocess.run(
            [sys.executable, "-m", "tenure_cluster.cli", "restore", str(backup)],
            env={**os.environ, **variables("n7", own_ports), "TENURE_DATA_DIR": str(tmp_path / "n7/data")},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert made.returncode == 0, made.stderr
        restored.start()
        await_that(lambda: restored.ready, "the restored cluster to serve")
        assert [member["id"] for member in view(restored)["members"]] == ["n7"]

        joined = joining(tmp_path, "n8", {name: ports[name] for name in ("n7", "n8")})
        started.append(joined)
        joined.start()
        done = tenure(restored, "members", "add", "n8", *addresses(ports["n8"]))
        assert done.returncode == 0, done.stderr + done.stdout
        await_that(lambda: joined.ready, "n8 to serve")
        assert "was restored from a backup, as " in joined.log
        origins = [(tmp_path / name / "data/origin").read_bytes() for name in ("n7", "n8")]
        assert origins[0] == origins[1]
        assert [(member["id"], member["voter"]) for member in view(joined)["members"]] == [
            ("n7", True),
            ("n8", True),
        ]
