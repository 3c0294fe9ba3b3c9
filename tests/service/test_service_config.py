"""Where settings come from, what is refused, and that every refusal names the setting and its numbers."""

from pathlib import Path

import pytest

from tenure_cluster import config as configuration
from tenure_cluster.config import Config, ConfigError, load
from tenure_cluster.settings_checks import ELECTIONS_PER_TTL_MIN, HEARTBEATS_PER_ELECTION_MIN

THREE_MEMBERS = """
cluster_id = "orders"
node_id = "n1"

[http]
listen = "127.0.0.1:7601"

[peer]
listen = "127.0.0.1:7701"

[members.n1]
peer = "127.0.0.1:7701"
http = "http://127.0.0.1:7601"

[members.n2]
peer = "127.0.0.1:7702"
http = "http://127.0.0.1:7602"

[members.n3]
peer = "127.0.0.1:7703"
http = "http://127.0.0.1:7603"
"""

NAMES = {"TENURE_CLUSTER_ID": "c", "TENURE_NODE_ID": "n1"}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tenured.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, NAMES | environ)
    return str(caught.value)


def test_the_readme_s_file_is_understood(tmp_path: Path) -> None:
    config = load(write(tmp_path, THREE_MEMBERS), {})
    assert config.cluster_id == "orders"
    assert config.data_dir == tmp_path / "data"
    assert sorted(config.members) == ["n1", "n2", "n3"]
    assert config.http.advertise == "http://127.0.0.1:7601"
    assert config.peer.advertise == "127.0.0.1:7701"
    assert config.durability == "fsync"


def test_variables_alone_make_a_cluster_of_one() -> None:
    config = load(None, NAMES | {"TENURE_HTTP_LISTEN": "127.0.0.1:9001", "TENURE_PEER_LISTEN": "[::1]:9002"})
    assert config.members == {"n1": configuration.Member(peer="[::1]:9002", http="http://127.0.0.1:9001")}


def test_a_variable_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, THREE_MEMBERS + "\n[raft]\nheartbeat_ms = 90\n")
    config = load(
        path, {"TENURE_RAFT_HEARTBEAT_MS": "80", "TENURE_NODE_ID": "n2", "PATH": "/bin"} | OTHER_PORTS
    )
    assert config.raft.heartbeat_ms == 80
    assert config.node_id == "n2"


OTHER_PORTS = {"TENURE_HTTP_LISTEN": "127.0.0.1:7602", "TENURE_PEER_LISTEN": "127.0.0.1:7702"}


def test_members_come_from_one_variable() -> None:
    members = "n1=127.0.0.1:7701@http://127.0.0.1:7601, n2=127.0.0.1:7702@http://127.0.0.1:7602"
    config = load(None, NAMES | {"TENURE_MEMBERS": members})
    assert config.members["n2"].peer == "127.0.0.1:7702"
    assert config.members["n2"].http == "http://127.0.0.1:7602"
    assert "is not ID=HOST:PORT@URL" in refusal({"TENURE_MEMBERS": "n1=127.0.0.1:7701"})


def test_what_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    config = load(
        write(tmp_path, THREE_MEMBERS + '\n[log]\nformat = "json"\n[leases]\nttl_min_ms = 4000\n'), {}
    )
    text = configuration.to_toml(config)
    assert load(write(tmp_path, text), {}) == config
    assert "snapshot_entries" not in text


def test_every_section_survives_being_written(tmp_path: Path) -> None:
    odd = {
        "TENURE_HTTP_BODY_BYTES_MAX": "2000000",
        "TENURE_HTTP_STREAM_FRAME_BYTES_MAX": "3000000",
        "TENURE_RAFT_SNAPSHOT_ENTRIES": "77",
        "TENURE_CALLS_TIMEOUT_MS": "7000",
        "TENURE_ADMISSION_PENDING_MAX": "900",
        "TENURE_LOG_LEVEL": "debug",
        "TENURE_DURABILITY": "os",
        "TENURE_INSECURE": "true",
        "TENURE_DATA_DIR": str(tmp_path / 'a "quoted" \\ place'),
    }
    config = load(None, NAMES | odd)
    assert load(write(tmp_path, configuration.to_toml(config)), {}) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clustre_id = 'x'", "unknown setting clustre_id; did you mean cluster_id?"),
        ("[raft]\nheartbeat = 5", "unknown setting raft.heartbeat; did you mean raft.heartbeat_ms?"),
        ("[members.n1]\nhtpp = 'x'", "unknown setting members.n1.htpp; did you mean members.n1.http?"),
        ("[rafd]\nx = 1", "unknown setting rafd; did you mean raft?"),
        ("[raft]\nheartbeat_ms = 'x'", "raft.heartbeat_ms: expected `int`, got `str`"),
        ("raft = 3", "raft: expected `object`, got `int`"),
        ("durability = 'ram'", "durability: invalid enum value 'ram'"),
        ("data_dir = 3", "data_dir: expected the path of a directory"),
        ("[http", "is not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), NAMES)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TENURE_RAFT_HARTBEAT_MS", "1", "did you mean TENURE_RAFT_HEARTBEAT_MS?"),
        ("TENURE_RAFT_HEARTBEAT_MS", "fast", "TENURE_RAFT_HEARTBEAT_MS='fast': Expected `int`, got `str`"),
        ("TENURE_NODEID", "n1", "did you mean TENURE_NODE_ID?"),
        ("TENURE_NODE_ID", "n/1", "node_id = 'n/1' must be 1 to 64 letters"),
        ("TENURE_HTTP_LISTEN", "0.0.0.0:80", "set insecure = true"),
        ("TENURE_PEER_LISTEN", "192.0.2.1:80", "peer.listen = '192.0.2.1:80' is not loopback"),
        ("TENURE_HTTP_LISTEN", "127.0.0.1", "is not host:port"),
        ("TENURE_HTTP_LISTEN", "127.0.0.1:99999", "has port 99999, outside 1 to 65535"),
        ("TENURE_HTTP_LISTEN", "::1:80", "IPv6 host without brackets"),
        ("TENURE_HTTP_ADVERTISE", "127.0.0.1:80", "is not an http URL"),
        ("TENURE_HTTP_ADVERTISE", "http://[::1:80", "http.advertise = 'http://[::1:80' is not an http URL"),
        ("TENURE_HTTP_ADVERTISE", "http://:80", "is not an http URL"),
        ("TENURE_HTTP_ADVERTISE", "http://n1:port", "is not an http URL"),
        ("TENURE_HTTP_HOSTS", "n1.test http://[n2", "'http://[n2' is not an http URL, nor a name"),
        ("TENURE_TRACING_ENDPOINT", "http://[::1/", "tracing.endpoint = 'http://[::1/' is not an http URL"),
        ("TENURE_LEASES_TTL_MIN_MS", "2999", "leases.ttl_min_ms = 2999 is below 3000 (3 x raft.election"),
        ("TENURE_LEASES_TTL_MAX_MS", "2000", "leases.ttl_max_ms = 2000 is below 3000 (leases.ttl_min_ms)"),
        ("TENURE_AUDIT_KEEP_MS", "99999999999999999999", "audit.keep_ms = 99999999999999999999 is above"),
        ("TENURE_LEASES_TTL_MAX_MS", "9007199254740992", "is above 9007199254740991 (the most possible)"),
        ("TENURE_RAFT_ELECTION_TIMEOUT_MIN_MS", "399", "= 399 is below 400 (4 x raft.heartbeat_ms)"),
        ("TENURE_RAFT_ELECTION_TIMEOUT_MAX_MS", "500", "= 500 is below 501"),
        ("TENURE_RAFT_QUEUE_MAX", "9999", "raft.queue_max = 9999 is below 10000 (admission.pending_max)"),
        ("TENURE_CALLS_TIMEOUT_MS", "1999", "calls.timeout_ms = 1999 is below 2000 (calls.leader_wait_ms)"),
        ("TENURE_ADMISSION_DISK_RESERVE_BYTES", "1", "= 1 is below 33554432 (2 x raft.journal_segment"),
    ],
)
def test_a_setting_out_of_its_relation_is_refused_with_both_numbers(
    variable: str, value: str, message: str
) -> None:
    assert message in refusal({variable: value})


def test_all_faults_are_named_at_once() -> None:
    message = refusal({"TENURE_LEASES_TTL_MIN_MS": "10", "TENURE_HTTP_LISTEN": "0.0.0.0:80"})
    assert "leases.ttl_min_ms = 10" in message
    assert "http.listen" in message


def test_a_missing_name_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="node_id is missing"):
        load(None, {"TENURE_CLUSTER_ID": "c"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml", {})


def test_a_node_must_be_a_member_at_its_own_addresses(tmp_path: Path) -> None:
    path = write(tmp_path, THREE_MEMBERS)
    with pytest.raises(ConfigError, match="node_id = 'n9' is not among the members"):
        load(path, {"TENURE_NODE_ID": "n9"})
    with pytest.raises(ConfigError, match=r"http\.advertise = 'http://h:1' is not what members\.n1 says"):
        load(path, {"TENURE_HTTP_ADVERTISE": "http://h:1"})


def test_two_members_can_t_share_an_address(tmp_path: Path) -> None:
    path = write(tmp_path, THREE_MEMBERS.replace("7702", "7701"))
    with pytest.raises(ConfigError, match=r"two members have the peer address 127\.0\.0\.1:7701"):
        load(path, {})


def test_variables_of_the_client_and_the_tools_are_no_mistakes() -> None:
    load(None, NAMES | {"TENURE_ENDPOINTS": "http://h", "TENURE_FAULTS": "", "TENURE_TEST_SEED": "1"})


def test_other_addresses_are_allowed_once_the_operator_says_so() -> None:
    config = load(None, NAMES | {"TENURE_HTTP_LISTEN": "0.0.0.0:80", "TENURE_INSECURE": "true"})
    assert config.http.listen == "0.0.0.0:80"


def test_the_defaults_keep_every_relation() -> None:
    config = load(None, NAMES)
    assert config.leases.ttl_min_ms >= ELECTIONS_PER_TTL_MIN * config.raft.election_timeout_max_ms
    assert config.raft.election_timeout_min_ms >= HEARTBEATS_PER_ELECTION_MIN * config.raft.heartbeat_ms
    assert config == Config(
        cluster_id="c",
        node_id="n1",
        data_dir=config.data_dir,
        http=config.http,
        peer=config.peer,
        members=config.members,
    )
