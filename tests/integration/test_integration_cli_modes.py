"""The command line and what several hold, what changes hands, what rests, and what can be followed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from command_line import Tenure
from dev_process import DevProcess, until

import tenure as library

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("cli-modes")) as running:
        yield running


@pytest.fixture
def tenure(dev: DevProcess) -> Tenure:
    return Tenure(dev.endpoints)


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"modes/{request.node.name}"


def test_readers_share_a_key_and_a_writer_is_refused(tenure: Tenure, key: str) -> None:
    leases = [tenure.ok("acquire", key, "--shared", "--owner", owner)["lease"] for owner in ("a", "b")]
    assert {lease["mode"] for lease in leases} == {"shared"}
    assert leases[0]["token"] == leases[1]["token"]
    assert tenure.refused(1, "acquire", key, "--owner", "c")["code"] == "held"
    assert tenure.ok("get", key)["holders"] == 2
    assert "2, this is the first" in tenure.text("get", key)
    queue = tenure.ok("queue", key)
    assert sorted(holder["owner"] for holder in queue["holders"]) == ["a", "b"]


def test_a_pool_has_as_many_permits_as_slots(tenure: Tenure, key: str) -> None:
    slots = [
        tenure.ok("acquire", key, "--slots", "2", "--owner", owner)["lease"]["slot"] for owner in ("a", "b")
    ]
    assert sorted(slots) == [0, 1]
    assert tenure.refused(1, "acquire", key, "--slots", "2", "--owner", "c")["code"] == "held"
    assert tenure.refused(1, "acquire", key, "--slots", "3", "--owner", "c")["code"] == "mode_conflict"
    other = tenure("acquire", f"{key}/free", key, "--owner", "c").stderr.decode()
    assert f"'{key}' is in use in mode 'permit' with 2 slots, not 'exclusive'" in other
    tenure.ok("resize", key, "--slots", "3")
    joined, number = tenure.text("watch", key, "--from", "0", "--count", "3").splitlines()[-2:]
    assert ("  slot 1" in joined, "  slot " in number, "(3)" in number) == (True, False, True)
    assert "permit, slot 1" in tenure.text("queue", key)
    second = next(lease for lease in tenure.ok("list", key)["leases"] if lease["slot"] == 1)
    write = ("commit", key, "--token", str(second["token"]), "--lease-id", "unknown")
    assert "which is written with its --slot" in tenure(*write).stderr.decode()
    assert "--slot" not in tenure(*write, "--slot", "1").stderr.decode()


def test_several_keys_are_granted_together_or_not_at_all(tenure: Tenure, key: str) -> None:
    keys = [f"{key}/1", f"{key}/2", f"{key}/3"]
    granted = tenure.ok("acquire", *keys, "--owner", "a")
    assert [lease["key"] for lease in granted["leases"]] == keys
    refused = tenure.refused(1, "acquire", f"{key}/0", keys[2], "--owner", "b")
    assert refused["holder"]["key"] == keys[2]
    assert f"'{keys[2]}' is held".encode() in tenure("acquire", f"{key}/0", keys[2], "--owner", "b").stderr
    assert tenure.refused(1, "get", f"{key}/0")["code"] == "not_held"
    assert tenure.ok("release", granted["leases"][1]["lease_id"], "--whole-set") == {"status": "released"}
    assert tenure.ok("list", f"{key}/")["leases"] == []
    said = tenure.text("acquire", *keys, "--owner", "a")
    assert "granted 3 keys to a" in said
    assert "tenure release --whole-set" in said


def test_progress_is_told_and_shown(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "a", "--progress-within", "10m")["lease"]
    note = ("--step", "upload", "--text", "12 of 80 files", "--counter", "12")
    assert tenure.ok("renew", lease["lease_id"], *note)["lease"]["progress"]["counter"] == 12
    text = tenure.text("get", key)
    assert "upload, 12 of 80 files, 12, " in text
    assert "every 10m00s" in text
    told = tenure.text("renew", lease["lease_id"], "--step", "upload", "--counter", "13")
    assert f"unless progress is told: tenure renew {lease['lease_id']} --step" in told
    told = tenure.text("acquire", f"{key}/1", f"{key}/2", "--progress-within", "10m")
    assert "unless progress is told: tenure renew " in told
    assert "unless renewed" not in told


def test_a_lease_that_demands_progress_ends_without_it(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "a", "--ttl", "10m", "--progress-within", "1s")["lease"]
    until("the lease has ended", lambda: tenure("get", key).returncode == 1)
    lost = tenure.refused(1, "renew", lease["lease_id"])
    assert (lost["reason"], lost["cause"]) == ("expired", "no_progress")


def test_a_lease_is_handed_over_to_a_session(dev: DevProcess, tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "a", "--metadata", "ticket=42")["lease"]
    assert tenure.refused(1, "handover", lease["lease_id"], "--to", "nobody")["code"] == "no_session"
    with (
        library.connect_sync(dev.urls) as client,
        client.lease(key, owner="b").successor() as successor,
    ):
        done = tenure.ok("handover", lease["lease_id"], "--to", successor.session_id)
        assert done["status"] == "handed_over"
        assert done["lease"]["owner"] == "b"
        received = successor.acquire()
        assert received.token == done["lease"]["token"] > lease["token"]
        assert received.metadata == {"ticket": "42"}
        # To the same successor again it is the same handover.
        assert tenure.ok("handover", lease["lease_id"], "--to", successor.session_id)["lease"] == {
            **done["lease"],
            "expires_in_ms": pytest.approx(done["lease"]["expires_in_ms"], abs=30_000),
        }
        received.release()
    lost = tenure.refused(1, "handover", lease["lease_id"], "--to", "nobody")
    assert lost["reason"] == "handed_over"


def test_a_lease_is_parked_and_taken_up_again(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "a", "--ttl", "3s")["lease"]
    parked = tenure.ok("park", lease["lease_id"], "--limit", "24h")
    assert parked["status"] == "parked"
    assert parked["lease"]["expires_in_ms"] > 23 * 3_600_000
    assert "parked" in tenure.text("get", key)
    assert tenure.ok("queue", key)["holders"][0]["state"] == "parked"
    commit = ("commit", key, "--token", str(lease["token"]), "--lease-id", lease["lease_id"])
    assert tenure.refused(1, *commit)["code"] == "not_live"
    taken = tenure.ok("unpark", lease["lease_id"], "--ttl", "30s")["lease"]
    assert taken["token"] > lease["token"]
    assert taken["ttl_ms"] == 30_000
    assert tenure.ok("unpark", lease["lease_id"])["lease"]["token"] == taken["token"]
    assert tenure.refused(1, *commit)["code"] == "stale_token"
    tenure.ok("release", lease["lease_id"])
    assert tenure.refused(1, "park", lease["lease_id"], "--limit", "1h")["reason"] == "released"
    assert tenure.refused(1, "unpark", lease["lease_id"])["reason"] == "released"


def test_a_parked_lease_is_not_said_to_be_kept_by_renewing(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "a", "--request-id", key)["lease"]["lease_id"]
    tenure.ok("park", lease, "--limit", "24h")
    for command in (("renew", lease), ("acquire", key, "--owner", "a", "--request-id", key)):
        text = tenure.text(*command)
        assert "parked for" in text, command
        assert f"tenure unpark {lease}" in text, command
        assert "unless renewed" not in text, command


def test_a_pool_with_room_says_what_is_in_the_way(tenure: Tenure, key: str) -> None:
    for owner, ttl in (("a", "10m"), ("b", "3s")):
        tenure.ok("acquire", key, "--slots", "3", "--owner", owner, "--ttl", ttl, "--grace", "1h")
    until("the end of one", lambda: len(tenure.ok("queue", key)["holders"]) == 1)
    refused = tenure.refused(1, "acquire", key, "--slots", "3", "--owner", "c")
    assert (refused["code"], refused["reason"], refused["holder"]["owner"]) == ("held", "grace", "a")
    said = tenure("acquire", key, "--slots", "3", "--owner", "c").stderr.decode()
    assert "has room" in said
    assert "grace period" in said
    assert "is held" not in said


def test_a_session_holds_several_leases_by_one_heartbeat(tenure: Tenure, key: str) -> None:
    opened = tenure.ok("sessions", "open", "--ttl", "1m", "--owner", "a", "--metadata", "m=1")["session"]
    session = opened["session_id"]
    leases = [
        tenure.ok("acquire", f"{key}/{number}", "--session", session, "--owner", "a")["lease"]
        for number in range(2)
    ]
    assert {lease["session_id"] for lease in leases} == {session}
    again = ("acquire", f"{key}/0", "--session", session, "--owner", "a")
    assert tenure.ok(*again)["lease"]["token"] == leases[0]["token"]
    assert tenure.refused(1, *again, "--if-held", "conflict")["code"] == "held"
    assert tenure.ok("sessions", "renew", session, "--ttl", "10m")["session"]["leases"] == 2
    assert tenure.ok("get", f"{key}/1")["expires_in_ms"] > 60_000
    text = tenure.text("sessions", "show", session)
    assert f"tenure sessions renew {session}" in text
    assert "metadata m" in text
    assert tenure.ok("sessions", "close", session) == {"status": "closed"}
    assert tenure.refused(1, "renew", leases[1]["lease_id"])["reason"] == "session_closed"
    for command in (("sessions", "show", session), ("sessions", "close", session)):
        assert tenure.refused(1, *command)["code"] == "no_session"
    refused = tenure("acquire", key, "--session", session)
    assert refused.returncode == 1
    assert b"Open another session: tenure sessions open" in refused.stderr
    assert tenure.refused(1, "sessions", "renew", session)["code"] == "no_session"
    usage = tenure("acquire", key, "--session", session, "--ttl", "1m")
    assert (usage.returncode, b"--ttl goes without --session" in usage.stderr) == (2, True)


def test_a_lease_goes_from_session_to_session_by_the_command_line_alone(tenure: Tenure, key: str) -> None:
    mine, other = [
        tenure.ok("sessions", "open", "--owner", owner, "--ttl", "5m")["session"]["session_id"]
        for owner in ("a", "b")
    ]
    lease = tenure.ok("acquire", key, "--session", mine, "--owner", "a")["lease"]
    given = tenure.ok("handover", lease["lease_id"], "--to", other)["lease"]
    assert (given["session_id"], given["owner"]) == (other, "b")
    tenure.ok("park", given["lease_id"], "--limit", "1h")
    taken = tenure.ok("unpark", given["lease_id"], "--session", mine)["lease"]
    assert (taken["session_id"], taken.get("state", "held")) == (mine, "held")
    assert lease["token"] < given["token"] < taken["token"]
    tenure.ok("sessions", "close", other)
    assert tenure.ok("renew", taken["lease_id"])["lease"]["token"] == taken["token"]
    both = tenure("unpark", taken["lease_id"], "--session", mine, "--ttl", "1m")
    assert (both.returncode, b"--ttl goes without --session" in both.stderr) == (2, True)


def test_what_can_not_be_parked_is_refused(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "a", "--shared")["lease"]
    assert tenure.refused(2, "park", lease["lease_id"], "--limit", "1h")["code"] == "unsupported"


def test_the_queue_shows_whom_everybody_waits_for(dev: DevProcess, tenure: Tenure, key: str) -> None:
    """The owner of one key waits for another: whoever waits for the first waits for the second's holder."""
    near, far = f"{key}/near", f"{key}/far"
    last = tenure.ok("acquire", far, "--owner", "last")["lease"]
    tenure.ok("renew", last["lease_id"], "--step", "compiling")
    with library.connect_sync(dev.urls) as client:
        session = client.open_session(owner="middle", ttl=60)
        client.acquire(near, owner="middle", session_id=session.session_id)
    processes = [
        tenure.process("acquire", near, "--owner", "first", "--wait", "60s"),
        subprocess.Popen(
            [sys.executable, "-c", WAITS, dev.endpoints, far, session.session_id], stdout=subprocess.DEVNULL
        ),
    ]
    try:
        until("both wait", lambda: len(tenure.ok("queue", near)["chain"]) == 2)
        queue = tenure.ok("queue", near)
        assert [(link["key"], link["owner"], link["state"]) for link in queue["chain"]] == [
            (near, "middle", "holding"),
            (far, "last", "holding"),
        ]
        until("the other", lambda: tenure.ok("queue", near)["waiters_total"] == 1)
        text = tenure.text("queue", near)
        assert "who blocks whom:" in text
        assert f"last holds {far} since " in text
        assert "compiling" in text
        waiter = next(line.split() for line in text.splitlines() if " first " in line)
        assert waiter[:3] == ["1", "first", "exclusive"]
        assert waiter[4] == "waits"
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
    assert tenure("queue", f"{key}/free").stderr.endswith(b"is free and nobody waits for it\n")


WAITS = """
import sys
import tenure

endpoints, key, session_id = sys.argv[1:]
with tenure.connect_sync(endpoints) as client:
    client.acquire(key, owner="middle", session_id=session_id, wait=60)
"""


def test_a_watch_tells_what_has_happened_and_what_happens(tenure: Tenure, key: str) -> None:
    lease = tenure.ok("acquire", key, "--owner", "a", "--metadata", "m=1")["lease"]
    following = tenure.process("watch", key, "--from", "0", "-o", "json")
    try:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        assert (first["kind"], first["key"], first["token"]) == ("granted", key, lease["token"])
        tenure.ok("park", lease["lease_id"], "--limit", "1h")
        tenure.ok("unpark", lease["lease_id"])
        tenure.ok("release", lease["lease_id"])
        told = [json.loads(following.stdout.readline()) for _ in range(3)]
        assert [event["kind"] for event in told] == ["parked", "unparked", "released"]
        revisions = [event["revision"] for event in (first, *told)]
        assert revisions == sorted(set(revisions))
        following.send_signal(signal.SIGINT)
        assert following.wait(timeout=30) == 130
    finally:
        following.kill()
        following.communicate()
    since = str(first["revision"])
    again = tenure("watch", key, "--from", since, "--count", "3", "-o", "json")
    assert [json.loads(line) for line in again.stdout.splitlines()] == told
    only = tenure.text("watch", key, "--from", "0", "--kind", "unparked", "--count", "1")
    assert len(only.splitlines()) == 1
    assert f"unparked       {key}  a  token {told[1]['token']}" in only


def test_a_watch_begins_now(tenure: Tenure, key: str) -> None:
    """What was before it is not told; what comes as soon as it says so is."""
    tenure.ok("acquire", f"{key}/before", "--owner", "a")
    following = tenure.process("watch", f"{key}/", "--count", "1", "-o", "json")
    try:

        def told() -> bool:
            lease = tenure.ok("acquire", f"{key}/after", "--owner", "a")["lease"]
            tenure.ok("release", lease["lease_id"])
            return following.poll() is not None

        until("the watch is over", told)
        out, errors = following.communicate(timeout=30)
    finally:
        following.kill()
        following.communicate()
    assert following.returncode == 0, errors
    assert json.loads(out)["key"] == f"{key}/after"


def test_a_watch_whose_reader_has_enough_ends_quietly(tenure: Tenure, key: str) -> None:
    for _ in range(3):
        tenure.ok("release", tenure.ok("acquire", key, "--owner", "a")["lease"]["lease_id"])
    following = tenure.process("watch", key, "--from", "0")
    assert following.stdout is not None
    assert b"granted" in following.stdout.readline()
    following.stdout.close()

    def over() -> bool:
        tenure.ok("release", tenure.ok("acquire", key, "--owner", "a")["lease"]["lease_id"])
        return following.poll() is not None

    until("the watch is over", over)
    assert following.stderr is not None
    with following.stderr as errors:
        assert errors.read() == b""
    assert following.returncode == 0


def test_a_watch_of_a_cluster_that_is_away_says_so() -> None:
    nowhere = Tenure("http://127.0.0.1:1")
    done = nowhere("watch", "--timeout", "1s")
    assert done.returncode == 3
    assert b"Is the cluster running?" in done.stderr


ENVIRONMENT = (
    "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('TENURE_')}))"
)


def run(tenure: Tenure, *arguments: str) -> tuple[int, dict[str, str], str]:
    process = tenure.process("run", *arguments, "--", sys.executable, "-c", ENVIRONMENT)
    out, errors = process.communicate(timeout=60)
    return process.returncode, json.loads(out or b"{}"), errors.decode()


def test_a_command_runs_with_several_keys(tenure: Tenure, key: str) -> None:
    keys = [f"{key}/1", f"{key}/2"]
    code, told, errors = run(tenure, *keys, "--owner", "a")
    assert code == 0, errors
    tokens = json.loads(told["TENURE_TOKENS"])
    assert list(tokens) == keys
    assert told["TENURE_KEY"] == keys[0]
    assert told["TENURE_TOKEN"] == str(tokens[keys[0]])
    assert "TENURE_SLOT" not in told
    tenure.ok("acquire", keys[1], "--owner", "b")
    code, told, errors = run(tenure, *keys, "--owner", "a")
    assert (code, told) == (1, {})
    assert f"'{keys[1]}' is held" in errors


def test_a_key_is_kept_for_a_while_after_a_command_that_lost_it(tenure: Tenure, key: str) -> None:
    process = tenure.process("run", key, "--owner", "a", "--grace", "1h", "--", "sleep", "60")
    try:
        until("the command runs", lambda: tenure("get", key).returncode == 0)
        tenure.ok("break", key, "--reason", "a test")
        assert process.wait(timeout=60) == 4
    finally:
        process.kill()
        process.communicate()
    assert tenure.refused(1, "acquire", key, "--owner", "b")["reason"] == "grace"


def test_a_command_runs_with_a_permit_and_knows_its_slot(tenure: Tenure, key: str) -> None:
    taken = tenure.ok("acquire", key, "--slots", "2", "--owner", "a")["lease"]["slot"]
    code, told, errors = run(tenure, key, "--slots", "2", "--owner", "b")
    assert code == 0, errors
    assert told["TENURE_SLOT"] == str(1 - taken)


def test_commands_share_a_key(tenure: Tenure, key: str) -> None:
    tenure.ok("acquire", key, "--shared", "--owner", "a")
    assert run(tenure, key, "--shared", "--owner", "b")[0] == 0
    assert run(tenure, key, "--owner", "b")[0] == 1


def test_a_command_may_itself_hold_two_dashes(tenure: Tenure, key: str) -> None:
    echo = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "--", "x"]
    done = tenure.process("run", key, "--", *echo)
    out, errors = done.communicate(timeout=60)
    assert done.returncode == 0, errors
    assert out.decode().strip() == "['--', 'x']"
