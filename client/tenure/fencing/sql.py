"""Guards in an SQL database, inside the caller's own transaction.

    guard = SqlGuard()
    guard.create(connection)                          # once: the table of fences

    with client.lease("account/7") as held, connection:
        guard.arm(connection, held.key, held.token)   # first of all, and committed
        ...
        guard.write(connection, held.key, held.token)
        connection.execute("UPDATE accounts SET balance = ? WHERE id = 7", …)

SQLite (3.24 or newer) and PostgreSQL (9.5 or newer), by any DB-API connection or cursor, or an SQLAlchemy
connection or session (of an AsyncSession, hand the guard's method to ``run_sync``).

Theory of operation. Each call is one statement that inserts or updates the key's row if the write is
accepted, and touches nothing otherwise. The row stays locked (in SQLite the database) until the transaction
ends. So whoever arms later waits for a write that is under way, and a write that comes later finds the new
floor. A refusal raises CommitRefused: roll back. What the guard has accepted is undone by a rollback together
with what it was accepted for.

A write that is not in the same transaction as its guard is not guarded. Where the driver can say that no
transaction is open, the guard refuses to work.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final

from tenure.errors import InvalidRequest
from tenure.fencing._rules import Fence, Mode, checked, checked_key, refused

_MODE_OK: Final = "({t}.mode = '' OR {t}.mode = excluded.mode)"
_ACCEPTED: Final = {
    "current": _MODE_OK,
    "once": _MODE_OK + " AND excluded.last_token > {t}.last_token",
    "sequence": _MODE_OK
    + " AND (excluded.last_token > {t}.last_token"
    + " OR (excluded.last_token = {t}.last_token AND excluded.last_seq > {t}.last_seq))",
}
_PARAMETERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": None, "named": None}


class SqlGuard:
    """The fences in one table. Holds no connection; any thread may use it."""

    def __init__(self, table: str = "tenure_fences") -> None:
        """``table`` may carry a schema. Raises InvalidRequest if it is not a plain name."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?", table):
            raise InvalidRequest(detail=f"{table!r} is not the name of a table")
        self.table = table

    def create(self, connection: Any) -> None:
        """Create the table if it isn't there. Commit afterwards."""
        _execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {self.table} (key TEXT PRIMARY KEY, floor BIGINT NOT NULL, "
            "last_token BIGINT NOT NULL, last_seq BIGINT NOT NULL, mode TEXT NOT NULL)",
            (),
        )

    def arm(self, connection: Any, key: str, token: int) -> None:
        """Raise the key's floor to ``token``. Once that is committed, no older token writes any more. Raises
        CommitRefused if a newer one has been here."""
        checked(token)
        statement = (
            f"INSERT INTO {self.table} (key, floor, last_token, last_seq, mode) VALUES (?, ?, 0, 0, '') "
            f"ON CONFLICT (key) DO UPDATE SET floor = excluded.floor "
            f"WHERE excluded.floor >= {self.table}.floor"
        )
        if _execute(connection, statement, (checked_key(key), token)) != 1:
            raise refused("stale_token", self.fence(connection, key))

    def write(
        self, connection: Any, key: str, token: int, *, mode: Mode = "current", seq: int | None = None
    ) -> None:
        """Accept the write that follows in this transaction. Raises CommitRefused: roll back. InvalidRequest
        if no transaction is open, as far as the driver tells."""
        number = checked(token, mode, seq)
        accepted = _ACCEPTED[mode].format(t=self.table)
        statement = (
            f"INSERT INTO {self.table} (key, floor, last_token, last_seq, mode) VALUES (?, ?, ?, ?, ?) "
            f"ON CONFLICT (key) DO UPDATE SET floor = excluded.floor, last_token = excluded.last_token, "
            f"last_seq = excluded.last_seq, mode = excluded.mode "
            f"WHERE excluded.floor >= {self.table}.floor AND {accepted}"
        )
        count = _execute(connection, statement, (checked_key(key), token, token, number, mode))
        if count != 1:
            fence = self.fence(connection, key)
            raise refused(fence.refusal(token, mode, number) or "stale_token", fence)
        if _in_transaction(connection) is False:
            raise InvalidRequest(
                detail="no transaction is open, so this write is not guarded: open one around guard and write"
            )

    def fence(self, connection: Any, key: str) -> Fence:
        """What is remembered of the key, as this transaction sees it."""
        query = f"SELECT floor, last_token, last_seq, mode FROM {self.table} WHERE key = ?"
        row = _fetch(connection, query, (checked_key(key),))
        return Fence() if row is None else Fence(int(row[0]), int(row[1]), int(row[2]), str(row[3]))


def _execute(connection: Any, statement: str, values: tuple[Any, ...]) -> int:
    return int(_run(connection, statement, values).rowcount)


def _fetch(connection: Any, statement: str, values: tuple[Any, ...]) -> Any:
    return _run(connection, statement, values).fetchone()


def _run(connection: Any, statement: str, values: tuple[Any, ...]) -> Any:
    """The cursor or result of the statement, whose parameters are written as ``?``."""
    if _module(connection) == "sqlalchemy":
        from sqlalchemy import text  # type: ignore[import-not-found, unused-ignore]

        names = [f"v{number}" for number in range(len(values))]
        for name in names:
            statement = statement.replace("?", f":{name}", 1)
        return connection.execute(text(statement), dict(zip(names, values, strict=True)))
    style = getattr(sys.modules.get(_module(connection)), "paramstyle", "qmark")
    mark = _PARAMETERS.get(style)
    if mark is None:
        raise InvalidRequest(detail=f"drivers with the parameter style {style!r} are not supported")
    cursor = connection.cursor() if hasattr(connection, "cursor") else connection
    cursor.execute(statement.replace("?", mark), values)
    return cursor


def _module(connection: Any) -> str:
    """Name of the top-level package of the driver: of the class that is not a subclass of one's own."""
    for kind in type(connection).__mro__:
        name = kind.__module__.partition(".")[0]
        if name == "sqlalchemy" or hasattr(sys.modules.get(name), "paramstyle"):
            return name
    raise InvalidRequest(detail=f"{type(connection).__name__} is no DB-API or SQLAlchemy connection")


def _in_transaction(connection: Any) -> bool | None:
    """Whether a transaction is open; None where that can't be told."""
    if _module(connection) == "sqlalchemy":
        opened = connection.in_transaction()
        autocommit = getattr(connection, "_is_autocommit_isolation", None)
        return bool(opened) and not (callable(autocommit) and autocommit())
    connection = getattr(connection, "connection", connection)
    if hasattr(connection, "in_transaction"):
        return bool(connection.in_transaction)
    if hasattr(connection, "info") and hasattr(connection.info, "transaction_status"):
        return int(connection.info.transaction_status) != 0
    if hasattr(connection, "get_transaction_status"):
        return bool(connection.get_transaction_status() != 0)
    return None
