"""`tenured restore`, `recover` and `inspect` without a cluster: what is made, and what is refused."""

import errno
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))

from backup_files import INDEX, MADE_WALL_MS, TERM, backup_bytes, some_state, write_backup

from tenure_cluster.cli import cli
from tenure_cluster.inspection import described, read_stopped
from tenure_cluster.lease.restoration import JUMP
from tenure_cluster.pid_file import PidFile
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import SystemDisk
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.messages import encode_entry

CONFIG = """\
cluster_id = "orders"
node_id = "{node}"
data_dir = "{node}"
insecure = true
""" + "".join(
    f'[members.n{n}]\npeer = "127.0.0.1:770{n}"\nhttp = "http://127.0.0.1:760{n}"\n' for n in (1, 2, 3)
)


def tenured(*arguments: str | Path) -> Result:
    environment = {name: None for name in os.environ if name.startswith("TENURE_")}
    return CliRunner(env=environment).invoke(cli, [str(argument) for argument in arguments])


def refused(code: int, *arguments: str | Path) -> str:
    """The one line of a command that must be refused."""
    done = tenured(*arguments)
    assert done.exit_code == code, (done.output, done.exception)
    [line] = done.stderr.splitlines()[-1:]
    assert line.startswith("tenured: ")
    assert done.stdout == ""
    return line


@pytest.fixture
def configs(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for node in ("n1", "n2", "n3"):
        text = CONFIG.format(node=node)
        extra = f'http.listen = "127.0.0.1:760{node[1]}"\npeer.listen = "127.0.0.1:770{node[1]}"\n'
        found[node] = tmp_path / f"{node}.toml"
        found[node].write_text(text.replace("insecure = true\n", f"insecure = true\n{extra}"))
    return found


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return write_backup(tmp_path / "orders.backup", made_wall_ms=time.time_ns() // 1_000_000)


def held(data_dir: Path) -> dict[str, Any]:
    return described(read_stopped(data_dir), 5)


def test_every_node_gets_the_same_state_at_the_backup_s_place(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    told = {}
    for node, config in configs.items():
        done = tenured("restore", backup, "--config", config, "-o", "json")
        assert done.exit_code == 0, (done.output, done.exception)
        told[node] = json.loads(done.stdout)
    assert len({each["known_as"] for each in told.values()}) == 1
    found = {node: held(tmp_path / node) for node in configs}
    assert len({each["state"]["digest"] for each in found.values()}) == 1
    for node, each in found.items():
        assert each["node"] == node
        assert each["cluster"] == told[node]["known_as"]
        assert (each["log"]["last_index"], each["log"]["last_term"], each["log"]["term"]) == (
            INDEX,
            TERM,
            TERM,
        )
        assert (each["snapshot"]["index"], each["snapshot"]["term"]) == (INDEX, TERM)
        assert (each["state"]["leases"], each["state"]["sessions"]) == (0, 0)
        assert each["state"]["last_token"] >= JUMP
        assert each["state"]["restored"] is True
    assert told["n1"]["leases_ended"] == 2


def test_people_are_told_what_to_do_next(configs: dict[str, Path], backup: Path) -> None:
    done = tenured("restore", backup, "--config", configs["n1"])
    assert done.exit_code == 0
    assert "Restore n2 and n3 from the same file, then start all of them." in done.stdout


def test_a_data_directory_that_is_not_empty_is_refused_untouched(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "journal-0000000001.seg").write_bytes(b"precious")
    assert "is not empty (journal-0000000001.seg)" in refused(1, "restore", backup, "--config", configs["n1"])
    assert [path.name for path in (tmp_path / "n1").iterdir()] == ["journal-0000000001.seg"]
    assert tenured("restore", backup, "--config", configs["n2"]).exit_code == 0
    assert "is not empty" in refused(1, "restore", backup, "--config", configs["n2"])


def test_what_a_volume_brings_along_does_not_count(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    (tmp_path / "n1" / "lost+found").mkdir(parents=True)
    (tmp_path / "n1" / "tenured.pid").write_text("")
    assert tenured("restore", backup, "--config", configs["n1"]).exit_code == 0


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (backup_bytes()[:-1], "it is cut off"),
        (backup_bytes()[:300] + b"\xff" + backup_bytes()[301:], "it is damaged"),
        (b"Not a backup, but a letter.", "it is not a backup made by tenure"),
    ],
    ids=["cut", "damaged", "foreign"],
)
def test_a_file_that_is_no_whole_backup_is_refused_and_nothing_is_written(
    tmp_path: Path, configs: dict[str, Path], content: bytes, named: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert named in refused(4, "restore", tmp_path / "file", "--config", configs["n1"])
    assert not (tmp_path / "n1").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, configs: dict[str, Path]) -> None:
    told = refused(3, "restore", tmp_path / "absent", "--config", configs["n1"])
    assert "absent: No such file or directory" in told


def test_another_cluster_s_backup_is_refused_unless_that_is_meant(
    tmp_path: Path, configs: dict[str, Path]
) -> None:
    other = write_backup(tmp_path / "other", cluster_id="parcels")
    told = refused(1, "restore", other, "--config", configs["n1"], "--token-floor", "1")
    assert "of cluster 'parcels'" in told
    assert "--from-cluster parcels" in told
    again = ("restore", other, "--config", configs["n1"], "--token-floor", "1", "--from-cluster", "parcels")
    assert tenured(*again).exit_code == 0


def test_a_backup_of_a_restored_cluster_is_of_the_same_cluster(
    tmp_path: Path, configs: dict[str, Path]
) -> None:
    again = write_backup(tmp_path / "again", cluster_id="orders+0123456789ab", made_wall_ms=0)
    assert tenured("restore", again, "--config", configs["n1"]).exit_code == 0


def test_a_clock_that_can_not_be_right_is_refused_unless_there_is_a_floor(
    tmp_path: Path, configs: dict[str, Path]
) -> None:
    late = write_backup(tmp_path / "late", made_wall_ms=2 * MADE_WALL_MS)
    told = refused(1, "restore", late, "--config", configs["n1"])
    assert "set its clock" in told
    assert "--token-floor" in told
    floored = ("restore", late, "--config", configs["n1"], "--token-floor", str(10**15), "-o", "json")
    done = tenured(*floored)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["token_base"] == 10**15


def test_different_restores_of_one_file_make_clusters_that_do_not_know_each_other(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    names = set()
    for number, options in enumerate([(), ("--token-floor", "5000000000"), ("--restore-id", "second")]):
        directory = tmp_path / f"d{number}"
        command = ("restore", backup, "--config", configs["n1"], "--data-dir", directory, "-o", "json")
        names.add(json.loads(tenured(*command, *options).stdout)["known_as"])
    assert len(names) == 3
    assert "orders+second" in names


def test_a_name_of_a_restore_that_can_be_none_is_a_usage_fault(
    configs: dict[str, Path], backup: Path
) -> None:
    assert "--restore-id" in refused(
        2, "restore", backup, "--config", configs["n1"], "--restore-id", "no spaces"
    )


def test_a_configuration_with_a_fault_is_told_in_one_line(tmp_path: Path, backup: Path) -> None:
    (tmp_path / "n.toml").write_text('cluster_id = "orders"\nnode_idd = "n1"\n')
    assert "did you mean node_id" in refused(2, "restore", backup, "--config", tmp_path / "n.toml")


def test_a_directory_of_a_running_node_is_neither_inspected_nor_recovered(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    assert tenured("restore", backup, "--config", configs["n1"]).exit_code == 0
    pid_file = PidFile(tmp_path / "n1")
    try:
        for command in (
            ("inspect", tmp_path / "n1"),
            ("recover", tmp_path / "n1", "--to", tmp_path / "r", "--i-accept-data-loss"),
        ):
            assert f"a node runs on it, as process {os.getpid()}: stop it first" in refused(1, *command)
    finally:
        pid_file.release()
    assert tenured("inspect", tmp_path / "n1").exit_code == 0


def test_inspect_tells_people_and_programs_the_same(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    assert tenured("restore", backup, "--config", configs["n1"]).exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "n1").iterdir()}
    text = tenured("inspect", tmp_path / "n1", "--log", "2").stdout
    assert "n1 of cluster orders+" in text
    assert f"{INDEX}  term {TERM}  no-op" in text
    for option in (("--json",), ("-o", "json")):
        told = json.loads(tenured("inspect", tmp_path / "n1", *option, "--log", "2").stdout)
        assert told == described(read_stopped(tmp_path / "n1"), 2)
        assert [entry["index"] for entry in told["entries"]] == [INDEX - 1, INDEX]
    assert {path.name: path.read_bytes() for path in (tmp_path / "n1").iterdir()} == before


def test_inspect_says_of_a_directory_that_is_none_and_of_a_damaged_one_what_it_is(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    assert "holds no journal" in refused(1, "inspect", tmp_path)
    assert "is not a directory" in refused(1, "inspect", tmp_path / "absent")
    assert tenured("restore", backup, "--config", configs["n1"]).exit_code == 0
    [snapshot] = (tmp_path / "n1").glob("snapshot-*.snap")
    data = bytearray(snapshot.read_bytes())
    data[-40] ^= 1
    snapshot.write_bytes(data)
    assert "snapshot damaged" in refused(4, "inspect", tmp_path / "n1")


def test_recover_says_what_is_lost_and_makes_a_backup_that_can_be_restored(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    assert tenured("restore", backup, "--config", configs["n1"]).exit_code == 0
    made = tmp_path / "recovered.backup"
    told = refused(2, "recover", tmp_path / "n1", "--to", made)
    assert "nothing was done: add --i-accept-data-loss" in told
    assert not made.exists()
    done = tenured("recover", tmp_path / "n1", "--to", made, "--i-accept-data-loss")
    assert done.exit_code == 0, done.output
    assert "RECOVERY FROM A MINORITY" in done.stderr
    assert made.stat().st_mode & 0o777 == 0o600
    assert "File exists" in refused(3, "recover", tmp_path / "n1", "--to", made, "--i-accept-data-loss")
    assert tenured("restore", made, "--config", configs["n2"]).exit_code == 0
    first, second = held(tmp_path / "n1"), held(tmp_path / "n2")
    assert second["log"]["last_index"] == first["log"]["last_index"]
    assert second["state"]["last_token"] >= first["state"]["last_token"] + JUMP


def test_an_entry_of_a_later_version_is_told_with_what_to_use(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    assert tenured("restore", backup, "--config", configs["n1"]).exit_code == 0
    contents = read_stopped(tmp_path / "n1")
    assert contents.snapshot is not None
    disk = SystemDisk(tmp_path / "n1")
    journal = Journal.open(
        disk,
        SystemClock(),
        cluster_id=contents.cluster_id,
        node_id="n1",
        segment_bytes=16 << 20,
        snapshot=contents.snapshot.boundary,
    )
    later = encode_entry([(5_000, msgspec.msgpack.encode([99, "of a later version"]))])
    journal.add(later, contents.last_index + 1, contents.last_term)
    journal.sync_now()
    journal.close()
    disk.close()
    for command in (
        ("inspect", tmp_path / "n1"),
        ("recover", tmp_path / "n1", "--to", tmp_path / "r", "--i-accept-data-loss"),
    ):
        assert "use the program that the node ran last" in refused(4, *command)
    assert not (tmp_path / "r").exists()


def test_recover_makes_its_file_where_there_are_no_links(
    tmp_path: Path, configs: dict[str, Path], backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a stick or a share, to which one saves what is left."""

    def unsupported(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(source), None, str(target))

    assert tenured("restore", backup, "--config", configs["n1"]).exit_code == 0
    monkeypatch.setattr(os, "link", unsupported)
    made = tmp_path / "recovered.backup"
    command = ("recover", tmp_path / "n1", "--to", made, "--i-accept-data-loss")
    assert tenured(*command).exit_code == 0
    assert made.stat().st_mode & 0o777 == 0o600
    kept = made.read_bytes()
    assert "File exists" in refused(3, *command)
    assert (made.read_bytes(), list(tmp_path.glob("*.part"))) == (kept, [])
    assert tenured("restore", made, "--config", configs["n2"]).exit_code == 0


def test_a_directory_that_was_half_restored_does_not_start(
    tmp_path: Path, configs: dict[str, Path], backup: Path
) -> None:
    """The journal comes last: without it a node refuses, and so does another restore."""
    assert tenured("restore", backup, "--config", configs["n1"]).exit_code == 0
    for journal in (tmp_path / "n1").glob("journal-*"):
        journal.unlink()
    assert "holds no journal" in refused(1, "inspect", tmp_path / "n1")
    assert "is not empty" in refused(1, "restore", backup, "--config", configs["n1"])


def test_a_state_that_is_no_state_is_refused(tmp_path: Path, configs: dict[str, Path]) -> None:
    machine = some_state("a")
    machine.table.last_ticket = -1
    machine.table.time_ms = 0  # before its own leases were granted
    file = write_backup(tmp_path / "impossible", machine, made_wall_ms=0)
    assert "contradicts itself" in refused(4, "restore", file, "--config", configs["n1"])
    assert not (tmp_path / "n1").exists()
