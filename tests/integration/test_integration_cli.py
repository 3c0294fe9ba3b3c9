"""Every command of `tenure` against a real cluster of three nodes: what it prints, and its exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Tenure
from dev_process import DevProcess, environment, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("cli")) as running:
        yield running


@pytest.fixture
def tenure(dev: DevProcess) -> Tenure:
    return Tenure(dev.endpoints)


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key of each test's own, with a slash."""
    return f"cli/{request.node.name}"


def test_a_lease_is_acquired_renewed_and_released(tenure: Tenure, key: str) -> None:
    granted = tenure.ok("acquire", key, "--ttl", "30s", "--owner", "agent-a", "--metadata", "workflow=w1")
    lease = granted["lease"]
    assert granted["status"] == "granted"
    assert (lease["key"], lease["owner"], lease["ttl_ms"]) == (key, "agent-a", 30_000)
    assert lease["metadata"] == {"workflow": "w1"}
    renewed = tenure.ok("renew", lease["lease_id"], "--ttl", "1m")["lease"]
    assert (renewed["token"], renewed["ttl_ms"]) == (lease["token"], 60_000)
    assert renewed["expires_in_ms"] > 59_000
    assert tenure.ok("release", lease["lease_id"]) == {"status": "released"}
    assert tenure.ok("release", lease["lease_id"]) == {"status": "already_released"}
    lost = tenure.refused(1, "renew", lease["lease_id"])
    assert (lost["code"], lost["reason"]) == ("lost", "released")


def test_people_get_short_text_that_says_what_to_do_next(tenure: Tenure, key: str) -> None:
    text = tenure.text("acquire", key, "--owner", "agent-a")
    lease_id = text.split("lease id")[1].split()[0]
    assert text.startswith(f"granted {key} to agent-a\n")
    assert f"tenure renew {lease_id}" in text
    assert tenure.text("renew", lease_id).startswith(f"renewed {key}")
    held = tenure("acquire", key, "--owner", "agent-b")
    assert (held.returncode, held.stdout) == (1, b"")
    assert f"{key!r} is held: 'agent-a' holds it with token".encode() in held.stderr
    assert f"--wait 30s; see who waits: tenure queue {key}".encode() in held.stderr
    assert b" ms" not in held.stderr
    assert "agent-a" in tenure.text("get", key)
    assert tenure.text("release", lease_id) == "released\n"


def test_a_held_key_is_refused_with_its_holder(tenure: Tenure, key: str) -> None:
    token = tenure.ok("acquire", key, "--owner", "agent-a")["lease"]["token"]
    refused = tenure.refused(1, "acquire", key, "--owner", "agent-b")
    assert refused["code"] == "held"
    assert (refused["holder"]["owner"], refused["holder"]["token"]) == ("agent-a", token)
    over = tenure.refused(1, "acquire", key, "--owner", "agent-b", "--wait", "300ms")
    assert (over["code"], over["position"], over["holder"]["owner"]) == ("wait_over", 1, "agent-a")
    assert over["ahead"] == [{"owner": "agent-a", "state": "holding"}]
    assert tenure.ok("queue", key)["waiters"] == []


def test_the_same_request_id_finds_the_same_grant(tenure: Tenure, key: str) -> None:
    first = tenure.ok("acquire", key, "--owner", "o", "--request-id", f"{key}-r")
    again = tenure.ok("acquire", key, "--owner", "o", "--request-id", f"{key}-r")
    assert again["lease"]["lease_id"] == first["lease"]["lease_id"]


def test_a_waiting_acquire_shows_in_the_queue_and_is_granted_by_the_release(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "agent-a")["lease"]
    waiting = tenure.process("acquire", key, "--owner", "agent-b", "--wait", "30s", "-o", "json")
    until("the waiter", lambda: tenure.ok("queue", key)["waiters_total"] == 1)
    queue = tenure.ok("queue", key)
    assert [holder["owner"] for holder in queue["holders"]] == ["agent-a"]
    assert [(w["position"], w["owner"]) for w in queue["waiters"]] == [(1, "agent-b")]
    text = tenure.text("queue", key).splitlines()
    assert [line.split()[:2] for line in text if "agent" in line] == [["holds", "agent-a"], ["1", "agent-b"]]
    tenure.ok("release", lease["lease_id"])
    out, errors = waiting.communicate(timeout=30)
    assert (waiting.returncode, errors) == (0, b"")
    granted = json.loads(out)["lease"]
    assert granted["owner"] == "agent-b"
    assert granted["token"] > lease["token"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_wait_leaves_the_queue(tenure: Tenure, key: str, number: int, code: int) -> None:
    """T40: an interrupted acquire leaves nothing behind."""
    tenure.ok("acquire", key, "--owner", "agent-a")
    process = tenure.process("acquire", key, "--owner", "agent-b", "--wait", "1m")
    until("the waiter", lambda: tenure.ok("queue", key)["waiters_total"] == 1)
    began = time.monotonic()
    process.send_signal(number)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out, errors.strip()) == (code, b"", b"")
    assert tenure.ok("queue", key)["waiters_total"] == 0
    assert time.monotonic() - began < 20


def test_get_and_list(tenure: Tenure, key: str) -> None:
    missing = tenure.refused(1, "get", key)
    assert missing["code"] == "not_held"
    for name in ("a", "b", "c"):
        tenure.ok("acquire", f"{key}/{name}", "--owner", f"owner-{name}")
    lease = tenure.ok("get", f"{key}/b")
    assert lease["owner"] == "owner-b"
    assert "lease_id" not in lease
    assert [le["key"] for le in tenure.ok("list", f"{key}/")["leases"]] == [f"{key}/{n}" for n in "abc"]
    assert [le["owner"] for le in tenure.ok("list", f"{key}/", "--owner", "owner-c")["leases"]] == ["owner-c"]
    assert tenure.ok("list", "no such/")["leases"] == []
    cut = tenure("list", f"{key}/", "--limit", "2", "-o", "json")
    assert [le["key"] for le in json.loads(cut.stdout)["leases"]] == [f"{key}/a", f"{key}/b"]
    assert json.loads(cut.stdout)["next"] == f"{key}/b"
    assert f"--after {key}/b".encode() in cut.stderr
    assert [le["key"] for le in tenure.ok("list", f"{key}/", "--after", f"{key}/b")["leases"]] == [f"{key}/c"]
    lines = tenure.text("list", f"{key}/").splitlines()
    assert lines[0].split() == ["KEY", "OWNER", "TOKEN", "MODE", "EXPIRES", "IN"]
    assert [line.split()[:2] for line in lines[-3:]] == [[f"{key}/{n}", f"owner-{n}"] for n in "abc"]


def test_break_takes_the_key_away(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "agent-a")["lease"]
    assert tenure("break", key).returncode == 2
    assert tenure.ok("break", key, "--reason", "gone")["broken"] == [
        {"owner": "agent-a", "token": lease["token"]}
    ]
    assert tenure.refused(1, "renew", lease["lease_id"])["reason"] == "broken"
    assert tenure.ok("break", f"{key}/never", "--reason", "r") == {"broken": []}
    assert "was not held" in tenure.text("break", f"{key}/never", "--reason", "r")


def test_resize_gives_a_pool_that_is_held_another_number_of_slots(tenure: Tenure, key: str) -> None:
    assert tenure.refused(1, "resize", key, "--slots", "3")["code"] == "not_held"
    tenure.ok("acquire", key, "--slots", "1")
    assert tenure("resize", key).returncode == 2
    assert tenure.ok("resize", key, "--slots", "2") == {"slots": 2, "before": 1, "holders": 1}
    assert tenure.ok("acquire", key, "--slots", "2", "--owner", "another")["lease"]["slot"] == 1
    assert "has 1 slot, had 2, and is held by 2" in tenure.text("resize", key, "--slots", "1")


def test_a_late_commit_is_refused_and_says_the_floor(tenure: Tenure, key: str) -> None:
    old = tenure.ok("acquire", key, "--owner", "agent-a")["lease"]
    tenure.ok("break", key, "--reason", "test")
    new = tenure.ok("acquire", key, "--owner", "agent-b")["lease"]

    def commit(lease: dict, *more: str) -> list[str]:
        return ["commit", key, "--token", str(lease["token"]), "--lease-id", lease["lease_id"], *more]

    stale = tenure.refused(1, *commit(old, "--value", "late"))
    assert (stale["code"], stale["floor"]) == ("stale_token", new["token"])
    accepted = tenure.ok(*commit(new, "--value", "the result", "--op-id", f"{key}-op", "--digest", "sha"))
    assert accepted["status"] == "accepted"
    assert (
        tenure.ok(*commit(new, "--value", "the result", "--op-id", f"{key}-op", "--digest", "sha"))[
            "revision"
        ]
        == accepted["revision"]
    )
    assert tenure.refused(1, *commit(new, "--value", "more"))["code"] == "token_used"
    record = tenure.ok("record", key)
    assert (record["value"], record["token"], record["digest"]) == ("the result", new["token"], "sha")
    assert tenure("record", key, "--raw").stdout == b"the result"
    text = tenure.text("record", key)
    assert "the result" in text
    assert "agent-b" in text


def test_commits_in_sequence_from_files_and_after_the_end(tenure: Tenure, key: str, tmp_path: Path) -> None:
    lease = tenure.ok("acquire", key, "--owner", "o")["lease"]
    base = ["commit", key, "--token", str(lease["token"]), "--lease-id", lease["lease_id"]]
    (tmp_path / "binary").write_bytes(b"\x00\xff\x01")
    tenure.ok(*base, "--seq", "1", "--value-file", str(tmp_path / "binary"))
    assert tenure("record", key, "--raw").stdout == b"\x00\xff\x01"
    assert "(base64) AP8B" in tenure.text("record", key)
    tenure.ok(*base, "--seq", "2", "--value-file", "-", stdin="überall\n".encode())
    assert tenure("record", key, "--raw").stdout == "überall\n".encode()
    assert tenure.refused(1, *base, "--seq", "2", "--value", "x")["code"] == "seq_replayed"
    assert tenure.refused(1, *base, "--mode", "once", "--value", "x")["code"] == "mode_conflict"
    revision = tenure.ok("record", key)["revision"]
    conflict = tenure.refused(1, *base, "--seq", "3", "--if-revision", str(revision + 100), "--value", "x")
    assert (conflict["code"], conflict["revision"]) == ("revision_conflict", revision)
    tenure.ok("release", lease["lease_id"])
    assert tenure.refused(1, *base, "--seq", "3", "--value", "x")["code"] == "not_live"
    tenure.ok(*base, "--seq", "3", "--value", "x", "--no-require-live")


def test_a_record_is_deleted_only_at_its_revision(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "o")["lease"]
    tenure.ok("commit", key, "--token", str(lease["token"]), "--lease-id", lease["lease_id"], "--value", "v")
    revision = tenure.ok("record", key)["revision"]
    refused = tenure.refused(1, "record", key, "--delete", "--if-revision", str(revision + 1))
    assert refused["code"] == "revision_conflict"
    assert tenure.ok("record", key, "--delete", "--if-revision", str(revision)) == {"status": "deleted"}
    assert tenure.refused(1, "record", key)["code"] == "no_record"
    assert tenure.refused(1, "record", key, "--delete")["code"] == "no_record"


def test_status_shows_every_node_however_few_are_named(dev: DevProcess, tenure: Tenure) -> None:
    for endpoints in (dev.endpoints, dev.urls[1]):
        status = tenure.ok("status", "--endpoints", endpoints)
        assert status["cluster"]["role"] == "leader"
        assert {node["view"]["node"] for node in status["nodes"]} == {"n1", "n2", "n3"}
        assert all(node["reachable"] for node in status["nodes"])
    text = tenure.text("status")
    assert f"leader {status['cluster']['leader']}" in text
    assert all(url in text for url in dev.urls)


def test_status_tells_which_node_is_unreachable(dev: DevProcess, tenure: Tenure) -> None:
    nobody = "http://127.0.0.1:1"
    status = tenure.ok("status", "--endpoints", f"{nobody},{dev.urls[0]}")
    assert {node["endpoint"]: node["reachable"] for node in status["nodes"]}[nobody] is False
    alone = tenure("status", "--endpoints", nobody)
    assert alone.returncode == 3
    assert b"no leader answered" in alone.stderr


def test_the_process_ends_with_the_exit_code_of_what_happened(tenure: Tenure, key: str) -> None:
    expected = {0: ("acquire", key), 1: ("get", f"{key}/none"), 2: ("acquire", key, "--ttl", "5")}
    for code, arguments in expected.items():
        process = tenure.process(*arguments)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == code
        assert b"Traceback" not in errors
    process = Tenure("http://127.0.0.1:1").process("get", key, "--timeout", "200ms")
    process.communicate(timeout=30)
    assert process.returncode == 3


@pytest.mark.parametrize("command", [["get", "k"], ["acquire", "k"], ["list"], ["release", "x"]])
def test_an_unreachable_cluster_is_exit_code_3_with_what_was_tried(command: list[str]) -> None:
    nobody = Tenure("http://127.0.0.1:1")
    refused = nobody.refused(3, *command, "--timeout", "300ms")
    assert refused["code"] == "unreachable"
    assert "http://127.0.0.1:1: connection refused" in refused["detail"]


def test_without_a_majority_every_command_says_that_it_was_not_executed_in_its_time(tmp_path: Path) -> None:
    with DevProcess(tmp_path) as dev:
        tenure = Tenure(dev.endpoints)
        leader = tenure.ok("status")["cluster"]["leader"]
        survivor = next(node for node in ("n1", "n2", "n3") if node != leader)
        dead = {"n1", "n2", "n3"} - {survivor}
        for node in dead:
            dev.kill(node)
        assert [dev.wait_for("died", node=node)["majority"] for node in dead].count(False) == 1
        # Once the one that is left has noticed.
        said: list[str] = []

        def survivor_knows_no_leader() -> bool:
            asked = tenure("status")
            said[:] = asked.stdout.decode().splitlines()
            return asked.returncode == 3 and "no leader" in said[0]

        until("no leader", survivor_knows_no_leader)
        lines = said
        unreachable = [line.split()[0] for line in lines if "unreachable" in line]
        assert sorted(unreachable) == sorted(dead)
        commands = [["acquire", "k", "--timeout", "5s"], ["release", "x", "--timeout", "3s"]]
        for command in commands:
            began = time.monotonic()
            refused = tenure.refused(3, *command)
            assert time.monotonic() - began < 6.0
            assert refused["code"] == "no_leader"
            assert "no node could execute" in refused["detail"]
            assert "may or may not" not in refused["detail"]


def test_ctrl_c_while_the_libraries_load_ends_it_without_a_traceback() -> None:
    program = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            print("loading", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
from tenure.cli import main
main(["get", "k"])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (-signal.SIGINT, b"")


def test_a_commit_without_a_value_says_that_the_record_is_unchanged(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "o")["lease"]
    base = ["commit", key, "--token", str(lease["token"]), "--lease-id", lease["lease_id"]]
    text = tenure.text(*base, "--mode", "current")
    assert "accepted" in text
    assert "no value given, the record is unchanged" in text
    assert "no value" not in tenure.text(*base, "--mode", "current", "--value", "")


def test_hints_name_the_key_as_a_shell_takes_it(tenure: Tenure) -> None:
    key = "cli/it's here"
    tenure.ok("acquire", key, "--owner", "a", "--ttl", "5s")
    told = tenure("acquire", key, "--owner", "b").stderr.decode()
    assert told.rstrip().endswith("tenure queue 'cli/it'\"'\"'s here'")


@pytest.mark.parametrize(
    "arguments",
    [
        ["acquire"],
        ["acquire", "k", "--ttl", "30"],
        ["acquire", "k", "--metadata", "novalue"],
        ["acquire", "k", "--shared", "--slots", "2"],
        ["acquire", "k", "--progress-within", "soon"],
        ["renew", "l", "--ttl", "30s", "--step", "s"],
        ["handover", "l"],
        ["park", "l"],
        ["run", "k"],
        ["run", "k", "--"],
        ["run", "--", "k"],
        ["run", "k", "--shared", "--slots", "2", "--", "true"],
        ["watch", "--kind", "nonsense"],
        ["watch", "--from", "-1"],
        ["commit", "k", "--token", "1"],
        ["commit", "k", "--token", "1", "--lease-id", "l", "--value", "a", "--value-file", "b"],
        ["commit", "k", "--token", "1", "--lease-id", "l", "--value-file", "/does/not/exist"],
        ["record", "k", "--if-revision", "1"],
        ["get", "k", "--credential-file", "/does/not/exist"],
        ["get", "k", "--endpoints", "nonsense://x"],
        ["nonsense"],
    ],
)
def test_wrong_usage_is_exit_code_2(tenure: Tenure, arguments: list[str]) -> None:
    done = tenure(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.strip()
    assert b"Traceback" not in done.stderr


def test_what_the_cluster_calls_invalid_is_wrong_usage_too(tenure: Tenure) -> None:
    refused = tenure.refused(2, "acquire", "k", "--ttl", "1ms")
    assert refused["code"] == "out_of_range"
    assert tenure.refused(2, "acquire", "", "--owner", "o")["code"] in ("invalid", "out_of_range")


def test_options_may_stand_before_the_command(dev: DevProcess, key: str) -> None:
    nowhere = Tenure("http://127.0.0.1:1")
    done = nowhere("--endpoints", dev.endpoints, "-o", "json", "list", key)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"leases": [], "next": None})


def test_a_key_is_taken_as_it_is(tenure: Tenure, key: str) -> None:
    for odd in (f"{key}//x", f"{key}/../y", f"{key}/ü %2F?#&=", "..", "."):
        tenure.ok("acquire", odd, "--owner", "o", "--ttl", "5s")
        assert tenure.ok("get", odd)["key"] == odd
        assert tenure.ok("queue", odd)["holders"][0]["key"] == odd


def test_what_others_stored_cannot_steer_the_terminal(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "o")["lease"]
    evil = "\x1b[2J\x1b]0;title\x07"
    tenure.ok("commit", key, "--token", str(lease["token"]), "--lease-id", lease["lease_id"], "--value", evil)
    assert "\x1b" not in tenure.text("record", key)


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["acquire"],
        ["renew"],
        ["release"],
        ["get"],
        ["list"],
        ["queue"],
        ["break"],
        ["handover"],
        ["park"],
        ["unpark"],
        ["run"],
        ["watch"],
        ["commit"],
        ["record"],
        ["status"],
    ],
)
def test_every_command_has_help_with_examples(tenure: Tenure, command: list[str]) -> None:
    text = tenure.text(*command, "--help")
    assert "Examples:" in text
    assert "--output" in text


def test_the_installed_script_is_this_program() -> None:
    script = Path(sys.executable).with_name("tenure")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, env=os.environ)
    assert done.stdout.startswith("tenure, version ")
