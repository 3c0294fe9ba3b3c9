"""Guards outside the service, against the real stores: the same rules everywhere."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
import redis
import sqlalchemy
import sqlalchemy.orm
from client_stores import postgres as postgres_server
from client_stores import redis as redis_server
from client_stores import s3 as s3_server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenure
from tenure.fencing.files import FileGuard
from tenure.fencing.objectstore import ObjectGuard
from tenure.fencing.redis import AsyncRedisGuard, RedisGuard
from tenure.fencing.sql import SqlGuard

KEYS = (f"key-{number}" for number in itertools.count())


class Store(Protocol):
    """One guarded value."""

    def arm(self, token: int) -> None: ...

    def write(self, token: int, value: str, mode: str, seq: int | None) -> None: ...

    def read(self) -> str | None: ...


class SqlStore:
    """A row that is guarded by another, in one transaction, over a DB-API connection."""

    def __init__(self, connection: Any, mark: str) -> None:
        self.connection, self.mark, self.guard, self.key = connection, mark, SqlGuard(), next(KEYS)
        self.guard.create(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS states (key TEXT PRIMARY KEY, value TEXT)")
        connection.commit()

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    def arm(self, token: int) -> None:
        self._do(lambda: self.guard.arm(self.connection, self.key, token))

    def write(self, token: int, value: str, mode: Any, seq: int | None) -> None:
        def work() -> None:
            self.guard.write(self.connection, self.key, token, mode=mode, seq=seq)
            marks = f"({self.mark}, {self.mark})"
            update = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            self.connection.execute(f"INSERT INTO states VALUES {marks} {update}", (self.key, value))

        self._do(work)

    def read(self) -> str | None:
        row = self.connection.execute(
            f"SELECT value FROM states WHERE key = {self.mark}", (self.key,)
        ).fetchone()
        self.connection.commit()
        return None if row is None else row[0]


class AlchemyStore:
    """The same through SQLAlchemy."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self.engine, self.guard, self.key = engine, SqlGuard(), next(KEYS)
        with engine.begin() as connection:
            self.guard.create(connection)
            connection.execute(
                sqlalchemy.text("CREATE TABLE IF NOT EXISTS states (key TEXT PRIMARY KEY, value TEXT)")
            )

    def arm(self, token: int) -> None:
        with self.engine.begin() as connection:
            self.guard.arm(connection, self.key, token)

    def write(self, token: int, value: str, mode: Any, seq: int | None) -> None:
        with self.engine.begin() as connection:
            self.guard.write(connection, self.key, token, mode=mode, seq=seq)
            statement = "INSERT INTO states VALUES (:k, :v) ON CONFLICT (key) DO UPDATE SET value = :v"
            connection.execute(sqlalchemy.text(statement), {"k": self.key, "v": value})

    def read(self) -> str | None:
        with self.engine.begin() as connection:
            query = sqlalchemy.text("SELECT value FROM states WHERE key = :k")
            return connection.execute(query, {"k": self.key}).scalar()


class RedisStore:
    def __init__(self, client: Any) -> None:
        self.client, self.guard, self.key = client, RedisGuard(client), next(KEYS)

    def arm(self, token: int) -> None:
        self.guard.arm(self.key, token)

    def write(self, token: int, value: str, mode: Any, seq: int | None) -> None:
        self.guard.write(self.key, token, [("SET", f"state:{self.key}", value)], mode=mode, seq=seq)

    def read(self) -> str | None:
        value = self.client.get(f"state:{self.key}")
        return None if value is None else value.decode()


class ObjectStore:
    def __init__(self, client: Any) -> None:
        self.guard, self.key = ObjectGuard(client, "bucket"), next(KEYS)

    def arm(self, token: int) -> None:
        self.guard.arm(self.key, token)

    def write(self, token: int, value: str, mode: Any, seq: int | None) -> None:
        self.guard.write(self.key, token, value.encode(), mode=mode, seq=seq)

    def read(self) -> str | None:
        value = self.guard.read(self.key)
        return None if value is None else value.decode()


class FileStore:
    def __init__(self, directory: Path) -> None:
        self.guard = FileGuard(directory / next(KEYS))

    def arm(self, token: int) -> None:
        self.guard.arm(token)

    def write(self, token: int, value: str, mode: Any, seq: int | None) -> None:
        self.guard.write(token, value.encode(), mode=mode, seq=seq)

    def read(self) -> str | None:
        value = self.guard.read()
        return None if value is None else value.decode()


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(tmp_path_factory.mktemp("redis")) as port:
        yield port


@pytest.fixture(scope="module")
def s3_client() -> Iterator[Any]:
    with s3_server() as client:
        yield client


KINDS = ["sqlite", "postgres", "sqlalchemy-sqlite", "sqlalchemy-postgres", "redis", "s3", "files"]


@pytest.fixture(scope="module", params=KINDS)
def make_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Store]]:
    """Makes stores of one kind, each with a value of its own."""
    kind = request.param
    directory = tmp_path_factory.mktemp("stores")
    if kind == "sqlite":
        connection: Any = sqlite3.connect(directory / "db")
        yield lambda: SqlStore(connection, "?")
        connection.close()
    elif kind == "postgres":
        connection = psycopg.connect(request.getfixturevalue("postgres_url"))
        yield lambda: SqlStore(connection, "%s")
        connection.close()
    elif kind.startswith("sqlalchemy"):
        url = f"sqlite:///{directory / 'db'}"
        arguments = {}
        if kind.endswith("postgres"):
            url = "postgresql+psycopg://"
            arguments = {"creator": lambda: psycopg.connect(request.getfixturevalue("postgres_url"))}
        engine = sqlalchemy.create_engine(url, **arguments)
        yield lambda: AlchemyStore(engine)
        engine.dispose()
    elif kind == "redis":
        client = redis.Redis(port=request.getfixturevalue("redis_port"))
        yield lambda: RedisStore(client)
        client.close()
    elif kind == "s3":
        s3_client = request.getfixturevalue("s3_client")
        yield lambda: ObjectStore(s3_client)
    else:
        yield lambda: FileStore(directory)


class Oracle:
    """What the rules say, written down once more and without looking at the guards."""

    def __init__(self) -> None:
        self.floor = 0
        self.accepted: list[tuple[int, int]] = []
        self.mode = ""
        self.value: str | None = None

    def arm(self, token: int) -> str:
        if token < self.floor:
            return "stale_token"
        self.floor = token
        return ""

    def write(self, token: int, value: str, mode: str, seq: int | None) -> str:
        number = seq or 0
        if token < self.floor:
            return "stale_token"
        if self.mode and self.mode != mode:
            return "mode_conflict"
        if mode == "once" and any(token <= last for last, _ in self.accepted):
            return "token_used"
        if mode == "sequence" and any((token, number) <= last for last in self.accepted):
            return "seq_replayed"
        self.floor, self.mode, self.value = token, mode, value
        self.accepted.append((token, number))
        return ""


def done(work: Callable[[], object]) -> str:
    try:
        work()
    except tenure.CommitRefused as refused:
        return refused.code if refused.floor is not None else "no floor"
    return ""


tokens = st.integers(1, 5)
steps = st.one_of(
    st.tuples(st.just("arm"), tokens, st.none(), st.none()),
    st.tuples(st.just("write"), tokens, st.sampled_from(["current", "once"]), st.none()),
    st.tuples(st.just("write"), tokens, st.just("sequence"), st.integers(0, 3)),
)


def test_every_guard_accepts_exactly_what_the_rules_accept(make_store: Callable[[], Store]) -> None:
    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(steps, max_size=8))
    def play(script: list[tuple[str, int, str | None, int | None]]) -> None:
        store, oracle = make_store(), Oracle()
        for number, (what, token, mode, seq) in enumerate(script):
            if mode is None:
                assert done(lambda t=token: store.arm(t)) == oracle.arm(token)
            else:
                write = (token, f"v{number}", mode, seq)
                assert done(lambda w=write: store.write(*w)) == oracle.write(*write), what
            assert store.read() == oracle.value

    play()


def test_a_paused_holders_late_write_is_refused_before_its_successor_has_written(
    make_store: Callable[[], Store],
) -> None:
    """T1: the floor rises by arming."""
    store = make_store()
    store.arm(7)
    store.write(7, "by 7", "current", None)
    store.arm(8)
    assert done(lambda: store.write(7, "late", "current", None)) == "stale_token"
    assert store.read() == "by 7"


@pytest.mark.parametrize(
    ("token", "mode", "seq"),
    [(0, "current", None), (True, "current", None), (2**53, "current", None), ("7", "current", None)]
    + [(7, "never", None), (7, "once", 1), (7, "sequence", None), (7, "sequence", -1)],
)
def test_what_cannot_be_meant_is_refused(
    make_store: Callable[[], Store], token: Any, mode: str, seq: int | None
) -> None:
    with pytest.raises(tenure.InvalidRequest):
        make_store().write(token, "v", mode, seq)


def test_great_tokens_stay_exact(make_store: Callable[[], Store]) -> None:
    great = 2**53 - 1
    store = make_store()
    store.arm(great - 1)
    store.write(great - 1, "v", "once", None)
    assert done(lambda: store.write(great - 2, "v", "once", None)) == "stale_token"
    assert done(lambda: store.write(great - 1, "v", "once", None)) == "token_used"
    store.write(great, "w", "once", None)
    assert store.read() == "w"


# -- what is particular to each kind


def test_sql_a_rollback_undoes_what_was_accepted_with_the_write(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        store = SqlStore(connection, "%s")
        store.arm(7)
        store.guard.write(connection, store.key, 7, mode="once")
        connection.rollback()
        store.write(7, "v", "once", None)
        assert store.read() == "v"


def test_sql_who_arms_waits_for_a_write_that_is_under_way(postgres_url: str) -> None:
    """A write that was accepted and not yet committed comes before the floor rises, or not at all."""
    with psycopg.connect(postgres_url) as old, psycopg.connect(postgres_url) as new:
        store = SqlStore(old, "%s")
        store.arm(7)
        store.guard.write(old, store.key, 7)
        new.execute("SET lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            store.guard.arm(new, store.key, 8)
        new.rollback()
        old.commit()
        store.guard.arm(new, store.key, 8)
        new.commit()
        with pytest.raises(tenure.CommitRefused):
            store.guard.write(old, store.key, 7)
        old.rollback()


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "sqlalchemy"])
def test_sql_without_a_transaction_nothing_is_guarded_and_the_guard_says_so(
    kind: str, postgres_url: str, tmp_path: Path
) -> None:
    guard = SqlGuard("fences_of_autocommit")
    if kind == "sqlite":
        connection: Any = sqlite3.connect(tmp_path / "db", isolation_level=None)
    elif kind == "postgres":
        connection = psycopg.connect(postgres_url, autocommit=True)
    else:
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'db'}", isolation_level="AUTOCOMMIT")
        connection = engine.connect()
    guard.create(connection)
    with pytest.raises(tenure.InvalidRequest, match="no transaction"):
        guard.write(connection, "k", 7)
    connection.close()
    if kind == "sqlalchemy":
        engine.dispose()


def test_sql_a_cursor_and_a_session_will_do(postgres_url: str, tmp_path: Path) -> None:
    guard = SqlGuard()
    with psycopg.connect(postgres_url) as connection, connection.cursor() as cursor:
        guard.create(cursor)
        guard.write(cursor, next(KEYS), 7)
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'db'}")
    with sqlalchemy.orm.Session(engine) as session, session.begin():
        guard.create(session)
        guard.arm(session, "k", 7)
        guard.write(session, "k", 7)
        assert guard.fence(session, "k").last_token == 7
    engine.dispose()


def test_sql_a_strange_table_or_connection_is_refused() -> None:
    with pytest.raises(tenure.InvalidRequest):
        SqlGuard("fences; DROP TABLE states")
    with pytest.raises(tenure.InvalidRequest, match="no DB-API"):
        SqlGuard().arm(object(), "k", 1)


def test_redis_executes_every_command_or_none(redis_port: int) -> None:
    client = redis.Redis(port=redis_port)
    guard, key = RedisGuard(client), next(KEYS)
    guard.arm(key, 7)
    commands = [("SET", f"{key}:a", "1"), ("INCRBY", f"{key}:b", 5), ("HSET", f"{key}:c", "f", b"\x00\xff")]
    assert guard.write(key, 7, commands, mode="once") == [b"OK", 5, 1]
    assert client.hget(f"{key}:c", "f") == b"\x00\xff"
    with pytest.raises(tenure.CommitRefused):
        guard.write(key, 7, commands, mode="once")
    assert client.get(f"{key}:b") == b"5"
    client.close()


async def test_redis_by_its_asyncio_client(redis_port: int) -> None:
    from redis import asyncio as aioredis

    client = aioredis.Redis(port=redis_port, decode_responses=True)
    guard, key = AsyncRedisGuard(client), next(KEYS)
    await guard.arm(key, 7)
    await guard.write(key, 8, [("SET", key, "v")])
    with pytest.raises(tenure.CommitRefused) as refused:
        await guard.write(key, 7, [("SET", key, "late")])
    assert (refused.value.code, refused.value.floor) == ("stale_token", 8)
    assert (await guard.fence(key)).last_token == 8
    await client.aclose()


class Between:
    """An S3 client that does something else just before the first pointer is put."""

    def __init__(self, client: Any, act: Callable[[], object]) -> None:
        self._client, self._act, self._acted = client, act, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_object(self, **arguments: Any) -> Any:
        if not self._acted and ("IfMatch" in arguments or "IfNoneMatch" in arguments):
            self._acted = True
            self._act()
        return self._client.put_object(**arguments)


def objects(client: Any, key: str) -> list[str]:
    return [found["Key"] for found in client.list_objects_v2(Bucket="bucket", Prefix=key)["Contents"]]


def test_s3_who_arms_in_between_is_not_overlooked(s3_client: Any) -> None:
    """Arming changes no content, and an ETag depends on the content alone."""
    key = f"{next(KEYS)}/race"
    guard = ObjectGuard(s3_client, "bucket")
    guard.write(key, 7, b"first")
    racing = ObjectGuard(Between(s3_client, lambda: guard.arm(key, 8)), "bucket")
    with pytest.raises(tenure.CommitRefused):
        racing.write(key, 7, b"late")
    assert guard.read(key) == b"first"
    assert len(objects(s3_client, key)) == 2, "the pointer and the value: the refused one is gone"


def test_s3_who_writes_in_between_is_not_overwritten_but_followed(s3_client: Any) -> None:
    key = f"{next(KEYS)}/race"
    guard = ObjectGuard(s3_client, "bucket")
    racing = ObjectGuard(Between(s3_client, lambda: guard.write(key, 7, b"first")), "bucket")
    racing.write(key, 8, b"second")
    assert guard.read(key) == b"second"
    assert guard.fence(key).floor == 8
    assert len(objects(s3_client, key)) == 2


def test_s3_a_pointer_that_was_sent_twice_recognizes_itself(s3_client: Any) -> None:
    key = next(KEYS)

    class Stuttering:
        """The answer to each put is lost, and the client library sends it again."""

        def __getattr__(self, name: str) -> Any:
            return getattr(s3_client, name)

        def put_object(self, **arguments: Any) -> Any:
            s3_client.put_object(**arguments)
            return s3_client.put_object(**arguments)

    ObjectGuard(Stuttering(), "bucket").write(key, 7, b"v", mode="once", ContentType="text/plain")
    assert ObjectGuard(s3_client, "bucket").read(key) == b"v"


def test_s3_an_object_of_somebody_else_is_left_alone(s3_client: Any) -> None:
    key = next(KEYS)
    s3_client.put_object(Bucket="bucket", Key=key, Body=b"{}")
    with pytest.raises(tenure.InvalidRequest, match="not written through a guard"):
        ObjectGuard(s3_client, "bucket").write(key, 7, b"v")


def test_files_a_crash_between_file_and_fence_lets_the_same_write_be_made_again(tmp_path: Path) -> None:
    guard = FileGuard(tmp_path / "report")
    guard.arm(7)
    before = (tmp_path / "report.fence").read_bytes()
    guard.write(7, b"v", mode="once")
    (tmp_path / "report.fence").write_bytes(before)
    guard.write(7, b"v", mode="once")
    with pytest.raises(tenure.CommitRefused):
        guard.write(6, b"late", mode="once")
    assert guard.read() == b"v"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "report.fence", "report.lock"]
