"""One live run from its beginning to its verdict.

proxies, nodes, clients -> work under faults -> everything is mended -> the clients finish -> rest
-> final states -> one history -> every property -> the report
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tenure_chaos.checkers.rules import Verdict, judge
from tenure_chaos.history import History
from tenure_chaos.live import conclusion
from tenure_chaos.live.bench import Bench
from tenure_chaos.live.cluster import LiveCluster, node_names
from tenure_chaos.live.collect import Observations, put_together
from tenure_chaos.live.effects import Struck, Told, effects
from tenure_chaos.live.lines import Lines, Place
from tenure_chaos.live.members import changes_end, compare_gone
from tenure_chaos.live.namespaces import namespaces
from tenure_chaos.live.network import Network
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.proxies.serving import proxy_server
from tenure_chaos.live.proxies.toxiproxy import ServerStuck
from tenure_chaos.live.work.main import Task
from tenure_chaos.live.work.processes import ClientProcess
from tenure_chaos.live.work.registers import Registers
from tenure_chaos.sim.options import Options

LOOK_S: Final = 0.1

OUTCOMES: Final = ("ok", "refused", "unavailable", "unknown", "pending")

Strikes = Callable[[Bench], Awaitable[bool | None]]
"""What strikes while there is work; it is cancelled at the end. True: that was all, and the run may end."""


@dataclass
class LiveReport:
    """What a run came to."""

    title: str
    options: LiveOptions
    directory: Path
    nodes: list[str]
    proxies: str
    """What the connections went through."""
    real_proxies: bool
    work_began_at: float
    history: History
    verdicts: list[Verdict]
    violations: list[str]
    """Of properties, by nodes, clients and bench: none may be there."""
    counts: Counter[str]
    notes: list[tuple[float, str]]
    roles: list[tuple[float, str, str, int]]
    """(when, node, role, term), at every change that was seen."""
    downs: list[tuple[float, str, bool]]
    """(when, node, whether its process runs from then on)"""
    snapshots: dict[str, int]
    endings: list[tuple[str, int, int]] = field(default_factory=list)
    """(node, incarnation, code) of every process that ended."""
    struck: list[Struck] = field(default_factory=list)
    """Every strike, with what was seen of it."""


def work_options(options: LiveOptions) -> Options:
    """The part that the clients' work looks at."""
    return Options(
        nodes=options.nodes,
        clients=options.clients * options.programs,
        keys=options.keys,
        ttl_ms=options.ttl_ms,
        think_s=options.think_s,
        work=options.work,
    )


async def run(
    options: LiveOptions,
    directory: Path,
    strikes: Strikes,
    *,
    title: str = "live run",
    say: Callable[[str], None] = lambda text: None,
) -> LiveReport:
    """All of it. What the run leaves is in ``directory``, an empty one, named absolutely. Raises NoServer,
    NoNamespaces, ClientFailed, or TimeoutError if the cluster does not come to serve."""
    async with AsyncExitStack() as stack:
        # A socket's path must be short, and that of the directory may not be.
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-chaos-")))
        nodes = node_names(options.nodes)
        names = [f"c{number}" for number in range(1, 1 + options.clients)]
        network, surroundings = _surroundings(stack, options, directory, nodes, names)
        cluster = LiveCluster(
            directory,
            nodes=options.nodes,
            sockets=sockets,
            mutant=options.mutant,
            places={name: place for name, place in surroundings.places.items() if name in nodes},
        )
        stack.callback(cluster.kill_everything)
        stack.push_async_callback(network.close)
        await network.open(
            lambda a, b: cluster.nodes[b].peer if a in cluster.nodes else cluster.nodes[b].http[7:]
        )
        clients: dict[str, ClientProcess] = {}
        bench = Bench(options, directory, cluster, network, clients, say)
        cluster.note, cluster.began_at = bench.note, bench.began_at
        registers = Registers(bench.now)
        address = await stack.enter_async_context(registers.serving(surroundings.bench_host))
        cluster.configure(lambda a, b: network.address(f"{a}>{b}"))
        for node in cluster.nodes.values():
            cluster.start(node)
        leader = await cluster.wait_until_serving()
        bench.note(f"{len(cluster.nodes)} nodes serve through {surroundings.what}; {leader.name} leads")
        for name in names:
            place = surroundings.places.get(name)
            prefix = () if place is None else place.prefix
            clients[name] = ClientProcess(_task(bench, name, address), directory / f"{name}.log", prefix)
            stack.callback(clients[name].kill)
        await asyncio.gather(*(client.start() for client in clients.values()))
        bench.note(f"{len(clients)} clients work")
        looking = asyncio.ensure_future(_look_for_ever(cluster))
        stack.callback(looking.cancel)
        history = await _work_and_end(bench, strikes)
        history.writes = registers.writes
        return await asyncio.to_thread(_report, bench, history, title, surroundings)


def _task(bench: Bench, name: str, registers: tuple[str, int]) -> Task:
    return Task(
        name=name,
        seed=bench.options.seed,
        began_at=bench.began_at,
        nodes=bench.names_by_url(),
        routes=bench.routes_of(name),
        options=work_options(bench.options),
        registers=registers,
        output=str(bench.directory / f"{name}.jsonl"),
        programs=bench.options.programs,
        mutant=bench.options.mutant,
        watches={"c1": [""], "c2": ["k0"]}.get(name, []),
    )


@dataclass(frozen=True)
class Surroundings:
    """What stands between the processes, and where they run."""

    what: str
    real: bool = False
    """The real Toxiproxy."""
    bench_host: str = "127.0.0.1"
    places: Mapping[str, Place] = field(default_factory=dict)


def _surroundings(
    stack: AsyncExitStack, options: LiveOptions, directory: Path, nodes: Sequence[str], clients: Sequence[str]
) -> tuple[Lines, Surroundings]:
    """As the options have it, for as long as the stack lives."""
    if options.network == "netns":
        spaces = stack.enter_context(namespaces(nodes, clients))
        places = {name: spaces.place(name) for name in (*nodes, *clients)}
        return spaces, Surroundings("network namespaces", bench_host=spaces.bench_host, places=places)
    serving = stack.enter_context(proxy_server(directory / "proxies.log", options.proxies))
    return Network(serving.server, nodes, clients), Surroundings(serving.what, serving.real)


async def _look_for_ever(cluster: LiveCluster) -> None:
    """Ends of processes are noted when they come."""
    while True:
        cluster.look()
        await asyncio.sleep(LOOK_S)


async def _work_and_end(bench: Bench, strikes: Strikes) -> History:
    work = work_options(bench.options)
    history = History(clock_rate_bound=work.clock_rate_bound, leader_bound_s=bench.options.leader_bound_s)
    striking = asyncio.ensure_future(strikes(bench))
    bench.work_began_at = bench.now()
    until = bench.now() + bench.options.seconds
    try:
        await asyncio.wait((striking,), timeout=bench.options.seconds)
        left_s = until - bench.now()
        if striking.done() and striking.exception() is None and not striking.result() and left_s > 0:
            await asyncio.sleep(left_s)
    finally:
        # Also when the run is broken off: who heals later starts nodes that nobody ends.
        striking.cancel()
        [ended] = await asyncio.gather(striking, return_exceptions=True)
    if isinstance(ended, ServerStuck):
        raise ended
    if isinstance(ended, Exception):
        bench.failures.append(f"the faults: {type(ended).__name__}: {ended}")
    bench.note("everything is mended")
    await conclusion.heal(bench)
    if came := await conclusion.leader_comes(bench, history):
        await changes_end(bench)
    bench.note("the clients finish")
    await asyncio.gather(*(client.finish() for client in bench.clients.values()))
    if came:
        wrong = await conclusion.fresh_acquire(bench, history, work) or await conclusion.settle(bench, work)
        if wrong:
            bench.failures.append(wrong)
        else:
            bench.note("the cluster is at rest")
            await conclusion.take_final_states(bench, history)
            history.complete = True
    else:
        bench.failures.append("there is no leader after healing")
    history.duration_s = bench.now()
    parts = await asyncio.gather(*(client.leave() for client in bench.clients.values()))
    bench.failures += await conclusion.stop_nodes(bench)
    seen = Observations(bench.began_at)
    for node in bench.cluster.everyone:
        if node.starts:
            await asyncio.to_thread(seen.read, node.name, node.observed_path)
    bench.failures += await asyncio.to_thread(compare_gone, bench.cluster.gone, seen)
    history.faults = bench.faults
    put_together(parts, seen, history)
    bench.seen = seen
    return history


def _report(bench: Bench, history: History, title: str, surroundings: "Surroundings") -> LiveReport:
    history.save(bench.directory / "history.jsonl")
    verdicts = judge(history)
    violations = [
        f"property {verdict.number}, {verdict.title}: {wrong.what}"
        for verdict in verdicts
        for wrong in verdict.wrongs
    ]
    violations += [
        f"every result is understood: {call.client} {call.name} ended as {call.outcome!r}"
        for call in history.calls
        if call.outcome not in OUTCOMES
    ]
    counts: Counter[str] = Counter()
    for client in bench.clients.values():
        counts.update(client.counts)
        violations += client.violations
    endings = [ending for node in bench.cluster.everyone for ending in node.endings]
    violations += [
        f"nodes run: {ending.node} ended by itself with {ending.code} (start {ending.incarnation})"
        for ending in endings
        if not ending.expected
    ]
    violations += [f"the run ends well: {failure}" for failure in bench.failures]
    seen = bench.seen
    assert seen is not None
    for client in bench.clients.values():
        for suffix in (".jsonl", ".json"):
            (bench.directory / client.name).with_suffix(suffix).unlink(missing_ok=True)
    told = Told(history, [(ending.at, ending.node, ending.code) for ending in endings], seen.snapshots_at)
    return LiveReport(
        title=title,
        options=bench.options,
        directory=bench.directory,
        nodes=[node.name for node in bench.cluster.everyone],
        proxies=surroundings.what,
        real_proxies=surroundings.real,
        work_began_at=bench.work_began_at,
        history=history,
        verdicts=verdicts,
        violations=violations,
        counts=counts,
        notes=bench.notes,
        roles=seen.roles,
        downs=bench.cluster.downs,
        snapshots=seen.snapshots,
        endings=[(ending.node, ending.incarnation, ending.code) for ending in endings],
        struck=effects(told),
    )
