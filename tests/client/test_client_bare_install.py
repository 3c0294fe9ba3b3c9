"""What `pip install tenure` brings without an extra: the client runs, and nothing of the server's is there.

The environment is made from the packages that are installed here: those that the project's metadata demands,
and what these demand.
"""

import json
import os
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("client/tenure", "cluster/tenure_cluster", "chaos/tenure_chaos")
"""All in one wheel; what differs are the packages that they need."""
ONLY_FOR_THE_SERVER = {"pysyncobj", "msgpack", "structlog", "uvloop"}
IMPORT_S_MAX = 0.150

WORKS = """
import asyncio
import tenure
from tenure.testing import FakeCluster

async def main():
    cluster = FakeCluster()
    async with cluster.connect() as client, client.lease("job/7") as held:
        await held.commit("done")
    async with tenure.connect("http://127.0.0.1:1", timeout=0.2) as client:
        try:
            await client.get("job/7")
        except tenure.ClusterUnavailable:
            print("works")

asyncio.run(main())
with FakeCluster().connect_sync() as client, client.lease("job/8") as held:
    held.check()
"""


def demanded(name: str = "tenure") -> set[str]:
    """The distributions that come with it."""
    found: set[str] = set()
    new = {name}
    while new:
        found |= new
        asked = {
            canonicalize_name(requirement.name)
            for one in new
            for requirement in map(Requirement, distribution(one).requires or ())
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        }
        new = asked - found
    return found - {name}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has only that."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, symlinks=True)
    packages = next(directory.glob("lib/python*/site-packages"))
    for name in demanded():
        installed = distribution(name)
        tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
        for top in tops:
            (packages / top).symlink_to(Path(str(installed.locate_file(top))).resolve())
    for package in PACKAGES:
        (packages / Path(package).name).symlink_to(ROOT / package)
    return directory / "bin" / "python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(python), *arguments], capture_output=True, text=True, timeout=60, env=environment
    )


def test_no_dependency_of_the_server_is_demanded() -> None:
    assert demanded() & ONLY_FOR_THE_SERVER == set()
    assert {"aiohttp", "msgspec"} <= demanded()


def test_the_environment_is_bare(python: Path) -> None:
    for name in ("pysyncobj", "msgpack", "structlog", "pytest"):
        assert "ModuleNotFoundError" in run(python, "-c", f"import {name}").stderr


def test_importing_it_is_quick_and_loads_no_more_than_it_needs(python: Path) -> None:
    program = (
        "import sys, json, time; began = time.perf_counter(); import tenure; "
        "took = time.perf_counter() - began; print(json.dumps([took, sorted(sys.modules)]))"
    )
    runs = [json.loads(run(python, "-c", program).stdout) for _ in range(5)]
    loaded = {name.partition(".")[0] for name in runs[0][1]}
    assert loaded.isdisjoint({"aiohttp", "asyncio", "click", "rich", "tenure_cluster", "tenure_chaos"})
    # The quickest: what else runs on this machine is not the library's doing.
    assert min(took for took, _ in runs) < IMPORT_S_MAX


def test_the_client_the_test_kit_and_the_command_work(python: Path) -> None:
    done = run(python, "-c", WORKS)
    assert done.stdout == "works\n", done.stderr
    guards = (
        "import tenure.fencing.sql, tenure.fencing.redis, tenure.fencing.files, tenure.fencing.objectstore"
    )
    assert run(python, "-c", guards).returncode == 0
    told = run(python, "-m", "tenure.cli", "--help")
    assert told.returncode == 0, told.stderr
    assert "acquire" in told.stdout


def test_pythons_of_this_test_are_the_same(python: Path) -> None:
    said = run(python, "-c", "import sys; print(sys.version_info[:2])").stdout
    assert said == f"{sys.version_info[:2]}\n"
