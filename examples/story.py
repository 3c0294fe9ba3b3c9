"""The story of the README, told with real calls on a real cluster of three nodes; `make run` starts it.

Two agents compete for one key. The leader is killed in the middle, the first agent falls asleep, and its
late write is refused although nobody has written since. Then the cluster is left running to be tried, until
Ctrl-C. Every step checks what it tells: with --exit the exit code is 0 only if all of it came true.
"""

# ruff: noqa: E402
import signal

# Ctrl-C while the libraries load simply ends the program; `story` takes it up again.
INTERRUPTIBLE = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if INTERRUPTIBLE:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import asyncio
import json
import os
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

import click

import tenure
from tenure import Client, Grant

KEY = "payment/security/42"
PATIENCE_S = 30.0
"""How long a condition is waited for before the story is called failed."""
HTTP_PORT, PEER_PORT = 7601, 7701

T = TypeVar("T")


class NotAsTold(Exception):
    """Something happened that the story says does not."""


def fail(what: str) -> NoReturn:
    raise NotAsTold(what)


class Teller:
    """Prints each step with what was called, what was answered, and how long that took."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.step = 0

    def say(self, text: str = "") -> None:
        click.echo(text)
        sys.stdout.flush()

    def heading(self, text: str) -> None:
        self.step += 1
        at = time.monotonic() - self.began
        self.say()
        self.say(click.style(f"{self.step}. {text}", bold=True) + click.style(f"   [{at:.1f} s]", dim=True))

    def note(self, text: str) -> None:
        self.say(f"     {text}")

    async def call(self, text: str, answer: Awaitable[T]) -> T:
        """Await a call; print it with its time. What was answered is printed by `answered`."""
        began = time.monotonic()
        self.say(f"   {text}")
        try:
            return await answer
        finally:
            self.took_ms = (time.monotonic() - began) * 1000

    def answered(self, text: str) -> None:
        self.say(f"   -> {text}" + click.style(f"   ({self.took_ms:.0f} ms)", dim=True))


class Cluster:
    """`tenured dev` as a process of its own, and the node that the story starts again by hand."""

    def __init__(self, directory: Path, teller: Teller) -> None:
        self.directory = directory
        self.teller = teller
        self.nodes: list[dict[str, Any]] = []
        self._dev: asyncio.subprocess.Process | None = None
        self._by_hand: list[asyncio.subprocess.Process] = []
        self._listening: asyncio.Task[None] | None = None
        self._serving = asyncio.Event()

    @property
    def urls(self) -> list[str]:
        return [node["http"] for node in self.nodes]

    async def start(self) -> None:
        http_port, peer_port = free_ports(3)
        arguments = ["dev", "--nodes", "3", "--data-dir", str(self.directory), "-o", "json"]
        arguments += ["--http-port", str(http_port), "--peer-port", str(peer_port)]
        self._dev = await tenured(arguments, stdout=asyncio.subprocess.PIPE)
        self._listening = asyncio.create_task(self._listen(self._dev))
        serving = asyncio.create_task(self._serving.wait())
        await asyncio.wait({serving, self._listening}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        if not self._serving.is_set():
            fail("the cluster did not start; what tenured dev said is above")
        self.read_nodes()

    def read_nodes(self) -> None:
        self.nodes = json.loads((self.directory / "cluster.json").read_text())["nodes"]

    def node(self, node_id: str) -> dict[str, Any]:
        return next(node for node in self.nodes if node["id"] == node_id)

    async def start_by_hand(self, node_id: str) -> list[str]:
        config = self.directory / self.node(node_id)["config"]
        arguments = ["run", "--config", str(config)]
        with to_end_of(config.with_name("tenured.log")) as log:
            self._by_hand.append(await tenured(arguments, stdout=log, stderr=log))
        return arguments

    async def stop(self) -> None:
        """End the cluster: `tenured dev` stops all nodes, also the one that was started by hand."""
        for process in [self._dev, *self._by_hand]:
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.wait()
        if self._listening is not None:
            await self._listening

    async def _listen(self, dev: asyncio.subprocess.Process) -> None:
        assert dev.stdout is not None
        async for line in dev.stdout:
            event = json.loads(line)
            if event["event"] == "serving":
                self._serving.set()
            elif event["event"] == "died":
                self.teller.note(f"tenured dev reports: {event['node']} {event['how']}")
            elif event["event"] == "runs_again":
                self.teller.note(f"tenured dev reports: {event['node']} runs again, pid {event['pid']}")
        await dev.wait()


async def tenured(arguments: Iterable[str], **streams: Any) -> asyncio.subprocess.Process:
    """Start `tenured` in a session of its own, so that Ctrl-C reaches the story alone, which then ends it
    in order."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tenure_cluster.cli",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        **streams,
    )


def to_end_of(path: Path) -> BinaryIO:
    return path.open("ab")


def free_ports(count: int) -> tuple[int, int]:
    """The first HTTP port and the first peer port: the usual ones if they are free, else the same further
    up."""
    for shift in range(0, 10_000, 200):
        ports = [first + shift + number for first in (HTTP_PORT, PEER_PORT) for number in range(count)]
        if all(map(is_free, ports)):
            return HTTP_PORT + shift, PEER_PORT + shift
    fail(f"no {count} free ports in a row, from {HTTP_PORT} and from {PEER_PORT} on")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def until(what: str, condition: Any) -> Any:
    """Ask again and again until `condition` gives something true."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := await condition():
            return found
        await asyncio.sleep(0.02)
    fail(f"waited {PATIENCE_S:.0f} s for {what}")


# -- the story


async def tell(teller: Teller, cluster: Cluster, client: Client, ttl: float) -> None:
    grant = await a_acquires(teller, client, ttl)
    await b_is_refused(teller, client, ttl)
    waiting = asyncio.create_task(client.acquire(KEY, owner="agent-b", ttl=ttl, wait=PATIENCE_S))
    try:
        await b_queues(teller, client)
        grant = await a_renews(teller, client, grant)
        dead = await leader_is_killed(teller, cluster, client)
        last_renewed = time.monotonic()
        grant = await a_still_holds(teller, client, grant)
        successor = await b_is_granted(teller, waiting, grant, last_renewed)
    finally:
        waiting.cancel()
    await late_commit_is_refused(teller, client, grant, successor)
    await b_commits(teller, client, successor)
    await node_starts_again(teller, cluster, client, dead)


async def a_acquires(teller: Teller, client: Client, ttl: float) -> Grant:
    teller.heading(f"Agent A acquires {KEY} for {ttl:g} s")
    acquire = client.acquire(KEY, owner="agent-a", ttl=ttl)
    grant = await teller.call(f'acquire("{KEY}", owner="agent-a", ttl={ttl:g})', acquire)
    teller.answered(f"granted, fencing token {grant.token}, expires in {grant.expires_in_ms / 1000:.1f} s")
    return grant


async def b_is_refused(teller: Teller, client: Client, ttl: float) -> None:
    teller.heading("Agent B wants it too, is refused, and is told who holds it")
    try:
        acquire = client.acquire(KEY, owner="agent-b", ttl=ttl)
        await teller.call(f'acquire("{KEY}", owner="agent-b", ttl={ttl:g})', acquire)
        fail("B was granted a key that A holds")
    except tenure.LeaseUnavailable as refused:
        if refused.holder is None or refused.holder.owner != "agent-a":
            fail(f"B was not told that A holds the key: {refused}")
        teller.answered(f"refused, {refused.code}: {refused}")


async def b_queues(teller: Teller, client: Client) -> None:
    teller.heading("B waits in line")
    teller.say(f'   acquire("{KEY}", owner="agent-b", wait={PATIENCE_S:g})   goes on in the background')

    async def queued() -> bool:
        return [waiter.owner for waiter in (await client.queue(KEY)).waiters] == ["agent-b"]

    await teller.call(f'queue("{KEY}")', until("B to be queued", queued))
    teller.answered("agent-a holds, agent-b waits at position 1")


async def a_renews(teller: Teller, client: Client, grant: Grant) -> Grant:
    teller.heading("A renews")
    renewed = await teller.call("renew(lease_id)", client.renew(grant.lease_id))
    if renewed.token != grant.token:
        fail(f"renewing changed the token from {grant.token} to {renewed.token}")
    teller.answered(f"expires in {renewed.expires_in_ms / 1000:.1f} s again, same token {renewed.token}")
    return renewed


async def leader_is_killed(teller: Teller, cluster: Cluster, client: Client) -> str:
    view = await client.cluster()
    if view.leader is None:
        fail("no node leads")
    victim = cluster.node(view.leader)
    teller.heading(f"The leader, {view.leader}, is killed by SIGKILL")
    os.kill(victim["pid"], signal.SIGKILL)
    teller.say(f"   kill -9 {victim['pid']}")
    return view.leader


async def a_still_holds(teller: Teller, client: Client, grant: Grant) -> Grant:
    teller.heading("The two nodes that are left go on, and A's lease is still A's")
    renewed = await teller.call("renew(lease_id)", client.renew(grant.lease_id))
    if renewed.token != grant.token:
        fail(f"the change of leader changed A's token from {grant.token} to {renewed.token}")
    teller.answered(f"renewed by the next leader, same token {renewed.token}")
    queue = await client.queue(KEY)
    if [waiter.owner for waiter in queue.waiters] != ["agent-b"]:
        fail(f"B lost its place in line: {queue.waiters}")
    teller.note("and agent-b has kept its place in line")
    return renewed


async def b_is_granted(
    teller: Teller, waiting: asyncio.Task[Grant], grant: Grant, last_renewed: float
) -> Grant:
    teller.heading("A falls asleep and stops renewing; its lease ends, and B is next")
    successor = await teller.call("B's acquire answers", waiting)
    if successor.owner != "agent-b" or successor.token <= grant.token:
        fail(f"B's token {successor.token} is not above A's {grant.token}")
    after = time.monotonic() - last_renewed
    if after < grant.ttl_ms / 1000:
        fail(f"B was granted {after:.2f} s after A's renewal, before A's {grant.ttl_ms} ms were over")
    teller.answered(f"granted, token {successor.token}, {after:.1f} s after A had renewed last")
    return successor


async def late_commit_is_refused(teller: Teller, client: Client, grant: Grant, successor: Grant) -> None:
    teller.heading("A wakes up, still believes, and writes its result. B has not written yet")
    if await client.record(KEY) is not None:
        fail("somebody has written already")
    commit = client.commit(
        KEY, lease_id=grant.lease_id, token=grant.token, mode="once", value="A's late result"
    )
    try:
        await teller.call(f'commit("{KEY}", token={grant.token}, value="A\'s late result")', commit)
        fail("A's late commit was accepted")
    except tenure.CommitRefused as refused:
        if (refused.code, refused.floor) != ("stale_token", successor.token):
            fail(f"refused, but as {refused.code} with floor {refused.floor}")
        teller.answered(f"refused: {refused.code}, the floor is {refused.floor}")


async def b_commits(teller: Teller, client: Client, successor: Grant) -> None:
    teller.heading("B writes its result")
    commit = client.commit(
        KEY, lease_id=successor.lease_id, token=successor.token, mode="once", value="B's result"
    )
    accepted = await teller.call(f'commit("{KEY}", token={successor.token}, value="B\'s result")', commit)
    teller.answered(f"accepted, revision {accepted.revision}")
    record = await client.record(KEY)
    if record is None or (record.value, record.token) != ("B's result", successor.token):
        fail(f"the record is {record}")
    teller.note(f"the record of {KEY} is {record.value!r}, written with token {record.token}")


async def node_starts_again(teller: Teller, cluster: Cluster, client: Client, dead: str) -> None:
    teller.heading(f"The killed node, {dead}, is started again by hand and catches up")
    began = time.monotonic()
    arguments = await cluster.start_by_hand(dead)
    teller.say(f"   tenured {shlex.join(arguments)}")
    before = (await client.cluster()).commit_index

    async def caught_up() -> Any:
        try:
            view = await client.cluster(endpoint=cluster.node(dead)["http"])
        except tenure.ClusterUnavailable:
            return None
        return view if view.leader is not None and view.applied_index >= before else None

    view = await until(f"{dead} to catch up", caught_up)
    teller.took_ms = (time.monotonic() - began) * 1000
    teller.answered(f"{dead} follows {view.leader} and has applied entry {view.applied_index}")

    async def noticed() -> bool:
        old = cluster.node(dead)["pid"]
        cluster.read_nodes()
        return bool(cluster.node(dead)["pid"] != old)

    await until("cluster.json to name the new process", noticed)


def show_how_to_try(teller: Teller, cluster: Cluster) -> None:
    one, two, three = cluster.urls
    json_type = "-H 'content-type: application/json'"
    acquire = {"key": "report/7", "owner": "me", "ttl_ms": 60_000}
    lines = [
        f"curl -s {one}/v1/acquire {json_type} -d '{json.dumps(acquire)}'",
        f"curl -s {two}/v1/leases/report/7",
        f"curl -s {three}/v1/records/{KEY}",
        f"curl -s {one}/v1/cluster",
    ]
    tenure_command = Path(sys.executable).with_name("tenure")
    if tenure_command.is_relative_to(Path.cwd()):
        tenure_command = tenure_command.relative_to(Path.cwd())
    usual_ports = one.endswith(f":{HTTP_PORT}")
    endpoints = "" if usual_ports else f" --endpoints {','.join(cluster.urls)}"
    commands = [
        f"{tenure_command} acquire report/8 --ttl 1m --owner me{endpoints}",
        f"{tenure_command} list{endpoints}",
        f"{tenure_command} status{endpoints}",
    ]
    teller.say()
    teller.say(
        click.style(
            "The cluster goes on. Any node answers any call; try it from another terminal:", bold=True
        )
    )
    for line in [*lines, *commands]:
        teller.say(f"  {line}")


async def main(ttl: float, leave: bool) -> int:
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP, and so it should stay
            asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    teller = Teller()
    directory = Path(tempfile.mkdtemp(prefix="tenure-story-"))
    cluster = Cluster(directory, teller)
    try:
        teller.say("Three nodes are starting on this machine: tenured dev --nodes 3")
        await cluster.start()
        teller.say(f"They serve at {', '.join(cluster.urls)}")
        async with tenure.connect(cluster.urls) as client:
            await (
                client.cluster()
            )  # the first call loads the HTTP library, which is no part of the story's times
            await tell(teller, cluster, client, ttl)
        if not leave:
            show_how_to_try(teller, cluster)
            teller.say(click.style("Ctrl-C stops the cluster.", bold=True))
            await asyncio.Event().wait()
        code = 0
    except (NotAsTold, tenure.TenureError) as error:
        teller.say(click.style(f"not as told: {type(error).__name__}: {error}", fg="red"))
        teller.say(f"the nodes' logs are kept: {directory}/n*/tenured.log")
        code = 1
    except asyncio.CancelledError:
        code = 0
    teller.say()
    teller.say("stopping the cluster")
    await cluster.stop()
    if code == 0:
        shutil.rmtree(directory, ignore_errors=True)
    return code


@click.command()
@click.option("--exit", "leave", is_flag=True, help="Exit after the story; code 0 if all came true.")
@click.option("--ttl", default=5.0, show_default=True, metavar="SECONDS", help="TTL of the leases.")
def story(leave: bool, ttl: float) -> None:
    """Start three nodes, tell the story with real calls, and leave the cluster running until Ctrl-C."""
    try:
        if INTERRUPTIBLE:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = asyncio.run(main(ttl, leave))
    except KeyboardInterrupt:
        code = 130
    raise SystemExit(code)


if __name__ == "__main__":
    story()
