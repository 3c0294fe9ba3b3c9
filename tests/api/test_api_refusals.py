"""What is refused before it reaches a call is in the log, once a minute for each kind."""

import logging

import pytest

from tenure_cluster.api.refusals import PERIOD_S, Refusals


def test_each_kind_has_a_line_a_minute_with_its_number(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 5.0
    refusals = Refusals(lambda: now_s)
    with caplog.at_level(logging.WARNING, "tenure.api"):
        for number in range(100):
            refusals.note("requests refused for their size", f"10.0.0.{number}")
        refusals.note("frames of streams refused", "")
        now_s += PERIOD_S
        refusals.note("requests refused for their size", "10.0.0.7")
    assert [message.partition(" (")[0] for message in caplog.messages] == [
        "requests refused for their size: 1 so far, the last one from 10.0.0.0",
        "frames of streams refused: 1 so far, the last one from ?",
        "requests refused for their size: 101 so far, the last one from 10.0.0.7",
    ]
