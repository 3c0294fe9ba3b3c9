"""What is asked of ``tenure-chaos proxy`` and is no order: refused with the fault and what would be right."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenure_chaos.cli import main
from tenure_chaos.live.attached import NotACluster, load
from tenure_chaos.live.orders import FAULTS, BadOrder, read


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([], "one of: partition, "),
        ({"fault": ["slow"]}, "one of: partition, "),
        ({"fault": "slow", "latency": 500}, "slow takes nodes, latency_ms, jitter_ms; not: latency"),
        ({"fault": "slow", "latency_ms": "soon"}, "latency_ms"),
        ({"fault": "slow", "latency_ms": -1}, "latency_ms"),
        ({"fault": "isolate leader", "nodes": ["n1"]}, "isolate leader takes nothing else; not: nodes"),
        ({"fault": "partition"}, "partition needs groups; missing: groups"),
        ({"fault": "partition", "groups": "n1"}, "partition: Expected `array`, got `str` - at `$.groups`"),
        ({"fault": "cut", "from": "n1"}, "cut needs from and to; missing: to"),
        ({"fault": "pause"}, "pause needs nodes"),
        ({"fault": "pause", "nodes": ["n1", "n2"]}, "pause takes one node, not 2"),
        ({"fault": "kill", "nodes": "n1"}, "nodes"),
    ],
)
def test_what_a_fault_does_not_take_is_named(body: Any, why: str) -> None:
    with pytest.raises(BadOrder) as caught:
        read(body)
    assert why in str(caught.value)


def test_a_group_of_one_may_be_a_text() -> None:
    _, order = read({"fault": "partition", "groups": ["n1", ["n2", "n3"]]})
    assert order.groups == ["n1", ["n2", "n3"]]


def test_numbers_may_be_texts_as_the_command_line_has_them() -> None:
    kind, order = read({"fault": "slow", "latency_ms": "300", "nodes": ["n1"]})
    assert kind is FAULTS["slow"]
    assert (order.latency_ms, order.jitter_ms, order.nodes) == (300, None, ["n1"])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("slow", "--set", "latency_ms"), "--set takes NAME=VALUE"),
        (("partition",), "partition takes groups of nodes"),
        (("cut", "n1"), "cut takes two nodes"),
        (("cut", "n1", "n2", "n3"), "cut takes two nodes"),
    ],
)
def test_the_command_line_says_what_it_was_not_given(arguments: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(main, ["proxy", "strike", *arguments])
    assert result.exit_code == 2
    assert why in result.output


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no nodes are named"),
        ("[nodes]", "no nodes are named"),
        ("[node.n1]\nhttp = '127.0.0.1:1'", "no nodes are named"),
        ("[nodes.n1]\npeer = '127.0.0.1:1'", "node 'n1': Object missing required field `http`"),
        ("[nodes.n1]\nhttp = 5", "node 'n1': Expected `str`, got `int` - at `$.http`"),
        ("[nodes.n1]\nhttp = 'https://127.0.0.1:1'", "node 'n1': 'https://127.0.0.1:1': name host:port"),
        ("[nodes.n1]\nhttp = '127.0.0.1:1'\npid = 0", "node 'n1': Expected `int` >= 1 - at `$.pid`"),
        ("[nodes.n1]\nhttp = '127.0.0.1:1'\npid = '7'", "node 'n1': Expected `int | null`, got `str`"),
        ("[nodes.n1]\nhttp = '127.0.0.1:1'\nstart = 'etcd --x'", "node 'n1': Expected `array | null`"),
        ("[nodes.n1]\nhttp = '127.0.0.1:1'\ncommand = ['etcd']", "node 'n1': Object contains unknown field"),
        ("nodes.n1.http = '127.0.0.1:1'\nname = 'mine'", "unknown: name"),
    ],
)
def test_a_description_says_which_node_is_wrong_and_how(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(NotACluster) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert why in str(caught.value)
