"""What can be asked of ``tenure-chaos proxy``: a fault by its name, and the fields that it takes.

What a fault does not take is refused, not passed over: who misspells ``latency_ms`` would otherwise measure
something else than he thinks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from tenure_chaos.live.chaos import Chaos, Strike

Milliseconds = Annotated[int, msgspec.Meta(ge=0)]


class BadOrder(Exception):
    """What was asked for is no order. The message says why, and what is."""


class Order(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request."""

    fault: str
    groups: list[list[str] | str] = []
    clients_with: str = ""
    from_: str = msgspec.field(name="from", default="")
    to: str = ""
    nodes: list[str] = []
    latency_ms: Milliseconds | None = None
    jitter_ms: Milliseconds | None = None


@dataclass(frozen=True)
class Kind:
    """One fault: how it is begun, and which fields it must have or may have."""

    begin: Callable[[Chaos, Order], Strike]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    one_node: bool = False
    between_nodes: bool = False
    """It is of no use if the nodes dial each other past the proxies."""


def _slow(chaos: Chaos, order: Order) -> Strike:
    latency_ms = 100 if order.latency_ms is None else order.latency_ms
    return chaos.slow(*order.nodes, latency_ms=latency_ms, jitter_ms=order.jitter_ms or 0)


FAULTS: Final[Mapping[str, Kind]] = {
    "partition": Kind(
        lambda chaos, order: chaos.partition(*order.groups, clients_with=order.clients_with or None),
        needs=("groups",),
        may=("clients_with",),
        between_nodes=True,
    ),
    "isolate leader": Kind(lambda chaos, order: chaos.isolate_leader(), between_nodes=True),
    "cut": Kind(
        lambda chaos, order: chaos.cut(order.from_, order.to), needs=("from", "to"), between_nodes=True
    ),
    "cut client": Kind(lambda chaos, order: chaos.cut_client(*order.nodes), may=("nodes",)),
    "refuse client": Kind(lambda chaos, order: chaos.refuse_client(*order.nodes), may=("nodes",)),
    "lose replies": Kind(lambda chaos, order: chaos.lose_replies(*order.nodes), may=("nodes",)),
    "slow": Kind(_slow, may=("nodes", "latency_ms", "jitter_ms")),
    "pause": Kind(lambda chaos, order: chaos.pause(order.nodes[0]), needs=("nodes",), one_node=True),
    "kill": Kind(lambda chaos, order: chaos.kill(order.nodes[0]), needs=("nodes",), one_node=True),
    "kill leader": Kind(lambda chaos, order: chaos.kill(chaos.leader())),
}


def read(body: Any) -> tuple[Kind, Order]:
    """Raises BadOrder."""
    named = body.get("fault") if isinstance(body, dict) else None
    kind = FAULTS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise BadOrder(f"a body with a fault is expected, one of: {', '.join(FAULTS)}")
    given = body.keys() - {"fault"}
    if strange := given - {*kind.needs, *kind.may}:
        takes = ", ".join((*kind.needs, *kind.may)) or "nothing else"
        raise BadOrder(f"{named} takes {takes}; not: {', '.join(sorted(strange))}")
    if missing := [field for field in kind.needs if not body.get(field)]:
        raise BadOrder(f"{named} needs {' and '.join(kind.needs)}; missing: {', '.join(missing)}")
    try:
        order = msgspec.convert(body, Order, strict=False)
    except msgspec.ValidationError as error:
        raise BadOrder(f"{named}: {error}") from error
    if kind.one_node and len(order.nodes) != 1:
        raise BadOrder(f"{named} takes one node, not {len(order.nodes)}")
    return kind, order
