"""The client tells nodes its caller's trace, where the program has one."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from client_front import Front, machine, serving
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import Span, set_span_in_context

import tenure


@dataclass
class Heard(Front):
    """A node that notes the headers of each call."""

    headers: list[tuple[str, str | None]] = field(default_factory=list)
    renewed: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        call = request.path.rpartition("/")[2]
        self.headers.append((call, request.headers.get("traceparent")))
        if call == "renew":
            self.renewed.set()
        return await super().answer(request)

    def told(self, call: str) -> set[str | None]:
        found = {traceparent for name, traceparent in self.headers if name == call}
        assert found, f"nobody asked for {call}: {self.headers}"
        return found


def span(sampler: Sampler = ALWAYS_ON) -> Span:
    return TracerProvider(sampler=sampler, shutdown_on_exit=False).get_tracer("test").start_span("work")


def told(of: Span) -> str:
    context = of.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@pytest.fixture
def active() -> Iterator[Span]:
    """A span in which the test works."""
    made = span()
    token = attach(set_span_in_context(made))
    yield made
    detach(token)


async def test_a_call_within_a_span_tells_it(active: Span) -> None:
    async with serving(Heard(machine(), "127.0.0.1")) as node, tenure.connect(node.url) as client:
        async with client.lease("k", ttl=30, wait=5) as held:
            await held.commit("done")
        await client.get("k")
    for call in ("acquire", "commit", "release", "k"):
        assert node.told(call) == {told(active)}
    # What is part of a trace doesn't go over a stream, which has no headers for each call.
    assert "stream" not in [call for call, _ in node.headers]


async def test_renewals_are_of_no_trace(active: Span) -> None:
    async with (
        serving(Heard(machine(), "127.0.0.1")) as node,
        tenure.connect(node.url) as client,
        client.lease("k", ttl=3),
        asyncio.timeout(20),
    ):
        await node.renewed.wait()
    assert node.told("renew") == {None}


async def test_an_unsampled_span_is_told_as_such_and_costs_no_stream() -> None:
    unsampled = span(ALWAYS_OFF)
    token = attach(set_span_in_context(unsampled))
    try:
        async with serving(Heard(machine(), "127.0.0.1")) as node, tenure.connect(node.url) as client:
            await client.get("k")
    finally:
        detach(token)
    assert not unsampled.get_span_context().trace_flags.sampled
    assert node.told("k") == {told(unsampled)}
    assert "stream" in [call for call, _ in node.headers]


async def test_a_span_that_has_ended_is_told_to_nobody(active: Span) -> None:
    active.end()
    async with serving(Heard(machine(), "127.0.0.1")) as node, tenure.connect(node.url) as client:
        await client.get("k")
    assert node.told("k") == {None}


async def test_without_a_span_nothing_is_told() -> None:
    async with serving(Heard(machine(), "127.0.0.1")) as node, tenure.connect(node.url) as client:
        await client.get("k")
    assert node.told("k") == {None}


async def test_the_front_for_threads_tells_the_span_of_its_thread(active: Span) -> None:
    async with serving(Heard(machine(), "127.0.0.1")) as node:

        def work() -> None:
            with tenure.connect_sync(node.url) as client:
                client.get("k")

        await asyncio.to_thread(work)
    assert node.told("k") == {told(active)}
