"""Bytes that no client sends, to the clients' port of real nodes: ambiguous heads, bombs, giants, slow ones.

None is executed in part, none makes a node grow, and whoever else asks is served meanwhile. What a single
front answers to each kind of bad input stands in tests/api/test_api_bad_input.py.
"""

import asyncio
import base64
import os
from collections.abc import Iterator

import msgspec
import pytest
from attacked import Attacked, Raw, ask, attacked, request

pytestmark = [pytest.mark.process, pytest.mark.slow]

READ_TIMEOUT_MS = 3_000


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """One process: what is done to it is done to no other."""
    settings = {"read_timeout_ms": READ_TIMEOUT_MS}
    with attacked(tmp_path_factory.mktemp("bytes"), nodes=1, http=settings) as made:
        yield made


def smuggling(first: str, inner: bytes) -> bytes:
    """A request whose end is not clear, and behind it what a proxy may have taken for its body."""
    return first.format(length=len(inner), more=len(inner) + 5).encode("latin-1") + inner


POST = "POST /v1/renew HTTP/1.1\r\nHost: tenure\r\n"
HEADS = {
    "length and chunked": POST + "Content-Length: {more}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": POST + "Transfer-Encoding: chunked\r\nContent-Length: {more}\r\n\r\n0\r\n\r\n",
    "two lengths": POST + "Content-Length: 0\r\nContent-Length: {length}\r\n\r\n",
    "two lengths in one": POST + "Content-Length: 0, {length}\r\n\r\n",
    "length with a sign": POST + "Content-Length: +0\r\n\r\n",
    "length in hexadecimal": POST + "Content-Length: 0x0\r\n\r\n",
    "length with an underscore": POST + "Content-Length: 0_0\r\n\r\n",
    "negative length": POST + "Content-Length: -1\r\n\r\n",
    "a length beyond all numbers": POST + "Content-Length: " + "9" * 40 + "\r\n\r\n",
    "folded line": POST + "X: a\r\n Content-Length: 0\r\nContent-Length: {length}\r\n\r\n",
    "folded encoding": POST + "Transfer-Encoding:\r\n chunked\r\nContent-Length: {more}\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an encoding of another name": POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked is not last": POST + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a blank before the colon": POST + "Content-Length : 0\r\n\r\n",
    "a tab in a name": POST + "Content-\tLength: 0\r\n\r\n",
    "NUL in a value": POST + "X: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "NUL in a name": POST + "X\x00: a\r\nContent-Length: 0\r\n\r\n",
    "a line feed alone": POST.replace("\r\n", "\n") + "Content-Length: 0\n\n",
    "a line feed within": POST + "X: a\nContent-Length: 0\r\n\r\n",
    "a carriage return alone": POST + "X: a\rContent-Length: 0\r\n\r\n",
    "a chunk with a sign": POST + "Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n",
    "a chunk in hexadecimal notation": POST + "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    "a chunk that ends with a line feed": POST + "Transfer-Encoding: chunked\r\n\r\n0\n\n",
    "no colon": POST + "Content-Length 0\r\n\r\n",
    "no version": "POST /v1/renew\r\nHost: tenure\r\nContent-Length: 0\r\n\r\n",
    "another version": POST.replace("1.1", "1.2") + "Content-Length: 0\r\n\r\n",
    "two hosts": POST + "Host: other\r\nContent-Length: 0\r\n\r\n",
}
HARMLESS = {"chunked twice", "another version", "two hosts"}
"""Those that leave no doubt about where the request ends, and are answered, if at all, as any is."""


@pytest.mark.parametrize("name", HEADS)
async def test_what_stands_behind_an_ambiguous_request_is_not_executed(target: Attacked, name: str) -> None:
    """It would release the victim's lease, and has the victim's credential."""
    release = request("POST", "/v1/release", {"lease_id": target.lease["lease_id"]}, target.bearer)
    node = target.nodes[0]
    async with await Raw.open(node.http_port) as raw:
        if name in HARMLESS:
            raw.send(smuggling(HEADS[name], b""))
            raw.writer.write_eof()
        else:
            raw.send(smuggling(HEADS[name], release))
        answered = await raw.rest()
    statuses = [part[:3] for part in answered.split(b"HTTP/1.1 ")[1:]]
    assert statuses in ([], [b"400"], [b"401"]), answered
    assert b"released" not in answered
    held = await ask(node, "GET", "/v1/leases/held", bearer=target.bearer)
    assert (held.status, held.json["token"]) == (200, target.lease["token"])


async def test_and_all_that_is_logged_and_harms_nobody(target: Attacked) -> None:
    assert target.logged("requests refused that are not HTTP/1.1")
    await target.unharmed()


LENGTHS = {
    "array": b"\xdd\xff\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "text": b"\xdb\xff\xff\xff\xff",
    "bytes": b"\xc6\xff\xff\xff\xff",
    "extension": b"\xc9\xff\xff\xff\xff\x05",
    "array of 16 bits": b"\xdc\xff\xff",
}
NESTED = {"arrays": b"\x91" * 200_000, "maps": b"\x81\xa1x" * 60_000, "thousands": (b"\xdc\x27\x10") * 60_000}
OTHERS = {
    "a timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "an extension": b"\xc7\x05\x05hello",
    "no type at all": b"\xc1",
    "nothing": b"",
    "text that is not UTF-8": b"\xa2\xff\xfe",
    "many nils": b"\xdd\x00\x03\x00\x00" + b"\xc0" * 196_608,
}
BOMBS = {**LENGTHS, **NESTED, **OTHERS}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_in_a_body_is_refused(target: Attacked, name: str) -> None:
    node = target.nodes[0]
    for before in (b"", b"\x81\xa5owner", b"\x81\xa1x"):
        async with await Raw.open(node.http_port) as raw:
            content = {"Content-Type": "application/msgpack", "Accept": "application/json"}
            raw.send(
                request("POST", "/v1/acquire", before + BOMBS[name], target.bearer).replace(
                    b"Content-Type: application/json",
                    b"\r\n".join(f"{header}: {value}".encode() for header, value in content.items()),
                )
            )
            reply = await raw.answer()
            assert (reply.status, reply.json["code"]) == (400, "invalid")
            assert len(reply.body) < 4_096, "it is not repeated"


async def opened(target: Attacked) -> Raw:
    raw = await Raw.open(target.nodes[0].http_port)
    key = base64.b64encode(os.urandom(16)).decode()
    raw.send(
        f"GET /v1/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {target.bearer}\r\n"
        f"upgrade: websocket\r\nconnection: upgrade\r\n"
        f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n".encode()
    )
    assert (await raw.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return raw


def framed(payload: bytes, opcode: int = 2, *, said: int | None = None) -> bytes:
    """A frame of the WebSocket protocol as a client sends it, masked by zeros; `said`: what it says of its
    length."""
    size = len(payload) if said is None else said
    return bytes([0x80 | opcode, 0xFF]) + size.to_bytes(8, "big") + bytes(4) + payload


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_in_a_stream_ends_it_with_a_word(target: Attacked, name: str) -> None:
    """As the frame, as one of its triples, and as the body of one."""
    for before in (b"", b"\x91", b"\x91\x93\x01\xa5renew"):
        async with await opened(target) as raw:
            raw.send(framed(before + BOMBS[name]))
            raw.send(framed(b"", opcode=8))
            answered = await raw.rest()
        assert answered
        assert len(answered) < 8_192, "it is not repeated"


async def test_nothing_of_all_that_is_left(target: Attacked) -> None:
    await target.unharmed()


@pytest.mark.parametrize("said", [2 << 20, 1 << 40, (1 << 63) - 1])
async def test_a_giant_frame_ends_a_stream_before_it_has_come(target: Attacked, said: int) -> None:
    async with await opened(target) as raw:
        raw.send(framed(b"\x00" * 100, said=said))
        answered = await raw.rest()
    assert b"\x03\xf1" in answered, "1009, message too big"
    assert target.logged("frames of streams refused")
    await target.unharmed()


async def test_a_giant_body_is_refused_before_it_has_come(target: Attacked) -> None:
    for size in (300_000, 1 << 40):
        async with await Raw.open(target.nodes[0].http_port) as raw:
            raw.send(request("POST", "/v1/acquire", b"", target.bearer, Content_Length=str(size)))
            reply = await raw.answer()
            assert (reply.status, reply.json["code"]) == (413, "too_large")
    assert target.logged("requests refused for their size")
    await target.unharmed()


SLOW = {
    "head": b"POST /v1/renew HTTP/1.1\r\nHost: tenure\r\nX: " + b"y" * 4_000,
    "body": request("POST", "/v1/renew", b"", "", Content_Length="4000") + b" " * 4_000,
    "chunks": b"POST /v1/renew HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"1\r\n \r\n" * 800,
}


@pytest.mark.parametrize("name", SLOW)
async def test_slow_requests_are_cut_off_and_hold_nobody_up(target: Attacked, name: str) -> None:
    """A hundred callers that send a byte now and then, with a credential."""
    node, data = target.nodes[0], SLOW[name]
    data = data.replace(b"Host:", f"Authorization: Bearer {target.bearer}\r\nHost:".encode(), 1)
    callers = [await Raw.open(node.http_port) for _ in range(100)]
    loop = asyncio.get_running_loop()
    began_s, ended_s = loop.time(), loop.time() + READ_TIMEOUT_MS / 1000 + 30

    async def drip(raw: Raw) -> float:
        head = data.find(b"\r\n\r\n") + 4 if name != "head" else 60
        raw.send(data[:head])
        ending = asyncio.create_task(raw.rest(60))
        for at in range(head, len(data)):
            if ending.done() or loop.time() > ended_s:
                break
            raw.send(data[at : at + 1])
            await asyncio.wait([ending], timeout=0.25)
        await ending
        return loop.time() - began_s

    dripping = [asyncio.create_task(drip(raw)) for raw in callers]
    renew = {"lease_id": target.lease["lease_id"]}
    renewed = 0
    while not all(task.done() for task in dripping):
        assert (await ask(node, "POST", "/v1/renew", renew, target.bearer)).status == 200
        renewed += 1
        await asyncio.sleep(0.1)
    assert renewed >= 2, "others are served meanwhile"
    assert max(task.result() for task in dripping) < READ_TIMEOUT_MS / 1000 + 30
    for raw in callers:
        raw.writer.transport.abort()
    assert target.logged("requests cut off that did not come in time")
    await target.unharmed()


async def test_a_stream_that_says_half_a_frame_holds_nobody_up(target: Attacked) -> None:
    halves = [await opened(target) for _ in range(50)]
    for raw in halves:
        raw.send(framed(b"\x91", said=100_000))
    async with await opened(target) as raw:
        triple = [1, "renew", {"lease_id": target.lease["lease_id"]}]
        raw.send(framed(msgspec.msgpack.encode([triple])))
        async with asyncio.timeout(30):
            assert b"renewed" in await raw.reader.read(65_536)
    for raw in halves:
        raw.writer.transport.abort()
    await target.unharmed()
