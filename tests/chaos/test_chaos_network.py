"""Connections that break in the ways that connections do."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tenure_chaos.sim.loop import Process, VirtualLoop
from tenure_chaos.sim.network import Endpoint, Network


class Ear(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard = b""
        self.ended: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append(exc)


class Pair:
    """A server, a client, and the connections that the client has made, oldest first."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.network = self.loop.sockets = Network(self.loop, random.Random(seed))
        self.network.slicing = 0.0
        self.server, self.client = Process("server"), Process("client")
        self.there: list[Ear] = []
        self.here: list[Ear] = []
        self.writers: list[Endpoint] = []
        self.loop.spawn(self.server, self._listen)
        self.run(0.01)

    def _listen(self) -> None:
        def accept() -> Ear:
            self.there.append(Ear())
            return self.there[-1]

        self.network.listen(self.server, "server", 1, accept)

    def dial(self) -> Endpoint:
        async def work() -> None:
            writer, _ = await self.loop.create_connection(self._ear, "server", 1)
            self.writers.append(writer)

        self.loop.spawn(self.client, lambda: self.loop.create_task(work()))
        self.run(0.01)
        return self.writers[-1]

    def _ear(self) -> Ear:
        self.here.append(Ear())
        return self.here[-1]

    def run(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        assert self.loop.failures == []


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.loop.close()


def errors(ear: Ear) -> list[Any]:
    return [type(error) for error in ear.ended]


def test_a_torn_write_arrives_in_part_and_then_both_ends_hear_of_the_reset(pair: Pair) -> None:
    writer = pair.dial()
    writer.write(b"whole,")
    pair.network.tear_next("client", "server")
    writer.write(b"this one is torn")
    writer.write(b"never")
    pair.run(1.0)
    got = pair.there[0].heard
    assert got.startswith(b"whole,")
    assert got != b"whole,"
    assert b"whole,this one is torn".startswith(got)
    assert len(got) < len(b"whole,this one is torn")
    assert errors(pair.there[0]) == errors(pair.here[0]) == [ConnectionResetError]
    assert pair.network.endpoints == {}


def test_only_one_write_of_one_direction_is_torn(pair: Pair) -> None:
    writer = pair.dial()
    pair.network.tear_next("client", "server")
    assert writer.peer is not None
    writer.peer.write(b"from the server")
    pair.run(1.0)
    assert pair.here[0].heard == b"from the server"
    writer.write(b"torn")
    pair.run(1.0)
    pair.dial().write(b"whole again")
    pair.run(1.0)
    assert pair.there[1].heard == b"whole again"


def test_a_write_is_torn_at_any_place() -> None:
    lengths = set()
    for seed in range(60):
        pair = Pair(seed)
        writer = pair.dial()
        pair.network.tear_next("client", "server")
        writer.write(b"12345")
        pair.run(1.0)
        lengths.add(len(pair.there[0].heard))
        pair.loop.close()
    assert lengths == {1, 2, 3, 4}


def test_mending_the_network_takes_back_what_would_have_been_torn(pair: Pair) -> None:
    writer = pair.dial()
    pair.network.tear_next("client", "server")
    pair.network.mend_all()
    writer.write(b"whole")
    pair.run(1.0)
    assert pair.there[0].heard == b"whole"
    assert pair.there[0].ended == []


def test_the_end_that_is_not_told_hears_what_was_on_its_way_beside_the_new_connection(pair: Pair) -> None:
    writer = pair.dial()
    pair.network.link("client", "server").slow_s = 0.5
    writer.write(b"late")
    assert pair.network.lose_at_one_end("client", "server") == 1
    pair.network.link("client", "server").slow_s = 0.0
    pair.dial().write(b"new")
    pair.run(0.1)
    assert [ear.heard for ear in pair.there] == [b"", b"new"]
    assert errors(pair.here[0]) == [ConnectionResetError]
    pair.run(1.0)
    assert [ear.heard for ear in pair.there] == [b"late", b"new"]
    assert pair.there[0].ended == []


def test_the_old_connection_can_repeat_its_tail_beside_the_new_one(pair: Pair) -> None:
    writer = pair.dial()
    for word in (b"a", b"b", b"c", b"d", b"e", b"f"):
        writer.write(word)
    pair.run(0.1)
    pair.network.lose_at_one_end("client", "server", repeat_after_s=0.5)
    pair.dial().write(b"new")
    pair.run(0.1)
    assert [ear.heard for ear in pair.there] == [b"abcdef", b"new"]
    pair.run(1.0)
    again = pair.there[0].heard.removeprefix(b"abcdef")
    assert again in (b"f", b"ef", b"def", b"cdef")
    assert pair.there[0].ended == []


def test_a_connection_can_repeat_its_tail_before_it_breaks(pair: Pair) -> None:
    writer = pair.dial()
    for word in (b"a", b"b", b"c"):
        writer.write(word)
    count = pair.network.repeat_and_reset("client", "server")
    writer.write(b"never")
    pair.run(1.0)
    assert pair.there[0].heard == b"abc" + b"abc"[-count:]
    assert errors(pair.there[0]) == errors(pair.here[0]) == [ConnectionResetError]


def test_a_paused_process_hears_of_a_torn_write_when_it_goes_on_and_its_peer_at_once(pair: Pair) -> None:
    writer = pair.dial()
    pair.network.tear_next("client", "server")
    writer.write(b"torn")
    pair.loop.pause(pair.client)
    pair.run(1.0)
    assert errors(pair.there[0]) == [ConnectionResetError]
    assert pair.here[0].ended == []
    pair.loop.resume(pair.client)
    pair.run(0.1)
    assert errors(pair.here[0]) == [ConnectionResetError]


def test_connections_of_other_pairs_are_left_alone(pair: Pair) -> None:
    pair.dial()
    other = Process("other")
    ears: list[Ear] = []

    async def work() -> None:
        writer, ear = await pair.loop.create_connection(Ear, "server", 1)
        ears.append(ear)
        writer.write(b"hello")

    pair.loop.spawn(other, lambda: pair.loop.create_task(work()))
    pair.network.tear_next("client", "server")
    pair.run(0.1)
    pair.network.repeat_and_reset("client", "server")
    pair.network.lose_at_one_end("client", "server")
    pair.run(1.0)
    assert pair.there[1].heard == b"hello"
    assert ears[0].ended == []
