"""Logs come in one form, whoever writes them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from tenure_cluster.observe import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_is_one_object_a_line_for_both_kinds_of_loggers() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logging.getLogger("tenure.x").warning("lag is %d ms", 5)
    structlog.get_logger("tenure.y").info("leader changed", term=3)
    logging.getLogger("tenure.x").debug("not written")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("lag is 5 ms", "warning", "tenure.x")
    assert (second["event"], second["term"], second["logger"]) == ("leader changed", 3, "tenure.y")
    assert first["timestamp"].endswith("Z")


def test_text_is_a_plain_line() -> None:
    stream = io.StringIO()
    logs.configure("warning", "text", stream)
    logging.getLogger("tenure.x").info("not written")
    logging.getLogger("tenure.x").error("disk is slow")
    [line] = stream.getvalue().splitlines()
    assert "disk is slow" in line
    assert "\x1b" not in line


def test_an_exception_stays_on_the_record_in_json() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("tenure.x").exception("failed")
    [line] = stream.getvalue().splitlines()
    assert "ValueError: odd" in json.loads(line)["exception"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_shows_no_values_of_variables(form: logs.Format) -> None:
    def fails(lease_id: str) -> None:
        raise ValueError("broken")

    stream = io.StringIO()
    logs.configure("info", form, stream)
    try:
        fails("a-secret-of-the-holder"[:22])
    except ValueError:
        logging.getLogger("tenure.x").critical("stopping", exc_info=True)
    written = stream.getvalue()
    assert "ValueError: broken" in written
    assert "a-secret-of-the-holder'" not in written
