"""A rolling upgrade of real processes from an older version to this tree, under load, and back.

    python tests/integration/upgrade_from.py                   from the last tag before this commit
    python tests/integration/upgrade_from.py v0.1.0 --back     from this tag (or commit), and back in between

Starts three nodes from the version's sources, and one after the other with this tree's. Clients of both
versions make the load (upgrade_load.py). Fails if a renewal failed, if a lease was lost, a token fell or an
event was missed; if something newer was taken while an older node would have had to stop at it, or is still
refused when all have been upgraded; if the nodes' states differ at the end. It needs the repository's
history, so it is no test of the suite.

With --back all nodes but one are upgraded at first and taken back, one after the other, and then upgraded
again. Once the last one has been upgraded, the rules of this version must come into force, and what is newer
must be taken; a node that is taken back after that must end by itself.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backup_story import states
from live_cluster import LiveCluster, LiveNode, until

import tenure
from tenure_cluster.lease.rules import PRESENT
from tenure_cluster.service.versions import OWN

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 300.0
BETWEEN_S: Final = 2.0
"""For how long the nodes of both versions serve side by side after each step."""

OWN_SOURCES: Final = f"{ROOT / 'cluster'}:{ROOT / 'client'}"

TAGS: Final = """
import typing
try:
    from tenure_cluster.service.versions import OWN
    print(OWN.tag)
except ImportError:
    from tenure_cluster.lease import commands
    kinds = typing.get_args(getattr(commands, "AnyCommand", commands.Command))
    print(max(kind.__struct_config__.tag for kind in kinds))
"""
"""Says how far the commands go that a version knows."""


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def last_version() -> str:
    """The tag of the version before this one."""
    here = git("rev-parse", "HEAD")
    for tag in git("tag", "--merged", "HEAD", "--sort=-version:refname", "--list", "v*").split():
        if git("rev-parse", f"{tag}^{{commit}}") != here:
            return tag
    sys.exit("there is no tag of an earlier version: name a tag or a commit")


def sources_of(version: str, directory: Path) -> str:
    """The version's packages, as a PYTHONPATH."""
    archive = directory / "sources.tar"
    commit = git("rev-parse", f"{version}^{{commit}}")
    git("archive", f"--output={archive}", commit, "cluster", "client")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return f"{directory / 'cluster'}:{directory / 'client'}"


def highest_tag(sources: str) -> int:
    environment = os.environ | {"PYTHONPATH": sources}
    return int(
        subprocess.run([sys.executable, "-c", TAGS], env=environment, check=True, capture_output=True).stdout
    )


# What is newer


Try = Callable[["tenure.Client"], Awaitable[object]]


async def _credential(client: "tenure.Client") -> None:
    made = await client.create_credential("after the upgrade", rights=["observe"])
    await client.revoke_credential(made.credential.credential_id)


async def _resize(client: "tenure.Client") -> None:
    grant = await client.acquire("upgrade/pool", owner="probe", ttl=60, mode="permit", slots=2)
    try:
        await client.resize("upgrade/pool", slots=3)
    finally:
        await client.release(grant.lease_id)


async def _audit(client: "tenure.Client") -> None:
    if not (await client.audit(limit=1)).recording:
        raise tenure.TenureError(code="not_recording", detail="the audit has not begun")


_names: Final = itertools.count(1)


async def _member(client: "tenure.Client") -> None:
    """One that will never come, as a learner, for a moment. Names are given once."""
    name = f"never-{next(_names)}"
    await client.add_member(name, peer="127.0.0.1:9", http="http://127.0.0.1:9")
    await client.remove_member(name)


@dataclass
class Probe:
    """Something that an older version may not know."""

    name: str
    since: Callable[[str, int], bool]
    """Whether a version with these sources, which knows commands up to a tag, does not know it."""
    ask: Try


PROBES: Final = (
    Probe("credentials", lambda sources, tag: tag < 16, _credential),
    Probe("the audit", lambda sources, tag: tag < 20, _audit),
    Probe("resizing", lambda sources, tag: tag < 32, _resize),
    Probe(
        "changes of members",
        lambda sources, tag: (
            not Path(sources.partition(":")[0], "tenure_cluster/raft/membership.py").exists()
        ),
        _member,
    ),
)


async def answer(node: LiveNode, probe: Probe) -> str:
    """What a node answers to something newer."""
    async with tenure.connect(node.url, timeout=5.0) as client:
        try:
            await probe.ask(client)
        except tenure.TenureError as error:
            return f"{error.code} ({error})"
    return "done"


# The load


class Clients:
    """upgrade_load.py with one version's client."""

    def __init__(self, name: str, sources: str, cluster: LiveCluster) -> None:
        self.name = name
        self._sources = sources
        self._endpoints = ",".join(node.url for node in cluster.nodes.values())
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        program = str(Path(__file__).with_name("upgrade_load.py"))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, program, f"upgrade/{self.name}", self._endpoints),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": self._sources},
        )

    async def counts(self, *, end: bool = False) -> dict[str, Any]:
        """So far; or at the end, which this brings about."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        if end:
            process.stdin.close()
            await process.stdin.wait_closed()
        else:
            process.stdin.write(b"\n")
            await process.stdin.drain()
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        assert line, f"the load of {self.name} has ended"
        told = json.loads(line)
        assert told["failed"] == [], (self.name, told["failed"])
        return dict(told)

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.communicate()


# The story


class Upgrade:
    def __init__(self, version: str, directory: Path) -> None:
        self._older = sources_of(version, directory)
        older_tag = highest_tag(self._older)
        self.probes = [probe for probe in PROBES if probe.since(self._older, older_tag)]
        self._is_newer = OWN.tag > older_tag
        said = ", ".join(probe.name for probe in self.probes) or "nothing that is held back"
        say(f"{version} knows commands up to {older_tag}, this tree up to {OWN.tag}; newer: {said}")
        self._cluster = LiveCluster(directory / "nodes", wait_ready=False)
        for node in self._cluster.nodes.values():
            node.extra_environment["PYTHONPATH"] = self._older
        self._loads = [
            Clients("older", self._older, self._cluster),
            Clients("newer", OWN_SOURCES, self._cluster),
        ]

    async def run(self, *, back: bool) -> None:
        cluster = self._cluster
        try:
            async with cluster:
                await cluster.ready(timeout_s=START_S)
                for load in self._loads:
                    await load.start()
                await self._under_load()
                if back:
                    await self._roll("upgraded", OWN_SOURCES, ask=False, but_the_last=True)
                    await self._roll("taken back", self._older, ask=False)
                await self._roll("upgraded", OWN_SOURCES, ask=True)
                await self._all_is_taken()
                if self._is_newer:
                    await self._no_way_back()
                await self._under_load()
                for load in self._loads:
                    say(f"clients of {load.name}: {told(await load.counts(end=True))}")
                await cluster.caught_up(START_S)
                await cluster.stop(*cluster.nodes.values())
                last = [each["state"] for each in states(cluster).values()]
                assert len({each["digest"] for each in last}) == 1, "the nodes' states differ"
                assert {each["rules"] for each in last} == {PRESENT}, "older rules are in force"
                say("no renewal failed, no lease was lost, no event was missed; the states are the same")
        finally:
            for load in self._loads:
                await load.kill()

    async def _roll(self, what: str, sources: str, *, ask: bool, but_the_last: bool = False) -> None:
        """One node after the other, the leader last, if it is not left out."""
        cluster = self._cluster
        followers = await cluster.followers()
        left = [*followers, *(node for node in cluster.nodes.values() if node not in followers)]
        if but_the_last:
            del left[-1]
        while left:
            node = left.pop(0)
            await asyncio.sleep(BETWEEN_S)
            await cluster.stop(node)
            node.extra_environment["PYTHONPATH"] = sources
            cluster.start(node)
            await cluster.ready(timeout_s=START_S)
            await self._under_load()
            answers = [f"{probe.name}: {await answer(node, probe)}" for probe in self.probes] if ask else []
            say(f"{node.node_id} {what}; {'; '.join(answers) or 'nothing newer was asked for'}")
            assert not left or not any(one.endswith(": done") for one in answers), "taken beside older nodes"
            cluster.assert_all_run()

    async def _all_is_taken(self) -> None:
        for node in self._cluster.nodes.values():
            for probe in self.probes:

                async def taken(node: LiveNode = node, probe: Probe = probe) -> bool:
                    return await answer(node, probe) == "done"

                await until(taken, 60, f"{probe.name} at {node.node_id}", 0.5)
        say("all that is newer is taken, by every node")

    async def _no_way_back(self) -> None:
        """An older node that finds something newer in its log stops, whatever it is, and says so; the others
        go on, and so does it when it is upgraded again."""
        cluster = self._cluster
        node = (await cluster.followers())[0]
        await cluster.stop(node)
        node.extra_environment["PYTHONPATH"] = self._older
        lines = len(node.log_text().splitlines())
        cluster.start(node)
        code = await cluster.exit_code(node, START_S)
        assert code != 0
        said = node.log_text().splitlines()[lines:]
        say(f"{node.node_id} taken back after that: it ended with {code}: {said[-1][:300] if said else ''}")
        await self._under_load()
        node.extra_environment["PYTHONPATH"] = OWN_SOURCES
        cluster.start(node)
        await cluster.ready(timeout_s=START_S)
        say(f"{node.node_id} upgraded again")

    async def _under_load(self) -> None:
        """The load has gone on since."""
        for load in self._loads:
            before = await load.counts()

            async def gone_on(load: Clients = load, before: dict[str, Any] = before) -> bool:
                now = await load.counts()
                return all(now[name] > before[name] for name in ("renewals", "commits", "events"))

            await until(gone_on, START_S, f"the load of {load.name} to go on", 0.2)


def told(counts: dict[str, Any]) -> str:
    shown = [f"{counts[name]:,} {name}" for name in ("renewals", "commits", "releases", "events")]
    shown.append(f"longest renewal {counts['longest_renewal_s']} s")
    shown += [f"{count} {name}" for name, count in counts["troubles"].items()]
    return ", ".join(shown)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "version", nargs="?", help="the older one, a tag or a commit; the last tag if none is given"
    )
    parser.add_argument(
        "--back", action="store_true", help="take the nodes back first, and upgrade them again"
    )
    options = parser.parse_args()
    version = options.version or last_version()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(Upgrade(version, Path(directory)).run(back=options.back))


if __name__ == "__main__":
    main()
