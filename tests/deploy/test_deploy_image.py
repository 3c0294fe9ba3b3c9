"""What the image would hold, made without a container runtime: the package, built from nothing but what the
build stage copies, runs with the environment and the command that the image has."""

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from deploy_kit import DEPLOY, ROOT, free_port, passes
from deploy_nodes import NodeProcess, await_that

CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
SERVED = ("tenure_cluster/observe/dashboard/index.html", "tenure_cluster/py.typed")
"""Some of what is no module, and is needed at run time."""


def instruction(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", CONTAINERFILE, re.MULTILINE)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package stands that was built from what is copied."""
    context = tmp_path_factory.mktemp("context")
    for copied in instruction("COPY"):
        if "--from" in copied:
            continue
        *sources, to = copied.split()
        for source in sources:
            target = context / to / Path(source).name if to.endswith("/") else context / to
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, target)
    passes(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out", cwd=context)
    [wheel] = (context / "out").glob("*.whl")
    there = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(there)
    return there


def test_the_package_has_all_that_a_node_serves(installed: Path) -> None:
    assert [name for name in SERVED if not (installed / name).is_file()] == []
    sources = ROOT / "cluster/tenure_cluster"
    missed = [
        str(path.relative_to(sources))
        for path in sources.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not (installed / "tenure_cluster" / path.relative_to(sources)).is_file()
    ]
    assert missed == []


def test_the_extras_that_are_installed_exist(installed: Path) -> None:
    [build] = [line for line in instruction("RUN") if "pip install" in line]
    [extras] = re.findall(r"\.\[([a-z,]+)\]", build)
    [metadata] = installed.glob("tenure-*.dist-info/METADATA")
    provided = re.findall(r"^Provides-Extra: (.*)$", metadata.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(extras.split(",")) <= set(provided)
    for_what_can_be_set = {"server", "otel", "jwt"}
    assert for_what_can_be_set <= set(extras.split(","))


@pytest.mark.process
def test_it_runs_with_the_images_environment_and_command(installed: Path, tmp_path: Path) -> None:
    variables = dict(item.split("=", 1) for line in instruction("ENV") for item in shlex.split(line))
    [entry], [command] = instruction("ENTRYPOINT"), instruction("CMD")
    assert (entry, command) == ('["tenured"]', '["run"]')
    scripts = next(installed.glob("tenure-*.dist-info/entry_points.txt")).read_text(encoding="utf-8")
    assert "tenured = tenure_cluster.cli:main" in scripts
    assert variables["TENURE_DATA_DIR"] == instruction("VOLUME")[0]
    node = NodeProcess(
        tmp_path / "n1",
        {
            **{name: value for name, value in variables.items() if name not in ("PATH", "TENURE_DATA_DIR")},
            "PYTHONPATH": str(installed),
            "TENURE_CLUSTER_ID": "image",
            "TENURE_NODE_ID": "n1",
            "TENURE_HTTP_LISTEN": f"127.0.0.1:{free_port()}",
            "TENURE_PEER_LISTEN": f"127.0.0.1:{free_port()}",
        },
    )
    loaded = subprocess.run(
        [sys.executable, "-c", "import tenure_cluster; print(tenure_cluster.__file__)"],
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.startswith(str(installed)), "the package that is tried is not the one that was built"
    node.start()
    try:
        await_that(lambda: node.ready, "the node to serve")
        assert node.ask("GET", "/ui/")[0] == 200
        assert node.log.startswith("{")  # as TENURE_LOG_FORMAT of the image says
    finally:
        assert node.stop() == 0
