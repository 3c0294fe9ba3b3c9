"""Every fault of a start that issue 7 names: one line that says what is wrong and what to do, and an exit
code that is not 0.

Each is met by a real `tenured run`. What a node logged before it met the fault may stand above the line.
"""

import asyncio
import datetime as dt
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from live_cluster import LiveCluster, LiveNode, free_ports

NOBODY = 65_534

AHEAD = """\
import sys
from tenure_cluster.raft import clock
true = clock.SystemClock.wall_ms
clock.SystemClock.wall_ms = lambda self: true(self) + 3_600_000
from tenure_cluster.cli import main
main(sys.argv[1:])
"""
"""`tenured` on a machine whose clock is an hour ahead."""

AS_NOBODY = f"""\
import os, sys
import tenure_cluster.node, tenure_cluster.config, tenure_cluster.observe.logs
from tenure_cluster.cli import main
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
main(sys.argv[1:])
"""
"""`tenured` as another user than root, from an environment that only root can read."""


def configured(directory: Path, **top: str) -> Path:
    """The configuration of a cluster of one, on free ports."""
    http, peer = free_ports(2)
    settings = {"cluster_id": "c", "node_id": "n1", **top}
    lines = [f'{name} = "{value}"' for name, value in settings.items() if "." not in name]
    addresses = {"http.listen": f"127.0.0.1:{http}", "peer.listen": f"127.0.0.1:{peer}"}
    dotted = {**addresses, **{name: value for name, value in top.items() if "." in name}}
    lines += [f'{name} = "{value}"' for name, value in dotted.items()]
    path = directory / "node.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def started(config: Path, program: str | None = None) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    command = ["-m", "tenure_cluster.cli"] if program is None else ["-c", program]
    return subprocess.Popen(
        [sys.executable, *command, "run", "--config", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def fault_of(process: subprocess.Popen[str], code: int) -> str:
    """The line with which it ended, by itself, with this code."""
    try:
        said, told = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == code, told
    assert said == ""
    lines = told.splitlines()
    assert [line for line in lines if line.startswith("tenured: ")] == lines[-1:], told
    assert "Traceback" not in told
    return lines[-1]


@pytest.mark.process
@pytest.mark.parametrize("setting", ["http.listen", "peer.listen"])
def test_port_taken(tmp_path: Path, setting: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = fault_of(started(configured(tmp_path, **{setting: address})), 3)
    assert f"{setting} = '{address}': Address already in use; free it, or set another" in told


@pytest.mark.process
@pytest.mark.parametrize("setting", ["http.listen", "peer.listen"])
def test_host_that_is_none(tmp_path: Path, setting: str) -> None:
    address = "[fe80::1%nowhere]:7601"  # of which no name server is asked
    config = configured(tmp_path, **{setting: address})
    config.write_text("insecure = true\n" + config.read_text())
    told = fault_of(started(config), 3)
    assert f"{setting} = '{address}': " in told
    assert "Unknown error" not in told
    assert told.endswith("; free it, or set another")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that others than its owner can look into; pytest's own are for one user alone."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def unprivileged() -> str | None:
    """The program for a process that is not root's: root has all rights, and must give them up first."""
    return AS_NOBODY if os.geteuid() == 0 else None


@pytest.mark.process
def test_directory_not_writable(shared: Path) -> None:
    data = shared / "data"
    data.mkdir()
    data.chmod(0o555)
    told = fault_of(started(configured(shared, data_dir=str(data)), unprivileged()), 3)
    assert f"data_dir = '{data}' can't be used by " in told
    assert f": {data}; or set another data_dir" in told
    assert "chown -R " in told


@pytest.mark.process
def test_wrong_owner(shared: Path) -> None:
    """A file in the directory is somebody else's: of root, who started the node by hand once."""
    data = shared / "data"
    data.mkdir()
    journal = data / "journal-0000000001.seg"
    journal.write_bytes(b"")
    if os.geteuid() == 0:
        data.chmod(0o777)
        journal.chmod(0o600)
    else:
        journal.chmod(
            0o000
        )  # only root can make a file somebody else's; what matters is that it is of no use
    told = fault_of(started(configured(shared, data_dir=str(data)), unprivileged()), 3)
    assert f"journal-0000000001.seg belongs to {pwd.getpwuid(os.geteuid()).pw_name}" in told
    assert "chown -R " in told


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns what it does not own")
def test_wrong_owner_met_by_root(tmp_path: Path) -> None:
    """Root could work in it, and nobody but root afterwards."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "members").write_bytes(b"")
    os.chown(data / "members", NOBODY, NOBODY)
    told = fault_of(started(configured(tmp_path, data_dir=str(data))), 3)
    assert "members belongs to nobody: run it as nobody, or: chown -R root" in told


@pytest.mark.process
async def test_clock_of_peers(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path) as cluster:
        n1, n2, n3 = cluster.nodes.values()
        await cluster.stop(n3)
        told = await asyncio.to_thread(fault_of, started(n3.config_path, AHEAD), 3)
        assert "the clock of this machine is" in told
        assert f"ahead of {n1.node_id}" in told
        assert f"ahead of {n2.node_id}" in told
        assert "set it, and keep it synchronised" in told
        cluster.start(n3)
        await cluster.ready(n3)


@pytest.mark.process
async def test_two_nodes_with_one_id(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path) as cluster:
        n3 = cluster.nodes["n3"]
        http, peer = free_ports(2)
        copy = tmp_path / "copy" / "tenured.toml"
        copy.parent.mkdir()
        copy.write_text(
            n3.config_path.read_text()
            .replace(f'listen = "127.0.0.1:{n3.http_port}"', f'listen = "127.0.0.1:{http}"')
            .replace(f'listen = "127.0.0.1:{n3.peer_port}"', f'listen = "127.0.0.1:{peer}"')
        )
        assert str(http) in copy.read_text()
        assert str(peer) in copy.read_text()
        told = await asyncio.to_thread(fault_of, started(with_advertised(copy, n3)), 3)
        assert "another process runs as node 'n3', and was there before" in told
        assert "stop that one, or give this node an id of its own" in told
        await cluster.ready(n3)
        cluster.assert_all_run()


def with_advertised(config: Path, node: LiveNode) -> Path:
    """A copy must say the addresses that members have, or its own configuration is at fault."""
    text = config.read_text()
    for section, address in (
        ("http", f'"http://127.0.0.1:{node.http_port}"'),
        ("peer", f'"127.0.0.1:{node.peer_port}"'),
    ):
        text = text.replace(f"[{section}]\n", f"[{section}]\nadvertise = {address}\n")
    config.write_text(text)
    return config


@pytest.mark.process
async def test_node_of_another_cluster_by_its_addresses(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path) as cluster:
        n3 = cluster.nodes["n3"]
        await cluster.stop(n3)
        shutil.rmtree(n3.data_dir)
        cluster.write_config(n3, cluster_id="parcels")
        told = await asyncio.to_thread(fault_of, started(n3.config_path), 3)
        assert "n1 and n2 are nodes of another cluster" in told
        assert "cluster_id 'parcels', this node is of 'live'" in told
        assert "correct the addresses in [members] or the cluster_id" in told


@pytest.mark.process
async def test_node_of_another_cluster_by_its_data(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path, nodes=1) as cluster:
        n1 = cluster.nodes["n1"]
        await cluster.stop(n1)
        cluster.write_config(n1, cluster_id="parcels")
        told = await asyncio.to_thread(fault_of, started(n1.config_path), 4)
        assert "it belongs to node 'n1' of cluster 'live', not to node 'n1' of cluster 'parcels'" in told
        assert "Give the node its own, undamaged data_dir" in told


@pytest.mark.process
def test_certificate_expired(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "n1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=9))
        .not_valid_after(now - dt.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("n1")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "n1.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "n1.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    files = {"tls.cert": "n1.pem", "tls.key": "n1.key", "tls.ca": "n1.pem"}
    told = fault_of(started(configured(tmp_path, **files)), 2)
    assert "tls.cert = " in told
    assert "expired at " in told
    assert "renew it (tenured tls renew)" in told


@pytest.mark.process
@pytest.mark.parametrize(
    ("typo", "told"),
    [
        ({"durablity": "os"}, "unknown setting durablity; did you mean durability?"),
        ({"http.lisen": "127.0.0.1:1"}, "unknown setting http.lisen; did you mean http.listen?"),
        ({"durability": "disk"}, "durability: invalid enum value 'disk'"),
        (
            {"http.listen": "n1..example:7601"},
            "http.listen: 'n1..example:7601' has a host that can't be a name",
        ),
    ],
)
def test_config_typo(tmp_path: Path, typo: dict[str, str], told: str) -> None:
    assert told in fault_of(started(configured(tmp_path, **typo)), 2)
