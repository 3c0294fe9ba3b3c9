"""The comparison of locks: both clients keep to one contract on real servers, and the counting is right."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tenure_chaos.history import RegisterWrite
from tenure_chaos.live.compare import table
from tenure_chaos.live.compare.locks import Lock, LockFailed, lock_of
from tenure_chaos.live.compare.run import Result, count_writes
from tenure_chaos.live.compare.targets import EtcdTarget, Target, TenureTarget

TTL_S = 3.0
PATIENCE_S = 30.0


@pytest.fixture(params=["tenure", "etcd"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    with TemporaryDirectory(prefix="tenure-chaos-") as sockets, contextlib.ExitStack() as stack:
        target: Target = (
            TenureTarget(tmp_path, Path(sockets)) if request.param == "tenure" else EtcdTarget(tmp_path)
        )
        stack.callback(target.close)
        await target.start()
        yield target


@contextlib.asynccontextmanager
async def client(target: Target) -> AsyncIterator[Lock]:
    routes = {f"http://{address}": f"http://{address}" for address in target.addresses.values()}
    lock = lock_of(target.name, routes, TTL_S)
    try:
        yield lock
    finally:
        await lock.close()


async def becomes(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.05)


@pytest.mark.process
async def test_a_lock_has_one_holder_and_rising_tokens_and_is_lost_without_a_cluster(target: Target) -> None:
    async with client(target) as one, client(target) as other:
        first = await one.acquire("k", PATIENCE_S)
        assert first.is_held
        with pytest.raises(LockFailed):
            await other.acquire("k", 0.5)
        waiting = asyncio.ensure_future(other.acquire("k", PATIENCE_S))
        await asyncio.sleep(1.5 * TTL_S)  # what is kept alive outlives its TTL
        assert first.is_held
        assert not waiting.done()
        await first.release()
        second = await waiting
        assert second.token > first.token
        leader = await target.leader()
        assert leader is not None
        target.kill(leader)
        third = await one.acquire("another", PATIENCE_S)
        assert third.token > second.token
        for node in target.addresses:
            if node != leader:
                target.kill(node)
        await becomes(lambda: not second.is_held and not third.is_held)


def write(guarded: bool, accepted: bool, read: int, found: int) -> RegisterWrite:
    return RegisterWrite("r", "h1", 1, 0.0, guarded, accepted, read, found, 9)


def test_updates_are_lost_where_a_write_did_not_find_what_its_writer_had_read() -> None:
    result = Result("some system", "some proxies", 1)
    count_writes(
        [
            write(True, True, 1, 1),
            write(False, True, 1, 1),
            write(True, False, 1, 2),
            write(False, True, 1, 2),
            write(True, True, 1, 3),
        ],
        result,
    )
    counted = (result.writes, result.lost_unguarded, result.lost_guarded, result.refused_guarded)
    assert counted == (2, 1, 1, 1)


def test_the_table_has_a_column_for_each_system_and_says_what_was_not_measured(tmp_path: Path) -> None:
    one = Result("Tenure", "p", 2, takeover_s=[1.0, 3.0], believed_s={"holder paused": [0.5]})
    other = Result("etcd <3>", "p", 2)
    text = table.text([one, other])
    [takeover] = [line for line in text.splitlines() if line.startswith("takeover after the holder's")]
    assert takeover.split("  ", 1)[1].split() == ["2.00", "(max", "3.00)", "not", "measured"]
    page = table.write([one, other], tmp_path).read_text(encoding="utf-8")
    assert "etcd &lt;3&gt;" in page
    assert "://" not in page
    assert (tmp_path / table.DATA).is_file()
    assert "| rounds of faults | 2 | 2 |" in (tmp_path / table.TEXT).read_text(encoding="utf-8")
