"""Links over real sockets: who is let in, what is read, and when a connection counts as dead."""

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator

import pytest
from raft_testkit import Proxy, eventually

from tenure_cluster.addresses import split_address
from tenure_cluster.raft import link as link_module
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft import transport as transport_module
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.link import frame
from tenure_cluster.raft.membership import MemberInfo, Membership
from tenure_cluster.raft.transport import Transport

FRAME_MAX = 1 << 16
OUTBOX_MAX = 1 << 20


class Recorder:
    def __init__(self) -> None:
        self.consensus: list[tuple[str, wire.Consensus]] = []
        self.payloads: list[tuple[str, int, bytes]] = []
        self.links: list[tuple[str, bool]] = []
        self.gone: list[str] = []
        self.heard_anew: list[tuple[str, int]] = []
        self.removed: list[str] = []

    def on_removed(self, peer: str, why: str) -> None:
        self.removed.append(why)

    def on_consensus(self, peer: str, message: wire.Consensus, size: int) -> None:
        self.consensus.append((peer, message))

    def on_payload(self, peer: str, epoch: int, body: bytes) -> None:
        self.payloads.append((peer, epoch, body))

    def on_linked(self, peer: str, up: bool) -> None:
        self.links.append((peer, up))

    def on_heard_anew(self, peer: str, epoch: int) -> None:
        self.heard_anew.append((peer, epoch))

    def on_gone(self, peer: str) -> None:
        self.gone.append(peer)


class End:
    """One transport and what it has told."""

    def __init__(self, node_id: str, peers: dict[str, str], cluster_id: str = "c") -> None:
        self.told = Recorder()
        self.transport = Transport(
            node_id=node_id,
            cluster_id=cluster_id,
            peers=peers,
            listen="127.0.0.1:0",
            clock=SystemClock(),
            frame_bytes_max=FRAME_MAX,
            outbox_bytes_max=OUTBOX_MAX,
            user=self.told,
        )


@contextlib.asynccontextmanager
async def one_end() -> AsyncIterator[End]:
    """n1, whose peer n2 is whoever the test plays; port 9 refuses n1's own dialling."""
    end = End("n1", {"n2": "127.0.0.1:9"})
    await end.transport.start()
    try:
        yield end
    finally:
        await end.transport.stop()


@contextlib.asynccontextmanager
async def two_ends() -> AsyncIterator[tuple[End, End, Proxy]]:
    """n1 and n2; what n1 sends goes through the proxy."""
    second = End("n2", {"n1": "127.0.0.1:9"})
    await second.transport.start()
    proxy = Proxy(lambda: second.transport.port)
    await proxy.start()
    first = End("n1", {"n2": proxy.address})
    await first.transport.start()
    try:
        yield first, second, proxy
    finally:
        await first.transport.stop()
        await second.transport.stop()
        await proxy.stop()


class Caller:
    """A hand-made connection to a transport."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def answer(self) -> wire.Answer:
        (length,) = struct.unpack("<I", await asyncio.wait_for(self.reader.readexactly(4), 5))
        return wire.decode_answer(await self.reader.readexactly(length))

    async def is_closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(65536), 5) == b""
        except ConnectionError:
            return True


@contextlib.asynccontextmanager
async def call(end: End) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", end.transport.port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


def hello(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "version": 1,
        "cluster_id": "c",
        "node_id": "n2",
        "to": "n1",
        "incarnation": 7,
        "epoch": 1,
    }
    fields["members"] = ["n1", "n2"]
    return frame(wire.Hello(**(fields | changes)))  # type: ignore[arg-type]


# -- who is let in


async def test_a_peer_that_says_who_it_is_is_welcome_and_heard() -> None:
    async with one_end() as end, call(end) as caller:
        caller.send(hello(epoch=5), frame(wire.Payload(b"x")), frame(wire.Vote(3)))
        assert isinstance(await caller.answer(), wire.Welcome)
        await eventually(lambda: end.told.consensus)
        assert end.told.payloads == [("n2", 5, b"x")]
        assert end.told.consensus == [("n2", wire.Vote(3))]


async def test_what_a_peer_knows_is_what_its_last_greeting_said() -> None:
    async with one_end() as end:
        assert end.transport.admission.told_by("n2") is None
        async with call(end) as caller:
            caller.send(hello(epoch=5, knows=23, software="0.2.0"))
            assert isinstance(await caller.answer(), wire.Welcome)
            assert end.transport.admission.told_by("n2") == (23, "0.2.0")
        assert end.transport.admission.told_by("n2") == (23, "0.2.0")
        async with call(end) as caller:
            caller.send(hello(incarnation=8))
            assert isinstance(await caller.answer(), wire.Welcome)
            assert end.transport.admission.told_by("n2") == (0, "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "protocol version 2"),
        ({"cluster_id": "other"}, "cluster_id 'other'"),
        ({"node_id": "n9"}, "'n9' is not another member"),
        ({"node_id": "n1"}, "'n1' is not another member"),
        ({"to": "n3"}, "meant for 'n3'"),
        ({"members": ["n1", "n2", "n3"]}, "counts n1, n2, n3 as members, this node n1, n2"),
        ({"members": ["n2"]}, "counts n2 as members, this node n1, n2"),
    ],
    ids=["version", "cluster", "stranger", "itself", "misdirected", "more members", "fewer members"],
)
async def test_others_are_told_why_and_never_heard(changes: dict[str, object], reason: str) -> None:
    async with one_end() as end, call(end) as caller:
        caller.send(hello(**changes), frame(wire.Vote(3)))
        answer = await caller.answer()
        assert isinstance(answer, wire.Refused)
        assert reason in answer.reason
        assert await caller.is_closed()
        assert end.told.consensus == []
        assert end.told.gone == []


async def test_a_stranger_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with one_end() as end:
            for _ in range(3):
                async with call(end) as caller:
                    caller.send(hello(cluster_id="other"))
                    assert await caller.answer()
    assert len([record for record in caplog.records if "cluster_id 'other'" in record.message]) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("<I", 1 << 31),
        struct.pack("<I", link_module.HELLO_BYTES_MAX + 1),
        struct.pack("<I", 3) + b"\xc1\xc1\xc1",
        struct.pack("<I", 0),
        frame(wire.Vote(3)),
        frame(wire.Ping(1)),
    ],
    ids=["http", "huge", "too large for a greeting", "garbage", "empty", "a vote first", "a ping first"],
)
async def test_garbage_instead_of_a_greeting_ends_the_connection(data: bytes) -> None:
    async with one_end() as end, call(end) as caller:
        caller.send(data)
        assert await caller.is_closed()
        assert end.told.consensus == []


async def test_a_greeting_that_is_nested_too_deeply_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is skipped, since this version doesn't know it, is walked through all the same."""
    known = hello()[4:]
    body = bytes((known[0] + 1,)) + known[1:] + b"\x91" * 5_000 + b"\xc0"
    with caplog.at_level(logging.WARNING):
        async with one_end() as end, call(end) as caller:
            caller.send(struct.pack("<I", len(body)) + body)
            assert await caller.is_closed()
    about_it = [record for record in caplog.records if "protocol" in record.getMessage()]
    assert len(about_it) == 1
    assert about_it[0].exc_info is None


async def test_a_caller_that_says_nothing_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "HELLO_TIMEOUT_S", 0.05)
    async with one_end() as end, call(end) as caller:
        assert await caller.is_closed()
        assert not end.transport.accepted


async def test_beyond_the_limit_who_has_said_nothing_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "ACCEPTED_MAX", 2)
    async with one_end() as end, call(end) as first, call(end) as second:
        first.send(hello())
        assert isinstance(await first.answer(), wire.Welcome)
        await eventually(lambda: len(end.transport.accepted) == 2)
        async with call(end) as third:
            assert await second.is_closed()
            assert len(end.transport.accepted) == 2
            third.send(hello(epoch=2))
            assert isinstance(await third.answer(), wire.Welcome)


async def test_beyond_the_limit_nobody_who_has_greeted_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "ACCEPTED_MAX", 1)
    async with one_end() as end, call(end) as first:
        first.send(hello(), frame(wire.Vote(1)))
        assert isinstance(await first.answer(), wire.Welcome)
        async with call(end) as second:
            assert await second.is_closed()
        first.send(frame(wire.Vote(2)))
        await eventually(lambda: len(end.told.consensus) == 2)


async def test_silent_callers_keep_no_peer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there may be, and they come again as soon as they are turned away."""
    monkeypatch.setattr(transport_module, "ACCEPTED_MAX", 32)
    async with one_end() as end:

        async def press() -> None:
            while True:
                with contextlib.suppress(ConnectionError):
                    async with call(end) as caller:
                        await caller.reader.read()

        loop = asyncio.get_running_loop()
        pressing = [loop.create_task(press()) for _ in range(40)]
        await eventually(lambda: len(end.transport.accepted) == 32)
        async with call(end) as peer:
            peer.send(hello())
            assert isinstance(await peer.answer(), wire.Welcome)
            assert len(end.transport.accepted) == 32
        for task in pressing:
            task.cancel()
        await asyncio.gather(*pressing, return_exceptions=True)


# -- what is read


async def test_a_frame_above_the_limit_ends_the_connection_before_it_is_read() -> None:
    async with one_end() as end, call(end) as caller:
        caller.send(hello())
        await caller.answer()
        caller.send(struct.pack("<I", FRAME_MAX + 1))
        assert await caller.is_closed()
        assert end.told.gone == [], "we closed it: that says nothing about the peer's process"


async def test_garbage_after_the_greeting_ends_the_connection() -> None:
    async with one_end() as end, call(end) as caller:
        caller.send(hello(), frame(wire.Vote(1)), struct.pack("<I", 2) + b"\x91\x7f", frame(wire.Vote(2)))
        await caller.answer()
        assert await caller.is_closed()
        assert end.told.consensus == [("n2", wire.Vote(1))]


async def test_frames_arrive_whole_however_they_are_cut() -> None:
    async with one_end() as end, call(end) as caller:
        data = hello() + b"".join(frame(wire.Payload(bytes([n]) * n * 100)) for n in range(1, 20))
        for at in range(0, len(data), 37):
            caller.send(data[at : at + 37])
            if at % 5 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: len(end.told.payloads) == 19)
        assert [body for _, _, body in end.told.payloads] == [bytes([n]) * n * 100 for n in range(1, 20)]


async def test_nothing_is_read_of_a_connection_that_was_replaced() -> None:
    async with one_end() as end, call(end) as old, call(end) as new:
        old.send(hello(epoch=1), frame(wire.Vote(1)))
        assert isinstance(await old.answer(), wire.Welcome)
        await eventually(lambda: end.told.consensus)
        new.send(hello(epoch=2))
        assert isinstance(await new.answer(), wire.Welcome)
        old.send(frame(wire.Vote(2)))
        new.send(frame(wire.Vote(3)))
        await eventually(lambda: len(end.told.consensus) == 2)
        assert await old.is_closed()
        assert [message for _, message in end.told.consensus] == [wire.Vote(1), wire.Vote(3)]
        assert end.told.heard_anew == [("n2", 1), ("n2", 2)]
        assert end.told.gone == [], "a replaced connection is not a lost peer"


async def test_nothing_is_read_of_what_the_kernel_already_had_of_a_replaced_connection() -> None:
    async with one_end() as end, call(end) as old, call(end) as new:
        old.send(hello(epoch=1))
        assert isinstance(await old.answer(), wire.Welcome)
        end.transport.pause(True)
        old.send(*[frame(wire.Vote(n)) for n in range(100)])
        await old.writer.drain()
        new.send(hello(epoch=2))
        assert isinstance(await new.answer(), wire.Welcome)
        end.transport.pause(False)
        new.send(frame(wire.HigherTerm(7)))
        await eventually(lambda: end.told.consensus)
        assert end.told.consensus == [("n2", wire.HigherTerm(7))]


async def test_an_older_connection_of_the_same_life_does_not_replace_a_younger_one() -> None:
    async with one_end() as end:
        async with call(end) as young, call(end) as old:
            young.send(hello(epoch=9))
            assert isinstance(await young.answer(), wire.Welcome)
            old.send(hello(epoch=8))
            answer = await old.answer()
            assert isinstance(answer, wire.Refused)
            assert "not younger" in answer.reason
        await eventually(lambda: end.told.gone == ["n2"])
        async with call(end) as late:
            late.send(hello(epoch=8))
            assert isinstance(await late.answer(), wire.Refused), "not even when the younger one is gone"
        async with call(end) as restarted:
            restarted.send(hello(epoch=1, incarnation=8))
            assert isinstance(await restarted.answer(), wire.Welcome)


async def test_while_paused_nothing_is_delivered() -> None:
    async with one_end() as end, call(end) as caller:
        caller.send(hello())
        await caller.answer()
        end.transport.pause(True)
        caller.send(frame(wire.Vote(1)))
        await caller.writer.drain()
        for _ in range(20):
            await asyncio.sleep(0)
        assert end.told.consensus == []
        end.transport.pause(False)
        await eventually(lambda: end.told.consensus)


# -- links


async def test_a_link_comes_up_carries_frames_in_order_and_comes_up_again() -> None:
    async with two_ends() as (first, second, proxy):
        await eventually(lambda: first.told.links == [("n2", True)])
        epoch = first.transport.epoch("n2")
        assert epoch is not None
        for n in range(50):
            first.transport.send("n2", frame(wire.Payload(b"%d" % n)))
        await eventually(lambda: len(second.told.payloads) == 50)
        assert second.told.payloads == [("n1", epoch, b"%d" % n) for n in range(50)]
        proxy.break_connections()
        await eventually(lambda: first.told.links == [("n2", True), ("n2", False), ("n2", True)])
        later = first.transport.epoch("n2")
        assert later is not None
        assert later > epoch
        assert second.told.gone == ["n1"]


async def test_what_is_sent_without_a_link_is_dropped() -> None:
    async with one_end() as end:
        end.transport.send("n2", frame(wire.Vote(1)))
        assert end.transport.epoch("n2") is None
        assert not end.transport.has_room("n2", 1)


async def test_a_link_that_carries_nothing_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "PING_INTERVAL_S", 0.05)
    monkeypatch.setattr(link_module, "HELLO_TIMEOUT_S", 0.2)
    async with two_ends() as (first, second, proxy):
        await eventually(lambda: first.told.links == [("n2", True)])
        proxy.clog()
        await eventually(lambda: first.told.links[-1] == ("n2", False), "the dialler gives up", 5)
        await eventually(lambda: not second.transport.accepted, "the acceptor gives up", 5)
        proxy.heal()
        await eventually(lambda: first.told.links[-1] == ("n2", True))
        assert second.told.gone == [], "silence is not the end of a process"


async def test_an_outbox_that_nobody_empties_ends_the_link() -> None:
    async with two_ends() as (first, second, proxy):
        await eventually(lambda: first.told.links == [("n2", True)])
        proxy.clog()
        data = frame(wire.Payload(bytes(FRAME_MAX - 100)))
        assert first.transport.has_room("n2", len(data))
        sent = 0
        while first.transport.epoch("n2") is not None and sent < 64 * OUTBOX_MAX:
            first.transport.send("n2", data)
            sent += len(data)
            await asyncio.sleep(0)
        assert sent < 64 * OUTBOX_MAX
        del second


async def test_what_was_written_before_an_orderly_stop_still_arrives() -> None:
    async with two_ends() as (first, second, _):
        await eventually(lambda: first.told.links == [("n2", True)])
        first.transport.send("n2", frame(wire.Payload(b"last words")))
        await first.transport.stop()
        await eventually(lambda: second.told.payloads)
        await eventually(lambda: second.told.gone == ["n1"])


@pytest.mark.parametrize(
    ("cluster_id", "why", "removed"),
    [
        ("c", "'n1' has been removed from this cluster", True),
        ("d", "cluster_id 'd', this node is of 'c'", False),
    ],
)
async def test_only_a_node_of_its_own_cluster_tells_a_node_that_it_was_removed(
    cluster_id: str, why: str, removed: bool
) -> None:
    """Another cluster may have removed somebody of that name, and a node may dial it by mistake."""
    members = Membership((MemberInfo("n2"), MemberInfo("n3")), ("n1",), 7)
    second = End("n2", {"n3": "127.0.0.1:9"})
    second.transport.set_members(members, members)
    await second.transport.start()
    first = End("n1", {"n2": f"127.0.0.1:{second.transport.port}"}, cluster_id)
    refused: list[str] = []
    first.transport.on_refused = lambda peer, why: refused.append(why)
    await first.transport.start()
    try:
        await eventually(lambda: len(refused) > 1)
        assert set(refused) == {why}
        assert bool(first.told.removed) == removed
    finally:
        await first.transport.stop()
        await second.transport.stop()


async def test_a_peer_whose_host_is_none_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    end = End("n1", {"n2": "[fe80::1%nowhere]:7701"})  # of which no name server is asked
    await end.transport.start()
    try:
        await eventually(lambda: "no link to n2: fe80::1%nowhere can't be found: " in caplog.text)
        epoch = end.transport._epoch
        await eventually(lambda: end.transport._epoch > epoch + 1)
        assert caplog.text.count("no link to n2") == 1
    finally:
        await end.transport.stop()


async def test_nothing_leaves_after_an_abrupt_end() -> None:
    async with two_ends() as (first, second, _):
        await eventually(lambda: first.told.links == [("n2", True)])
        first.transport.send("n2", frame(wire.Payload(b"too late")))
        first.transport.cut()
        await first.transport.abandon()
        await eventually(lambda: second.told.gone == ["n1"])
        assert second.told.payloads == []


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:7", ("127.0.0.1", 7)), ("[::1]:80", ("::1", 80)), ("db.example:1", ("db.example", 1))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", ":80", "host:", "host:http"])
def test_what_is_not_an_address_is_refused_when_the_transport_is_made(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        End("n1", {"n2": text})
