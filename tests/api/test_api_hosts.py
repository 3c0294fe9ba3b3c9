"""A page whose name was made to stand for 127.0.0.1 gets nothing of a node that asks nobody who he is."""

from pathlib import Path
from typing import Any

import pytest
from api_guarded import Guarded
from api_node import RunningNode
from api_wire import Wire, ask

from tenure_cluster.api.hosts import Hosts
from tenure_cluster.http_limits import hosts
from tenure_cluster.settings import Auth, Config, Http, Tls

EVIL = "evil.example:7601"


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:7601", True),
        ("127.0.0.1", True),
        ("10.0.0.7:7601", True),
        ("[::1]:7601", True),
        ("[::1]", True),
        ("localhost:7601", True),
        ("LOCALHOST", True),
        ("tenure.localhost:7601", True),
        ("n1:7601", True),
        ("", True),
        ("one.example:7601", True),
        ("One.Example.", True),
        ("two.example", True),
        ("evil.example", False),
        ("evil.example:7601", False),
        ("evil.example.", False),
        ("one.example.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("[evil.example]:7601", False),
        ("[::1]evil.example", False),
        ("127.0.0.1:7601:evil.example", False),
        ("127.1.evil", False),
        ("one.example@evil.example", False),
    ],
)
def test_a_name_that_somebody_could_have_registered_is_let_in_only_if_it_is_configured(
    host: str, allowed: bool
) -> None:
    assert Hosts(["https://one.example:7601", "two.example"]).allows(host) is allowed


@pytest.mark.parametrize("target", ["/v1/leases", "/v1/cluster", "/", "/livez", "/openapi.json"])
async def test_nothing_is_answered_under_a_foreign_name(node: RunningNode, target: str) -> None:
    reply = await ask(node.port, "GET", target, host=EVIL)
    assert (reply.status, reply.code) == (403, "forbidden")
    assert "http.hosts" in reply.json["detail"]


async def test_nothing_is_done_under_a_foreign_name(node: RunningNode) -> None:
    body = {"key": "rebound", "owner": "o", "ttl_ms": 60_000}
    origin = f"http://{EVIL}"
    assert (await ask(node.port, "POST", "/v1/acquire", body, host=EVIL, origin=origin)).status == 403
    assert (await ask(node.port, "GET", "/v1/leases/rebound")).code == "not_held"
    async with await Wire.open(node.port) as wire:
        wire.send(
            b"GET /v1/stream HTTP/1.1\r\nhost: evil.example:7601\r\norigin: http://evil.example:7601\r\n"
            b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
            b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert (await wire.answer()).status == 403


async def test_a_node_that_asks_for_credentials_may_have_any_name(guarded: Guarded) -> None:
    assert (await guarded.ask("GET", "/v1/leases/k", bearer=guarded.root, host=EVIL)).status == 404
    assert (await guarded.ask("GET", "/v1/leases/k", host=EVIL)).status == 401


@pytest.mark.parametrize(
    ("changes", "looked_at"),
    [
        ({}, True),
        ({"http": Http(listen="[::1]:7601")}, True),
        ({"http": Http(listen="0.0.0.0:7601")}, False),
        ({"auth": Auth(required=True)}, False),
        ({"tls": Tls(cert="c", key="k", ca="a")}, False),
    ],
    ids=["loopback", "loopback of the other kind", "anywhere", "credentials", "TLS"],
)
def test_names_are_looked_at_only_where_nothing_else_is(
    tmp_path: Path, changes: dict[str, Any], looked_at: bool
) -> None:
    config = Config(cluster_id="c", node_id="n1", data_dir=tmp_path, **changes)
    assert (hosts(config) is not None) is looked_at


def test_names_of_the_configuration_are_let_in(tmp_path: Path) -> None:
    http = Http(advertise="http://front.example:80", hosts="one.example two.example")
    found = hosts(Config(cluster_id="c", node_id="n1", data_dir=tmp_path, http=http))
    assert found is not None
    assert all(found.allows(name) for name in ("front.example", "one.example", "two.example:7601"))
    assert not found.allows("three.example")
