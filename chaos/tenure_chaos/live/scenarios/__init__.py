"""Named scenarios of the live bench: which fault strikes when. Each is a TOML file in this folder.

    title = "The leader is cut off, then killed"

    [options]                 # of LiveOptions; what the command line says wins
    nodes = 5
    seconds = 30

    [[strike]]
    fault = "isolate leader"
    after_s = 3.0             # from the beginning of the work
    for_s = 6.0

    [[use]]                   # another scenario's strikes, from then on
    scenario = "kill leader"
    after_s = 12.0

Instead of strikes, ``faults = ["kill one", …]`` lets these come at random, with ``gap_s`` between them; the
seed draws the schedule. Both can be had together.
"""

import asyncio
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure_chaos.live.bench import Bench
from tenure_chaos.live.cluster import NodeUnreachable
from tenure_chaos.live.faults import BY_NAME
from tenure_chaos.live.faults.kind import Fault
from tenure_chaos.live.nemesis import Nemesis
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.proxies.toxiproxy import ProxyError

FOLDER: Final = Path(__file__).parent
USE_DEPTH_MAX: Final = 5
PATIENCE_S: Final = 3.0
"""How long a strike waits for somebody to strike: a leader, a node that runs."""
WELL_S: Final = 60.0
REST_S: Final = 5.0
EACH_MAX_S: Final = 1_800.0
"""Most that all faults one by one may take; they are over much sooner."""


class NoScenario(Exception):
    """There is no such scenario, or its file is not one. The message says what is wrong with it."""


@dataclass(frozen=True)
class Strike:
    """One fault at its time."""

    fault: str
    after_s: float
    for_s: float


@dataclass(frozen=True)
class Use:
    """Another scenario's strikes, from some moment on."""

    scenario: str
    after_s: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """What happens in a run."""

    title: str
    strikes: tuple[Strike, ...] = ()
    faults: tuple[str, ...] = ()
    """These come at random."""
    options: Mapping[str, Any] = field(default_factory=dict)
    one_by_one: bool = False
    """Each strike waits until the one before is over and all is well; its time counts from then on."""

    def with_options(self, given: Mapping[str, Any]) -> LiveOptions:
        """Defaults, over them the scenario's options, over them what is given. Raises NoScenario, also for a
        strike that would come after the end."""
        options = read_options({**self.options, **given})
        for strike in self.strikes:
            if not self.one_by_one and strike.after_s >= options.seconds:
                raise NoScenario(
                    f"{strike.fault} is to strike after {strike.after_s:g} s, and the run ends after "
                    f"{options.seconds:g} s: give it more seconds"
                )
        return options

    async def run(self, bench: Bench) -> bool:
        """Everything in its time. A random part goes on until it is cancelled. True: that was all."""
        if self.one_by_one:
            for strike in self.strikes:
                await _all_is_well(bench)
                await strike_at(bench, strike)
            await _all_is_well(bench)
            await asyncio.sleep(REST_S)
            return True
        kinds = [BY_NAME[name] for name in self.faults]
        available = []
        for kind in kinds:
            if can := kind.available(bench):
                available.append(kind)
            else:
                bench.note(f"not available here: {kind.name}: {can.why_not}")
        work = [strike_at(bench, strike) for strike in self.strikes]
        if available:
            work.append(Nemesis(bench, available).run())
        await _all(work)
        return False


async def _all(work: list[Any]) -> None:
    """As gather, but what is cancelled is waited for."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _all_is_well(bench: Bench) -> None:
    """Somebody leads and every node can be asked, or that is not to be waited for any longer."""
    until = bench.now() + WELL_S
    while bench.now() < until:
        states = await bench.cluster.states()
        if all(states.values()) and await bench.leader() is not None:
            return
        await asyncio.sleep(0.1)
    bench.note(f"not all is well after {WELL_S:.0f} s")


async def strike_at(bench: Bench, strike: Strike) -> None:
    """One strike in its time. If nobody can be struck for a while, that is noted."""
    await asyncio.sleep(strike.after_s)
    kind = BY_NAME[strike.fault]
    if not (can := kind.available(bench)):
        bench.note(f"not available here: {kind.name}: {can.why_not}")
        return
    fault = await _strike(bench, kind)
    if fault is None:
        bench.note(f"{kind.name}: nobody to be struck")
        return
    try:
        await asyncio.sleep(strike.for_s)
    finally:
        await bench.end(fault)


async def _strike(bench: Bench, kind: type[Fault]) -> Fault | None:
    until = bench.now() + PATIENCE_S
    while True:
        try:
            fault = await bench.begin(kind)
        except (NodeUnreachable, ProxyError) as error:
            bench.note(f"{kind.name} came to nothing: {error}")
            fault = None
        if fault is not None or bench.now() > until:
            return fault
        await asyncio.sleep(0.1)


def names() -> list[str]:
    """Of all that there are."""
    return sorted(path.stem.replace("_", " ") for path in FOLDER.glob("*.toml"))


def load(name: str) -> Scenario:
    """A scenario by its name, or by the path of its file. Raises NoScenario."""
    return _read(_path_of(name), 0)


def _path_of(name: str) -> Path:
    path = FOLDER / f"{name.replace(' ', '_')}.toml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        raise NoScenario(f"there is no scenario {name!r}; there are: {', '.join(names())}")
    return path


def everything(seconds: float) -> Scenario:
    """All faults, at random."""
    return Scenario("all faults at random", faults=tuple(BY_NAME), options={"seconds": seconds})


def singly(name: str, lasts_s: float) -> Scenario:
    """One fault, twice."""
    strikes = (Strike(name, 3.0, lasts_s), Strike(name, 3.0 + lasts_s + 6.0, lasts_s))
    return Scenario(name, strikes, options={"seconds": 3.0 + 2 * lasts_s + 12.0})


def each(on_s: float = 4.0, rest_s: float = REST_S) -> Scenario:
    """Every fault, one after the other, with time to recover between them."""
    strikes = tuple(Strike(name, rest_s, on_s) for name in BY_NAME)
    return Scenario("every fault singly", strikes, options={"seconds": EACH_MAX_S}, one_by_one=True)


def read_options(said: Mapping[str, Any]) -> LiveOptions:
    """Raises NoScenario."""
    known = [option.name for option in fields(LiveOptions)]
    for name in said:
        if name not in known:
            raise NoScenario(f"there is no option {name!r}; there are: {', '.join(known)}")
    try:
        options = msgspec.convert(dict(said), LiveOptions)
    except msgspec.ValidationError as error:
        raise NoScenario(str(error)) from error
    if wrong := options.wrong():
        raise NoScenario(wrong)
    return options


def _refuse_strangers(tables: Any, kind: type) -> None:
    """Raises ValidationError for what would be passed over: a strike on somebody that can't be named."""
    known = [one.name for one in fields(kind)]
    for table in tables if isinstance(tables, list) else ():
        if isinstance(table, Mapping) and (strange := table.keys() - set(known)):
            told = f"{', '.join(sorted(strange))} in {dict(table)}; there are: {', '.join(known)}"
            raise msgspec.ValidationError(f"unknown: {told}")


def _read(path: Path, depth: int) -> Scenario:
    if depth > USE_DEPTH_MAX:
        raise NoScenario(f"{path}: scenarios use one another in a circle")
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise NoScenario(f"{path}: {error}") from error
    if unknown := said.keys() - {"title", "options", "strike", "use", "faults"}:
        raise NoScenario(f"{path}: unknown: {', '.join(sorted(unknown))}")
    try:
        _refuse_strangers(said.get("strike", []), Strike)
        _refuse_strangers(said.get("use", []), Use)
        strikes = msgspec.convert(said.get("strike", []), tuple[Strike, ...], strict=False)
        faults = msgspec.convert(said.get("faults", []), tuple[str, ...])
        uses = msgspec.convert(said.get("use", []), tuple[Use, ...], strict=False)
    except msgspec.ValidationError as error:
        raise NoScenario(f"{path}: {error}") from error
    for use in uses:
        other = _read(_path_of(use.scenario), depth + 1)
        strikes += tuple(replace(strike, after_s=strike.after_s + use.after_s) for strike in other.strikes)
        faults += other.faults
    for name in (*(strike.fault for strike in strikes), *faults):
        if name not in BY_NAME:
            raise NoScenario(f"{path}: there is no fault {name!r}")
    options = said.get("options", {})
    try:
        read_options(options)
    except NoScenario as error:
        raise NoScenario(f"{path}: {error}") from error
    return Scenario(said.get("title", path.stem), strikes, faults, options)
