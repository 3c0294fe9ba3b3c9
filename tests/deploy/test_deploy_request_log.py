"""Lines about requests, and what they carry."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deploy_nodes import await_that, nodes

from tenure_cluster.observe import logs
from tenure_cluster.observe.request_lines import EVENT, LOGGER, WAITING_MAX
from tenure_cluster.observe.request_log import FAILED_PER_S_MAX, RequestLog


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the process logs, as JSON."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def note(log: RequestLog, status: int, request_id: bytes = b"r-1", started_s: float | None = None) -> None:
    log.note("POST", lambda: "acquire", status, request_id, started_s)


def test_a_failed_request_has_a_line_with_its_id(written: io.StringIO) -> None:
    log = RequestLog("failed", lambda: 5.0)
    note(log, 503)
    note(log, 409)
    [line] = lines(written)
    assert line["request_id"] == "r-1"
    assert line["operation"] == "acquire"
    assert line["status"] == 503
    assert line["level"] == "warning"


def test_a_crowd_of_failures_has_few_lines_and_the_number_of_the_rest(written: io.StringIO) -> None:
    now_s = 5.0
    log = RequestLog("failed", lambda: now_s)
    for _ in range(FAILED_PER_S_MAX + 90):
        note(log, 503)
    assert len(lines(written)) == FAILED_PER_S_MAX
    now_s = 6.0
    note(log, 503)
    assert lines(written)[-1]["left_out"] == 90


def test_all_requests_have_lines_with_their_time_where_that_is_asked_for(written: io.StringIO) -> None:
    log = RequestLog("all", lambda: 5.25)
    note(log, 200, started_s=5.0)
    [line] = lines(written)
    assert line["took_ms"] == 250.0
    assert line["level"] == "info"


async def test_lines_of_one_moment_are_written_together_and_soon(
    written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RequestLog("all", lambda: 5.25)
    for number in range(3):
        note(log, 200, b"r-%d" % number, started_s=5.0)
    assert written.getvalue() == ""
    flushed = asyncio.Event()
    monkeypatch.setattr(written, "flush", flushed.set)
    async with asyncio.timeout(30):
        await flushed.wait()
    assert [line["request_id"] for line in lines(written)] == ["r-0", "r-1", "r-2"]


async def test_no_more_than_so_many_lines_wait(written: io.StringIO) -> None:
    log = RequestLog("all", lambda: 5.25)
    for _ in range(WAITING_MAX):
        note(log, 200, started_s=5.0)
    assert len(lines(written)) == WAITING_MAX


async def test_another_line_comes_behind_those_that_wait(written: io.StringIO) -> None:
    log = RequestLog("all", lambda: 5.25)
    note(log, 200, b"before", started_s=5.0)
    logging.getLogger("tenure.x").warning("disk is slow")
    note(log, 200, b"after", started_s=5.0)
    logging.getLogger().handlers[0].flush()
    told = [line.get("request_id", line["event"]) for line in lines(written)]
    assert told == ["before", "disk is slow", "after"]


def test_a_line_of_a_request_has_what_any_other_line_has(written: io.StringIO) -> None:
    note(RequestLog("all", lambda: 5.25), 200, started_s=5.0)
    logging.getLogger(LOGGER).info(
        EVENT,
        extra={
            "request_id": "r-1",
            "method": "POST",
            "operation": "acquire",
            "status": 200,
            "took_ms": 250.0,
        },
    )
    quick, full = lines(written)
    assert list(quick) == list(full)
    assert quick.pop("timestamp")[-1] == full.pop("timestamp")[-1] == "Z"
    assert quick == full


def test_a_log_that_cannot_be_written_harms_nobody(written: io.StringIO) -> None:
    log = RequestLog("all", lambda: 5.25)
    written.close()
    note(log, 200, started_s=5.0)


def test_requests_that_went_well_have_no_line_below_the_level(written: io.StringIO) -> None:
    logs.configure("warning", "json", written)
    log = RequestLog("all", lambda: 5.25)
    note(log, 200, started_s=5.0)
    note(log, 503, started_s=5.0)
    assert [line["status"] for line in lines(written)] == [503]


@pytest.mark.process
def test_a_nodes_lines_have_the_id_that_the_caller_got_and_no_path(tmp_path: Path) -> None:
    with nodes(tmp_path, 1, TENURE_LOG_FORMAT="json", TENURE_LOG_REQUESTS="all") as [node]:
        node.ask("GET", "/v1/sessions/secret-session", headers={"X-Request-Id": "mine-42"})

        def told() -> list[dict[str, Any]]:
            return [json.loads(line) for line in node.log.splitlines() if "mine-42" in line]

        await_that(lambda: bool(told()), "the request's line")
        [line] = told()
        assert line["operation"] == "get_session"
        assert line["status"] == 404
        assert line["took_ms"] >= 0
        assert "secret-session" not in node.log
        assert all(json.loads(line) for line in node.log.splitlines())


@pytest.mark.process
def test_a_caller_without_an_id_is_given_one_and_an_unusable_one_is_replaced(tmp_path: Path) -> None:
    with nodes(tmp_path, 1) as [node]:
        given = [node.head("/livez", {}), node.head("/livez", {"X-Request-Id": "has spaces in it"})]
        assert node.head("/livez", {"X-Request-Id": "mine-43"}) == "mine-43"
    assert all(given)
    assert len(set(given)) == 2
    assert "has spaces in it" not in given
