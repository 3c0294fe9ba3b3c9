"""A schema migration that every instance of a service tries at its start, and that runs once.

    python examples/migration.py [ENDPOINTS]

The others wait until it is done. The guard lives in the migrated database and in the migration's own
transaction: an instance that was paused in the middle can't commit its half after somebody else has begun.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import threading
from pathlib import Path

import tenure
from tenure import DEFAULT_ENDPOINTS
from tenure.fencing.sql import SqlGuard

GUARD = SqlGuard()


def migrate(connection: sqlite3.Connection) -> bool:
    """False if it was there already."""
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version >= 1:
        return False
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)")
    connection.execute("PRAGMA user_version = 1")
    return True


def start(endpoints: str, database: Path, name: str) -> None:
    """One instance of the service."""
    connection = sqlite3.connect(database, timeout=30)
    with (
        tenure.connect_sync(endpoints) as client,
        client.lease(f"migration/{database}", owner=name, ttl=30, wait=60) as held,
    ):
        with connection:
            GUARD.create(connection)
            GUARD.arm(connection, held.key, held.token)
        with connection:
            GUARD.write(connection, held.key, held.token)
            did = migrate(connection)
    connection.close()
    sys.stdout.write(f"{name} {'migrated' if did else 'found it migrated'} and starts\n")


def main(endpoints: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory) / "service.db"
        instances = [
            threading.Thread(target=start, args=(endpoints, database, f"instance-{number}"))
            for number in range(3)
        ]
        for instance in instances:
            instance.start()
        for instance in instances:
            instance.join()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS)
