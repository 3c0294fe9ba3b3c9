"""Traces as an operator gets them: real nodes, a real client, and a collector that takes OTLP over HTTP."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from deploy_kit import free_port
from deploy_nodes import NodeProcess, await_that, nodes
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

TRACE_ID, CALLER_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
WAY = ["POST acquire", "forward", "execute", "propose"]


class Collector:
    """Takes spans, with the node that each is of."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                    of = {item.key: item.value.string_value for item in part.resource.attributes}
                    assert of["service.name"] == "tenured"
                    for scope in part.scope_spans:
                        collector.spans += [(of["service.instance.id"], span) for span in scope.spans]
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        self.thread = threading.Thread(target=self._server.serve_forever)

    def close(self) -> None:
        self._server.shutdown()
        self.thread.join()
        self._server.server_close()

    def of_trace(self) -> list[tuple[str, Span]]:
        return [(node, span) for node, span in self.spans if span.trace_id.hex() == TRACE_ID]


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    collector.thread.start()
    try:
        yield collector
    finally:
        collector.close()


def a_follower(cluster: list[NodeProcess]) -> int:
    """The place of a node that doesn't lead."""
    roles = [node.samples()['tenure_raft_role{role="leader"}'] for node in cluster]
    return roles.index(0.0)


def has_line(node: NodeProcess, request_id: str) -> bool:
    return any(json.loads(line).get("request_id") == request_id for line in node.log.splitlines())


@pytest.mark.process
def test_a_trace_goes_over_two_nodes_to_the_collector_and_the_log_names_the_request_at_both(
    tmp_path: Path,
) -> None:
    with (
        collecting() as collector,
        nodes(
            tmp_path,
            3,
            TENURE_TRACING_ENABLED="true",
            TENURE_TRACING_ENDPOINT=collector.url,
            TENURE_TRACING_SAMPLE_PERCENT="0",
            TENURE_LOG_LEVEL="debug",
            TENURE_LOG_FORMAT="json",
            TENURE_LOG_REQUESTS="all",
        ) as cluster,
    ):
        asked = a_follower(cluster)
        body = {"key": "k", "owner": "o", "ttl_ms": 30_000}
        headers = {"traceparent": f"00-{TRACE_ID}-{CALLER_ID}-01", "X-Request-Id": "mine-77"}
        status, _ = cluster[asked].ask("POST", "/v1/acquire", body, headers)
        assert status == 200
        wanted = {*WAY, "queue", "append", "commit", "apply"}
        await_that(
            lambda: wanted <= {span.name for _, span in collector.of_trace()}, "all spans of the request"
        )
        spans = collector.of_trace()
        told_by = {span.name: node for node, span in spans}
        request, forward, execute, propose = (
            next(span for _, span in spans if span.name == name) for name in WAY
        )
        assert told_by["POST acquire"] == told_by["forward"] == f"n{asked + 1}"
        assert told_by["execute"] == told_by["propose"] != told_by["forward"]
        assert request.parent_span_id.hex() == CALLER_ID
        assert forward.parent_span_id == request.span_id
        assert execute.parent_span_id == forward.span_id
        assert propose.parent_span_id == execute.span_id
        # Nobody else asked to be traced.
        assert len(spans) == len(collector.spans)
        # The same request's lines are found by one id at both nodes.
        leader = cluster[int(told_by["execute"][1:]) - 1]
        for node in (cluster[asked], leader):
            await_that(partial(has_line, node, "mine-77"), "a line with the id")


@pytest.mark.process
def test_a_collector_that_is_not_there_holds_nobody_up(tmp_path: Path) -> None:
    with nodes(
        tmp_path,
        1,
        TENURE_TRACING_ENABLED="true",
        TENURE_TRACING_ENDPOINT="http://127.0.0.1:9/v1/traces",
        TENURE_TRACING_TIMEOUT_MS="1000",
    ) as [node]:
        for number in range(50):
            assert node.call("acquire", key=f"k{number}", owner="o", ttl_ms=30_000)[0] == 200
        await_that(lambda: "otlp.proto.http" in node.log, "a line about what is lost")
        assert node.stop() == 0


@pytest.mark.process
def test_a_node_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    """The import fails as it does where OpenTelemetry is not installed."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry'] = None\n")
    node = NodeProcess(
        tmp_path / "n1",
        {
            "TENURE_CLUSTER_ID": "c",
            "TENURE_NODE_ID": "n1",
            "TENURE_HTTP_LISTEN": f"127.0.0.1:{free_port()}",
            "TENURE_PEER_LISTEN": f"127.0.0.1:{free_port()}",
            "TENURE_TRACING_ENABLED": "true",
            "PYTHONPATH": str(tmp_path),
        },
    )
    node.start()
    assert node.process is not None
    assert node.process.wait(60) == 2
    assert "pip install 'tenure[otel]'" in node.log
