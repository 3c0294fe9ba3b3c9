"""Spans of requests, by OpenTelemetry: what a node does for a request, as a part of its caller's trace.

    POST acquire                the request, at the node that it came to         (server)
      forward                   if another node leads: the question to it        (client)
        execute                 the same at the leader                           (server)
          propose               one operation's way through the log
            queue               until an entry was formed that has it
            append              until that entry was on the leader's disk
            commit              until it was known to be on a quorum's disks
            apply               until it was in the leader's state

Loaded only where tracing.enabled asks for it; needs the extra `tenure[otel]`. What comes with a W3C
traceparent is a part of that trace, if its caller samples it; of the rest tracing.sample_percent has a trace.
Keys, owners and ids of leases and sessions are in no span: an id is a right to use it.

The stages of an entry are told by consensus for all entries, by their index; a proposal learns its index with
its outcome. Entries are kept for long enough for that, which is short: a leader has one under way at a time.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenure_cluster import __version__
from tenure_cluster.raft import Applied, NotExecuted, Outcome, Stage
from tenure_cluster.service.asks import Ask
from tenure_cluster.settings import Tracing

PROPOSALS_PER_PARENT_MAX: Final = 20
"""Proposals of one request that have spans of their own; a batch may have a thousand."""

ENTRIES_MAX: Final = 64
"""Entries whose stages are remembered."""

TRACE_HEADER_CHARS_MAX: Final = 512
"""Longest traceparent or tracestate that is taken; a longer one is as none."""

SERVER_ERROR: Final = 500

_STAGES: Final[tuple[tuple[str, Stage], ...]] = (
    ("append", "durable"),
    ("commit", "committed"),
    ("apply", "applied"),
)
"""Spans behind `queue`, each with the stage at which it ends."""

_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()


class Parent:
    """What the spans of a request belong to."""

    __slots__ = ("left", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.left = PROPOSALS_PER_PARENT_MAX
        """Proposals that may have spans yet."""


class Traced:
    """One span that is under way, with what is done for it; `parent` is None where it is not sampled."""

    __slots__ = ("_method", "_span", "parent", "traceparent")

    def __init__(self, span: Span, method: str = "") -> None:
        self._span = span
        self._method = method
        sampled = span.is_recording()
        self.parent = Parent(span) if sampled else None
        self.traceparent = _traceparent(span) if sampled else ""

    def answered(self, operation: str, status: int) -> None:
        """Of an HTTP request: what it asked for, and with what it was answered."""
        span = self._span
        span.update_name(f"{self._method} {operation}")
        span.set_attribute("http.response.status_code", status)
        if status >= SERVER_ERROR:
            span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        self._span.end()


class Traces:
    """Makes the spans of one node. Belongs to the event loop, save for `close`."""

    def __init__(self, provider: TracerProvider, now_ns: Callable[[], int]) -> None:
        """`now_ns` is Unix time, as the provider's own spans have it."""
        self._provider = provider
        self._tracer = provider.get_tracer("tenure_cluster", __version__)
        self._now_ns = now_ns
        self._entries: dict[int, dict[Stage, int]] = {}

    def request(self, method: str, headers: Mapping[str, str], request_id: bytes) -> Traced:
        """An HTTP request has come."""
        carrier = {
            name: headers[name]
            for name in ("traceparent", "tracestate")
            if name in headers and len(headers[name]) <= TRACE_HEADER_CHARS_MAX
        }
        span = self._tracer.start_span(
            method,
            _TRACE_CONTEXT.extract(carrier),
            SpanKind.SERVER,
            {"http.request.method": method, "tenure.request_id": request_id.decode("ascii", "replace")},
        )
        return Traced(span, method)

    def asks(self, parent: object, leader: str) -> Traced:
        """Operations of a request are handed on to the leader."""
        context = set_span_in_context(parent.span) if isinstance(parent, Parent) else None
        return Traced(self._tracer.start_span("forward", context, SpanKind.CLIENT, {"tenure.leader": leader}))

    def asked(self, peer: str, traceparent: str, operations: Sequence[str]) -> Traced:
        """Another node has handed on operations."""
        told = {"tenure.peer": peer, "tenure.operations": sorted(set(operations))}
        context = _TRACE_CONTEXT.extract({"traceparent": traceparent})
        return Traced(self._tracer.start_span("execute", context, SpanKind.SERVER, told))

    def proposal(self, ask: Ask) -> Callable[[Outcome], None] | None:
        """An operation is proposed; what this gives is to be told the outcome."""
        parent = ask.span
        if not isinstance(parent, Parent) or not parent.left:
            return None
        parent.left -= 1
        queued_ns = self._now_ns()
        span = self._tracer.start_span(
            "propose",
            set_span_in_context(parent.span),
            attributes={"tenure.operation": ask.operation},
            start_time=queued_ns,
        )

        def settled(outcome: Outcome) -> None:
            if isinstance(outcome, Applied):
                span.set_attribute("tenure.index", outcome.index)
                self._add_stages(span, queued_ns, self._entries.get(outcome.index, {}))
            else:
                reason = outcome.reason if isinstance(outcome, NotExecuted) else "unknown"
                span.set_status(StatusCode.ERROR, reason)
            span.end()

        return settled

    def on_stage(self, stage: Stage, index: int) -> None:
        """Consensus tells how far an entry has come; see Raft.on_stage."""
        now_ns = self._now_ns()
        if stage == "appended":
            while len(self._entries) >= ENTRIES_MAX:
                del self._entries[next(iter(self._entries))]
            self._entries.pop(index, None)
            self._entries[index] = {stage: now_ns}
        elif stage == "durable":
            for at, entry in self._entries.items():
                if at <= index:
                    entry.setdefault(stage, now_ns)
        elif (known := self._entries.get(index)) is not None:
            known.setdefault(stage, now_ns)

    def _add_stages(self, span: Span, queued_ns: int, entry: Mapping[Stage, int]) -> None:
        since_ns = entry.get("appended")
        if since_ns is None:
            return
        context = set_span_in_context(span)
        self._tracer.start_span("queue", context, start_time=queued_ns).end(since_ns)
        for name, stage in _STAGES:
            until_ns = entry.get(stage)
            if until_ns is not None:
                self._tracer.start_span(name, context, start_time=since_ns).end(until_ns)
                since_ns = until_ns

    def close(self, timeout_s: float) -> None:
        """Send what was not sent yet, for so long at most. Blocks: not for the event loop."""
        # The library's own end waits for as long as it tries to reach a collector that isn't there.
        ending = threading.Thread(target=self._provider.shutdown, name="end of tracing", daemon=True)
        ending.start()
        ending.join(timeout_s)


def traces(settings: Tracing, cluster_id: str, node_id: str, now_ns: Callable[[], int]) -> Traces:
    """What sends spans by OTLP over HTTP to the collector of `settings`. Further OTEL_* variables of the
    environment (headers, certificates, compression) are the exporter's."""
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.sample_percent / 100)),
        resource=Resource.create(
            {
                "service.name": "tenured",
                "service.version": __version__,
                "service.instance.id": node_id,
                "tenure.cluster_id": cluster_id,
            }
        ),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=settings.timeout_ms / 1000)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Traces(provider, now_ns)


def _traceparent(span: Span) -> str:
    carrier: dict[str, str] = {}
    _TRACE_CONTEXT.inject(carrier, set_span_in_context(span))
    return carrier.get("traceparent", "")
