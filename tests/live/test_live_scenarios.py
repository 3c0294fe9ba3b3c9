"""Scenarios by name and by file, and the schedule that a seed draws."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from tenure_chaos.cli import main
from tenure_chaos.live import scenarios
from tenure_chaos.live.bench import Bench
from tenure_chaos.live.faults import BY_NAME, KINDS, table
from tenure_chaos.live.faults.kind import Fault
from tenure_chaos.live.nemesis import Nemesis
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.proxies.toxiproxy import ProxyError, ServerStuck
from tenure_chaos.live.scenarios import NoScenario, Strike, load


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", scenarios.names())
def test_every_scenario_can_be_read_and_has_faults(name: str) -> None:
    scenario = load(name)
    assert scenario.title
    assert scenario.strikes or scenario.faults
    options = scenario.with_options({})
    ends = [strike.after_s + strike.for_s for strike in scenario.strikes]
    assert max(ends, default=0.0) <= options.seconds


def test_a_scenario_has_strikes_in_their_time(tmp_path: Path) -> None:
    path = written(
        tmp_path, '[[strike]]\nfault = "kill one"\nafter_s = 3\nfor_s = 1.5\n[options]\nnodes = 5\n'
    )
    scenario = load(path)
    assert scenario.title == "mine"
    assert scenario.strikes == (Strike("kill one", 3.0, 1.5),)
    assert scenario.with_options({"seconds": 9.0}) == LiveOptions(nodes=5, seconds=9.0)


def test_a_scenario_can_use_another_one_from_some_moment_on(tmp_path: Path) -> None:
    path = written(tmp_path, '[[use]]\nscenario = "kill leader"\nafter_s = 100\n')
    own = load("kill leader").strikes
    assert [strike.after_s for strike in load(path).strikes] == [strike.after_s + 100 for strike in own]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[strike]]\nfault = "plague"\nafter_s = 1\nfor_s = 1\n', "no fault 'plague'"),
        ('[[strike]]\nfault = "kill one"\nafter_s = "soon"\nfor_s = 1\n', "after_s"),
        ("[options]\nspeed = 3\n", "no option 'speed'"),
        ('[options]\nnodes = "many"\n', "nodes"),
        ("color = 'red'\n", "unknown: color"),
        (
            '[[strike]]\nfault = "kill one"\nafter_s = 1\nfor_s = 1\ntarget = "n1"\n',
            "unknown: target in .*; there are: fault, after_s, for_s",
        ),
        (
            '[[use]]\nscenario = "kill leader"\nafter = 9\n',
            "unknown: after in .*; there are: scenario, after_s",
        ),
        ("[[use]]\nafter_s = 9\n", "mine.toml: .*`scenario`"),
        ('[[use]]\nscenario = "sunshine"\n', "no scenario 'sunshine'; there are: .*kill leader"),
        ("[options]\nnodes = 4\n", "mine.toml: nodes = 4: there can be 3 or 5"),
        ("[options]\ngap_s = 0\n", "gap_s = 0.*: it must be above 0"),
        ("[options]\nttl_ms = [500]\n", r"ttl_ms = \[500\]: these are TTLs of 3000 ms or more"),
        ('[options]\nwork = ["play"]\n', "work = play: there is: .*register"),
        ("[[", "mine.toml: Invalid"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(NoScenario, match=complaint):
        load(written(tmp_path, text))


def test_a_strike_that_would_never_come_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, '[[strike]]\nfault = "kill one"\nafter_s = 50\nfor_s = 1\n')
    with pytest.raises(NoScenario, match="kill one is to strike after 50 s, and the run ends after 40 s"):
        load(path).with_options({})
    assert load(path).with_options({"seconds": 60.0}).seconds == 60


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("kill leader", "--fault", "latency"), "SCENARIO and --fault: each says which faults strike"),
        (("--each", "--once", "kill one"), "--once and --each: each says which faults strike"),
        (("--network", "netns", "--proxies", "real"), "--proxies is of no use"),
        (("kill leader", "--gap", "1"), "--gap is of no use: nothing strikes at random"),
        (("--once", "kill one", "--seconds", "4"), "the run ends after 4 s"),
        (("--mutant", "nothing of the kind"), "there is no mutant 'nothing of the kind'; there are: "),
        (("--out", __file__), "is a file"),
        (("--out", "/proc/1/not/here"), "can't be made"),
    ],
)
def test_an_option_that_is_of_no_use_is_refused(arguments: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(main, ["live", *arguments])
    assert result.exit_code == 2
    assert why in result.output


def test_a_scenario_that_is_not_there_is_told_what_is() -> None:
    with pytest.raises(NoScenario, match=r"no scenario 'sunshine'.*kill leader"):
        load("sunshine")


def test_every_fault_says_what_it_does_and_how_it_heals() -> None:
    assert len(BY_NAME) == len(KINDS)
    for kind in KINDS:
        assert kind.what
        assert kind.how_healed
        assert 0 < kind.lasts_s[0] <= kind.lasts_s[1]


def test_a_ring_needs_five_nodes() -> None:
    def available(nodes: int) -> Any:
        bench = cast(Bench, SimpleNamespace(options=LiveOptions(nodes=nodes)))
        return BY_NAME["ring of majorities"].available(bench)

    assert available(5)
    assert not available(3)
    assert "five nodes" in available(3).why_not


def schedule(seed: int, kinds: list[type[Fault]], count: int) -> list[tuple[str, float]]:
    nemesis = Nemesis(cast(Bench, SimpleNamespace(options=LiveOptions(seed=seed))), kinds)
    return [(kind.name, lasts_s) for kind, lasts_s in (nemesis._next() for _ in range(count))]


async def test_a_seed_draws_one_schedule_and_every_fault_has_its_turn() -> None:
    kinds = list(KINDS)
    first = schedule(7, kinds, 2 * len(kinds))
    assert first == schedule(7, kinds, 2 * len(kinds))
    assert first != schedule(8, kinds, 2 * len(kinds))
    half = [name for name, _ in first[: len(kinds)]]
    assert sorted(half) == sorted(BY_NAME)


class Recorder:
    """In the place of the bench: begins and ends faults, and remembers."""

    def __init__(self) -> None:
        self.options = LiveOptions(gap_s=0.01, at_once=2)
        self.on: list[object] = []
        self.most = self.begun = self.ended = 0
        self.enough = asyncio.Event()

    async def begin(self, kind: type[Fault]) -> object:
        fault = object()
        self.on.append(fault)
        self.begun += 1
        self.most = max(self.most, len(self.on))
        return fault

    async def end(self, fault: object) -> None:
        await asyncio.sleep(0.001)
        self.on.remove(fault)
        self.ended += 1
        if self.ended >= 10:
            self.enough.set()


async def test_no_more_faults_are_on_at_once_than_allowed_and_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = BY_NAME["latency"]
    monkeypatch.setattr(kind, "lasts_s", (0.01, 0.05))
    recorder = Recorder()
    running = asyncio.ensure_future(Nemesis(cast(Bench, recorder), [kind]).run())
    async with asyncio.timeout(30):
        await recorder.enough.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert recorder.most == 2
    assert recorder.on == []
    assert recorder.begun == recorder.ended


class Unhealed(Recorder):
    """Healing the third fault ends in an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.failures: list[str] = []
        self.notes: list[str] = []
        self.note = self.notes.append

    async def begin(self, kind: type[Fault]) -> object:
        await super().begin(kind)
        return SimpleNamespace(name=kind.name)

    async def end(self, fault: object) -> None:
        self.ended += 1
        if self.ended == 3:
            raise self.error
        if self.ended >= 10:
            self.enough.set()


async def test_a_fault_that_could_not_be_healed_is_told_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = BY_NAME["latency"]
    monkeypatch.setattr(kind, "lasts_s", (0.01, 0.05))
    recorder = Unhealed(ProxyError("POST /proxies/n1>n2: 500 address in use"))
    running = asyncio.ensure_future(Nemesis(cast(Bench, recorder), [kind]).run())
    async with asyncio.timeout(30):
        await recorder.enough.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert recorder.failures == ["latency was not healed: POST /proxies/n1>n2: 500 address in use"]
    assert recorder.notes == recorder.failures


async def test_a_server_that_is_stuck_while_it_heals_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = BY_NAME["latency"]
    monkeypatch.setattr(kind, "lasts_s", (0.01, 0.05))
    recorder = Unhealed(ServerStuck("it hangs"))
    async with asyncio.timeout(30):
        with pytest.raises(ServerStuck, match="it hangs"):
            await Nemesis(cast(Bench, recorder), [kind]).run()


class Recovering(Recorder):
    """Its cluster takes a few looks after each strike until all its nodes can be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = self
        self.order: list[str] = []
        self.looks = 0

    def now(self) -> float:
        return 0.0

    async def begin(self, kind: type[Fault]) -> object:
        self.order.append(kind.name)
        self.looks = 0
        return await super().begin(kind)

    async def states(self) -> dict[str, object]:
        self.looks += 1
        well = self.looks > 2
        if well:
            self.order.append("all is well")
        return {"n1": {"role": "leader"}, "n2": {"role": "follower"} if well else None}

    async def leader(self) -> object:
        return "n1"


async def test_faults_singly_wait_until_all_is_well_after_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scenarios, "REST_S", 0.01)
    whole = scenarios.each(on_s=0.01, rest_s=0.01)
    assert [strike.fault for strike in whole.strikes] == list(BY_NAME)
    bench = Recovering()
    async with asyncio.timeout(60):
        assert await replace(whole, strikes=whole.strikes[:3]).run(cast(Bench, bench))
    struck = list(BY_NAME)[:3]
    assert bench.order == ["all is well", *(one for name in struck for one in (name, "all is well"))]
    assert (bench.most, bench.begun, bench.ended) == (1, 3, 3)


def test_the_command_lists_scenarios_and_faults() -> None:
    result = CliRunner().invoke(main, ["live", "--list"])
    assert result.exit_code == 0
    for name in (*scenarios.names(), *BY_NAME):
        assert name in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["live", "sunshine"], "no scenario 'sunshine'"),
        (["live", "--fault", "plague"], "no fault 'plague'"),
        (["live", "--once", "plague"], "no fault 'plague'"),
        (["live", "--mutant", "three-headed"], "no mutant 'three-headed'"),
        (["reproduce", "sunshine"], "no scenario 'sunshine'"),
    ],
)
def test_what_can_not_be_run_is_refused_with_words(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_the_page_lists_every_fault_as_it_is() -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    assert table.page(text) == text, "python -m tenure_chaos.live.faults.table"
