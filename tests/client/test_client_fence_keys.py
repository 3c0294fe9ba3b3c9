"""A guard without a key guards nothing, and says so."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import tenure
from tenure.fencing.sql import SqlGuard


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        SqlGuard().create(connection)
        connection.execute("BEGIN")
        yield connection


@pytest.mark.parametrize("key", [None, "", 7, b"account/7"])
def test_what_is_no_key_is_refused(connection: sqlite3.Connection, key: Any) -> None:
    guard = SqlGuard()
    with pytest.raises(tenure.InvalidRequest, match="a key is a text, not"):
        guard.arm(connection, key, 8)
    with pytest.raises(tenure.InvalidRequest, match="a key is a text, not"):
        guard.write(connection, key, 7)
    with pytest.raises(tenure.InvalidRequest, match="a key is a text, not"):
        guard.fence(connection, key)
    assert connection.execute("SELECT count(*) FROM tenure_fences").fetchone() == (0,)
