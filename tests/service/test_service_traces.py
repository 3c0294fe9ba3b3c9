"""A request's spans: one trace over the nodes that work for it, and nothing where nobody asked for one."""

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import StatusCode
from service_cluster import Cluster, Part, acquired, ask, cluster

from tenure_cluster.observe.request_context import REQUEST_ID, SPAN
from tenure_cluster.raft import NotExecuted
from tenure_cluster.service.asks import Ask
from tenure_cluster.service.requests import ReleaseRequest
from tenure_cluster.tracing import ENTRIES_MAX, PROPOSALS_PER_PARENT_MAX, Traces

TRACE_ID, CALLER_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{CALLER_ID}-01"
STAGES = ["queue", "append", "commit", "apply"]


class Collected:
    """Spans of all nodes of a test, as they end."""

    def __init__(self, sampled: float = 1.0) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(sampled)), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = Traces(provider, time.time_ns)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)

    def one(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.spans if span.name == name]
        return found

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """Its children, by their beginnings."""
        children = [
            span for span in self.spans if span.parent and span.parent.span_id == parent.context.span_id
        ]
        return sorted(children, key=lambda span: (span.start_time or 0, span.end_time or 0))

    def trace(self, part: Part) -> None:
        part.raft.on_stage, part.service.proposer.on_ask = self.traces.on_stage, self.traces.proposal
        part.service.forwarding.traces = self.traces

    @contextlib.contextmanager
    def request(self, headers: dict[str, str], request_id: bytes = b"r-1") -> Iterator[None]:
        """What is asked within is asked for by this HTTP request."""
        span = self.traces.request("POST", headers, request_id)
        of_request, of_span = REQUEST_ID.set(request_id), SPAN.set(span.parent)
        try:
            yield
            span.answered("acquire", 200)
        finally:
            span.end()
            SPAN.reset(of_span)
            REQUEST_ID.reset(of_request)


@contextlib.asynccontextmanager
async def traced(directory: Path, nodes: int, collected: Collected) -> AsyncIterator[Cluster]:
    async with cluster(directory, nodes) as running:
        for part in running.parts.values():
            collected.trace(part)
        yield running


async def test_what_is_asked_at_a_follower_is_one_trace_with_its_callers(tmp_path: Path) -> None:
    collected = Collected()
    async with traced(tmp_path, 3, collected) as running:
        follower = await running.follower()
        with collected.request({"traceparent": SAMPLED}):
            await acquired(follower, "k")
    request = collected.one("POST acquire")
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == CALLER_ID
    assert {f"{span.context.trace_id:032x}" for span in collected.spans} == {TRACE_ID}
    [forward] = collected.below(request)
    [execute] = collected.below(forward)
    [propose] = collected.below(execute)
    assert [forward.name, execute.name, propose.name] == ["forward", "execute", "propose"]
    assert [span.name for span in collected.below(propose)] == STAGES
    assert propose.attributes is not None
    assert propose.attributes["tenure.operation"] == "acquire"
    # They follow one another without a gap, within the proposal.
    stages = collected.below(propose)
    assert propose.start_time == stages[0].start_time
    for before, after in itertools.pairwise(stages):
        assert before.end_time == after.start_time
    assert (stages[-1].end_time or 0) <= (propose.end_time or 0) <= (request.end_time or 0)


async def test_a_caller_who_does_not_sample_is_not_traced_at_any_node(tmp_path: Path) -> None:
    collected = Collected()
    async with traced(tmp_path, 3, collected) as running:
        follower = await running.follower()
        with collected.request({"traceparent": SAMPLED[:-1] + "0"}):
            await acquired(follower, "k")
    assert collected.names == []


async def test_what_nobody_asked_to_trace_has_no_spans(tmp_path: Path) -> None:
    collected = Collected()
    async with traced(tmp_path, 1, collected) as running:
        await acquired(await running.leader(), "k")
        with collected.request({}):
            await ask(await running.leader(), "renew", lease_id="unknown")
    assert collected.names == sorted(["POST acquire", "propose", *STAGES])


@pytest.mark.parametrize(
    "traceparent",
    ["", "00-0-0-01", f"00-{'0' * 32}-{CALLER_ID}-01", "x" * 10_000, f"ff-{TRACE_ID}-{CALLER_ID}-01"],
)
def test_a_traceparent_that_is_none_begins_a_trace_of_its_own(traceparent: str) -> None:
    collected = Collected()
    with collected.request({"traceparent": traceparent, "tracestate": "y" * 10_000}):
        pass
    assert collected.one("POST acquire").parent is None


def test_of_requests_without_a_traceparent_so_many_of_a_hundred_are_traced() -> None:
    collected = Collected(sampled=0.1)
    for _ in range(500):
        with collected.request({}):
            pass
    assert 10 <= len(collected.spans) <= 120  # 50 are expected
    with collected.request({"traceparent": SAMPLED}):
        pass
    assert f"{collected.spans[-1].context.trace_id:032x}" == TRACE_ID


def test_a_batch_has_spans_of_its_first_proposals_alone() -> None:
    collected = Collected()
    with collected.request({}):
        asks = [Ask("release", "default", ReleaseRequest(lease_id=f"l{number}")) for number in range(100)]
        heard = [hear for one in asks if (hear := collected.traces.proposal(one)) is not None]
    assert len(heard) == PROPOSALS_PER_PARENT_MAX
    heard[0](NotExecuted("not_leader"))
    assert collected.one("propose").status.status_code is StatusCode.ERROR


def test_entries_are_remembered_for_a_while_only() -> None:
    collected = Collected()
    for index in range(10 * ENTRIES_MAX):
        collected.traces.on_stage("appended", index)
    assert len(collected.traces._entries) == ENTRIES_MAX
    assert min(collected.traces._entries) == 9 * ENTRIES_MAX


def test_neither_server_nor_client_loads_opentelemetry_unasked() -> None:
    loads = "import sys, tenure_cluster.node, tenure; print('opentelemetry' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
