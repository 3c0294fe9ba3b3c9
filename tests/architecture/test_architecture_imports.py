"""The import table of cluster/ARCHITECTURE.md, enforced.

import-linter (`make lint`) checks the layers over the whole graph, indirect imports included. This test
checks what a layer contract can't say: which outside modules may be imported where.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "tenure_cluster": ROOT / "cluster" / "tenure_cluster",
    "tenure": ROOT / "client" / "tenure",
    "tenure_chaos": ROOT / "chaos" / "tenure_chaos",
}

CLOCKS_AND_CHANCE = {"time", "random", "secrets", "uuid"}

ONLY_IN: dict[str, tuple[str, ...]] = {
    # outside module -> the prefixes of our modules that may import it
    "pysyncobj": ("tenure_cluster.raft.engine",),
    "aiohttp.web": ("tenure_cluster.api", "tenure_chaos.live"),
    "pickle": (),
    "marshal": (),
    "shelve": (),
}

SERVER_MAY_TELL_TIME_OR_DRAW = (
    "tenure_cluster.raft.clock",
    "tenure_cluster.node",
    "tenure_cluster.cli",
    "tenure_cluster.dev",
)

TEST_KIT = ("tenure.testing.proposing", "tenure.testing.server", "tenure.testing.watching")
TEST_KIT_MAY_IMPORT = (
    "tenure_cluster.lease",
    *(
        f"tenure_cluster.service.{pure}"
        for pure in ("answers", "asks", "errors", "reads", "requests", "validation", "watch_messages")
    ),
)
"""The client's test kit answers as the server does, with the server's own modules that are pure, so that it
works where only the client is installed."""

CORE_MAY_IMPORT = {
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "msgspec",
    "operator",
    "typing",
    "tenure_cluster",
}


def modules() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            yield ".".join(part for part in parts if part != "__init__"), path


def imports(source: str) -> set[str]:
    """Every module named by an import anywhere in the source, also inside functions; `from a import b`
    gives a and a.b.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def faults(module: str, source: str) -> list[str]:
    named = imports(source)
    found = [
        f"{module} imports {outside}, which only {allowed or 'no module'} may"
        for outside, allowed in ONLY_IN.items()
        if any(is_within(name, outside) for name in named)
        and not any(is_within(module, prefix) for prefix in allowed)
    ]
    top_level = {name.partition(".")[0] for name in named}
    if is_within(module, "tenure_cluster"):
        clocks = top_level & CLOCKS_AND_CHANCE
        if clocks and not any(is_within(module, prefix) for prefix in SERVER_MAY_TELL_TIME_OR_DRAW):
            found.append(f"{module} imports {sorted(clocks)}: time and chance come in as arguments")
    if is_within(module, "tenure_cluster.lease"):
        beyond = top_level - CORE_MAY_IMPORT
        if beyond:
            found.append(f"{module} imports {sorted(beyond)}: the core is pure")
        ours = {name for name in named if is_within(name, "tenure_cluster")} - {"tenure_cluster"}
        strangers = sorted(name for name in ours if not is_within(name, "tenure_cluster.lease"))
        if strangers:
            found.append(f"{module} imports {strangers}: the core knows only itself")
    if is_within(module, "tenure"):
        ours = {name for name in named if is_within(name, "tenure_cluster")} - {"tenure_cluster.service"}
        allowed = TEST_KIT_MAY_IMPORT if module in TEST_KIT else ()
        if any(not any(is_within(name, prefix) for prefix in allowed) for name in ours):
            found.append(f"{module} imports the server")
    return found


def test_every_module_imports_only_what_the_architecture_allows() -> None:
    seen = 0
    found: list[str] = []
    for module, path in modules():
        seen += 1
        found += faults(module, path.read_text(encoding="utf-8"))
    assert seen > 20
    assert found == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tenure_cluster.raft.pump", "import pysyncobj.syncobj"),
        ("tenure_cluster.raft.pump", "def f():\n    from pysyncobj import SyncObj"),
        ("tenure_cluster.service.polls", "from aiohttp import web"),
        ("tenure_cluster.lease.machine", "import time"),
        ("tenure_cluster.lease.machine", "import asyncio"),
        ("tenure_cluster.lease.machine", "from tenure_cluster.raft import codec"),
        ("tenure_cluster.service.reaper", "from random import random"),
        ("tenure_cluster.raft.codec", "import pickle"),
        ("tenure.client", "from tenure_cluster.lease import limits"),
        ("tenure.testing.cluster", "from tenure_cluster.lease import limits"),
        ("tenure.testing.server", "from tenure_cluster.service.lease_service import LeaseService"),
        ("tenure.testing.server", "from tenure_cluster import raft"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    assert faults(module, source) != []
