"""The stores that guards are tested with: real servers, started here, each in a directory of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

PATIENCE_S = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """Where it is installed. Debian keeps PostgreSQL's server programs out of PATH."""
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None
    )
    assert found is not None, f"{name} is not installed: run .ci/services"
    return found


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server of its own; gives its connection string."""
    # Not in pytest's directory: the server refuses to run as root, and every start of pytest takes that
    # directory away from all others.
    with tempfile.TemporaryDirectory(prefix="tenure-postgres-") as directory:
        yield from _postgres(Path(directory))


def _postgres(directory: Path) -> Iterator[str]:
    setpriv = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    as_user = setpriv if os.getuid() == 0 else []
    data = directory / "data"
    if as_user:
        shutil.chown(directory, "postgres", "postgres")
    initdb = [*as_user, program("initdb"), "-D", str(data), "-U", "test", "-A", "trust", "-E", "UTF8", "-N"]
    subprocess.run(initdb, check=True, capture_output=True, cwd="/")
    port = free_port()
    options = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", ""]
    server = subprocess.Popen(
        [*as_user, program("postgres"), "-D", str(data), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
    )
    url = f"host=127.0.0.1 port={port} user=test dbname=postgres"
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert server.poll() is None, server.stderr and server.stderr.read()
            try:
                psycopg.connect(url, connect_timeout=2).close()
                break
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield url
    finally:
        server.terminate()
        server.wait()
        if server.stderr is not None:
            server.stderr.close()


@contextlib.contextmanager
def redis(directory: Path) -> Iterator[int]:
    """A Redis server of its own; gives its port."""
    port = free_port()
    command = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    server = subprocess.Popen([*command, str(directory)], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert server.poll() is None
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield port
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def s3() -> Iterator[Any]:
    """A client of a server that speaks the S3 protocol, with the bucket ``bucket``."""
    import logging

    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="bucket")
    try:
        yield client
    finally:
        client.close()
        server.stop()
