"""Every command of README, runbook and the pages around them, run as it is written. What can't be run here is
listed with the reason."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dev_process import free_block, until
from written_commands import ROOT, Bench, Page

from tenure_cluster.dev import layout

NO_SYSTEMD = "systemd must be process 1; see deploy/DRILL.md, where it was done"
NO_CLUSTER = "needs a Kubernetes cluster; tests/deploy renders and validates the chart"
NO_CONTAINERS = "needs a container runtime and a registry; tests/deploy checks both files"
RESTORES = "the unit's directory; tests/deploy/test_deploy_restore.py runs them with another one"
INSTALLS = "changes the machine; see deploy/DRILL.md, where it was done"


@pytest.fixture(scope="module")
def ports() -> dict[int, int]:
    """Free ones for those of a development cluster."""
    http, peer = free_block(10), free_block(10)
    return {7601: http, 7602: http + 1, 7603: http + 2, 7701: peer, 7702: peer + 1, 7703: peer + 2}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, ports: dict[int, int]) -> Iterator[Bench]:
    """Where `tenured dev` runs, begun as the README says. Its ports stand in its directory already, as after
    a first run with other ports."""
    directory = tmp_path_factory.mktemp("reader")
    urls = ",".join(f"http://127.0.0.1:{ports[port]}" for port in (7601, 7602, 7603))
    with Bench(directory, ports, TENURE_ENDPOINTS=urls) as made:
        layout.prepare(directory / layout.DATA_DIR_DEFAULT, None, ports[7601], ports[7701])
        process = made.begin(Page("README.md", shown=README_SHOWN).take(".venv/bin/tenured dev"))
        for port in (7601, 7602, 7603):
            made.until_it_works(f"curl -sf localhost:{port}/readyz")
        yield made
        made.end(process)
        assert process.returncode == 0


README_SHOWN = ("agent A   acquires", '{"status":"granted"')


def test_the_commands_of_the_readme(bench: Bench) -> None:
    page = Page("README.md", shown=README_SHOWN)
    page.take(".venv/bin/tenured dev")  # the fixture's
    answered = json.loads(bench.run(page.take("curl -s localhost:7601/v1/acquire")))
    assert answered["status"] == "granted"
    assert answered["lease"]["token"] == 1  # the very first grant of a cluster
    said = {'"lease_id": "…"': f'"lease_id": "{answered["lease"]["lease_id"]}"'}
    renewed = json.loads(bench.run(page.take("curl -s localhost:7602/v1/renew"), said))
    assert 29_000 <= renewed["lease"]["ttl_ms"] <= 30_000
    committed = json.loads(bench.run(page.take("curl -s localhost:7603/v1/commit"), said))
    assert committed["status"] == "accepted"
    assert json.loads(bench.run(page.take("curl -s localhost:7601/v1/release"), said))["status"] == "released"
    bench.glimpse(page.take("curl -sN "), "granted", "committed", "released")

    assert "payment/security/42" in bench.run(page.take(".venv/bin/tenure acquire"))
    assert "agent-a" in bench.run(page.take(".venv/bin/tenure get"))
    bench.glimpse(page.take(".venv/bin/tenure watch"), "granted", "released")
    assert "leader" in bench.run(page.take(".venv/bin/tenure status"))

    bench.program("report.sh", 'echo "report $TENURE_KEY"')
    assert bench.run(page.take(".venv/bin/tenure run nightly-report")) == "report nightly-report\n"
    bench.program("transfer.sh", 'echo "transfer $TENURE_TOKENS"')
    assert bench.run(page.take(".venv/bin/tenure run account/1 account/2")).startswith("transfer ")
    bench.program("bin/train", 'echo "train $@"')
    assert re.fullmatch(r"train --device \d\n", bench.run(page.take(".venv/bin/tenure run gpu")))
    page.leave(
        {
            "make run": "it installs; test_integration_story.py runs what it runs",
            "make test": "it is what runs this",
            ".venv/bin/tenured run": "the next test",
        }
    )


def test_the_readmes_own_cluster(tmp_path: Path, ports: dict[int, int]) -> None:
    page = Page("README.md", shown=README_SHOWN)
    apart = {port: other + 5 for port, other in ports.items()}
    with Bench(tmp_path / "reader", apart) as bench:
        [first] = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
        for number in (1, 2, 3):

            def own_line(line: re.Match[str], number: int = number) -> str:
                """The comment names what n2 and n3 have in the place of the value's last word."""
                mine = re.findall(r"\bn\d\b|\b\d{4}\b", line["own"] + line["others"])[number - 1]
                return f'{line["name"]} = "{line["same"]}{mine}"'

            pattern = r'(?m)^(?P<name>\w+) = "(?P<same>[^"]*?)(?P<own>n1|\d{4})"(?P<others> +#.*)$'
            text = bench.put_in(re.sub(pattern, own_line, first), {})
            (bench.directory / f"n{number}.toml").write_text(text, encoding="utf-8")
        commands = [page.take(".venv/bin/tenured run --config") for _ in range(3)]
        nodes = [bench.begin(command) for command in commands[:2]]
        for port in (7601, 7602):
            bench.until_it_works(f"curl -sf localhost:{port}/readyz")
        nodes.append(bench.begin(commands[2]))
        bench.until_it_works("curl -sf localhost:7603/readyz")
        for node in nodes:
            bench.end(node)
            assert node.returncode == 0


def test_the_commands_of_the_runbook(bench: Bench) -> None:
    page = Page("deploy/RUNBOOK.md")
    here = {"n1.tenure.internal": "127.0.0.1"}
    assert "leader" in bench.run(page.take("tenure status"))
    assert json.loads(bench.run(page.take("curl -s http://n1.tenure.internal:7601/readyz"), here)) == {
        "status": "ready"
    }
    assert "tenure_raft_term" in bench.run(page.take("curl -s http://n1.tenure.internal:7601/metrics"), here)
    bench.run(page.take("until curl -sf http://n1.tenure.internal:7601/readyz"), here)
    page.leave(
        {
            "journalctl ": NO_SYSTEMD,
            "systemctl ": NO_SYSTEMD,
            "mv /var/lib/tenure": RESTORES,
            "install -d ": RESTORES,
            "runuser ": RESTORES,
            "kubectl ": NO_CLUSTER,
            "helm ": NO_CLUSTER,
            "for i in ": NO_CLUSTER,
        }
    )

    for inline in page.inline:
        if inline.startswith("tenure break KEY"):
            bench.run("tenure acquire broken/by-hand --ttl 60s --owner somebody")
            said = {"KEY": "broken/by-hand"}
            bench.run(inline, said if "…" not in inline else {**said, "…": "a test"})
        elif inline == "tenured tls renew certs":
            bench.run("tenured tls init certs --node n1=127.0.0.1")
            bench.run(inline)
            shutil.rmtree(bench.directory / "certs")
        elif inline == "tenured inspect":
            bench.run(f"{inline} --help")  # it wants a node that is stopped: test_integration_inspection.py
        elif inline in ("tenure transfer n2", "tenure members list"):
            bench.run(inline)
        else:
            # Other members are wanted for these: tests/deploy/test_deploy_members.py has them.
            assert inline.startswith(("tenure members remove n4", "tenure members replace n2 n4")), inline


def test_the_commands_of_the_page_on_deployment(bench: Bench) -> None:
    page = Page("deploy/README.md")
    assert json.loads(bench.run(page.take("curl -s http://127.0.0.1:7601/readyz"))) == {"status": "ready"}
    rules = page.take("promtool test rules")
    assert "SUCCESS" in bench.run(f"cd {ROOT} && {rules}")
    # The names of a chart's certificates, which the next command there takes up.
    bench.run(f"{page.take('S=tenure')}\n{page.take('tenured tls init certs')}")
    secret = page.take("kubectl -n tenure create secret")
    files = re.findall(r"--from-file=\S+=(\S+)", bench.run(secret.replace("kubectl", "echo")))
    assert len(files) == 7
    assert all((bench.directory / file).is_file() for file in files)
    shutil.rmtree(bench.directory / "certs")
    for command in page.left:
        for named in re.findall(r"\bdeploy/[\w./@-]+", command):
            assert (ROOT / named).exists(), f"{command}: {named} is not there"
    page.leave(
        {
            "/usr/bin/python3 -m venv": INSTALLS,
            "/opt/tenure/bin/pip install": INSTALLS,
            "ln -s /opt/tenure/bin/tenure ": INSTALLS,
            "install ": INSTALLS,
            "systemd-sysusers": INSTALLS,
            "systemctl ": NO_SYSTEMD,
            "docker ": NO_CONTAINERS,
            "cd deploy/compose": NO_CONTAINERS,
            "cat /var/lib/tenure": "the unit's directory; test_deploy_metrics_access.py reads the file",
            "helm ": NO_CLUSTER,
            "kubectl ": NO_CLUSTER,
        }
    )


def test_the_commands_of_the_page_on_the_dashboard(bench: Bench) -> None:
    page = Page("deploy/DASHBOARD.md")
    assert "leader" in bench.run(page.take("tenure top --once"))
    assert json.loads(bench.run(page.take("tenure top --once -o json")))["nodes"]
    bench.glimpse(page.take("tenure top payment/"), "leader")
    bench.glimpse(page.take("tenure top"), "leader")
    page.leave(
        {"python tests/dashboard/screenshots.py": "it makes the pictures anew; the tests beside it don't"}
    )


def test_the_commands_of_the_page_on_tls(tmp_path: Path, ports: dict[int, int]) -> None:
    page = Page("cluster/TLS.md")
    with Bench(tmp_path / "reader", ports) as bench:
        for step in ("init", "new-ca", "renew", "drop-old-ca"):
            bench.run(page.take(f"tenured tls {step} certs"))
        until("all files", lambda: (bench.directory / "certs/n3/cert.pem").is_file())
    page.leave({})


def test_the_commands_of_the_page_on_members(bench: Bench) -> None:
    page = Page("cluster/MEMBERSHIP.md")
    told = bench.run(page.take("tenure members list"))
    assert {"n1", "n2", "n3"} <= {line.split()[0] for line in told.splitlines()}
    bench.run(page.take("tenure transfer n3"))
    changes = "needs nodes to add and to lose; tests/deploy/test_deploy_members.py does it by these commands"
    page.leave(
        {
            **{f"tenure members {what} ": changes for what in ("add", "replace", "remove")},
            "tenure members move ": "needs a machine that moves; the call behind it is tested in tests/raft",
            "cluster_id = ": "lines of a configuration",
            "node_id = ": "lines of a configuration",
            "join = ": "lines of a configuration",
        }
    )


def test_a_command_that_nobody_runs_would_be_noticed() -> None:
    page = Page("deploy/RUNBOOK.md")
    page.left.append("tenure dance")
    with pytest.raises(AssertionError, match="neither run nor listed"):
        page.leave({"journalctl ": "", "systemctl ": "", "curl ": "", "tenure status": "", "until ": ""})
    with pytest.raises(AssertionError, match="listed, and not there"):
        Page("README.md", shown=README_SHOWN).leave(
            {"make ": "", "curl ": "", ".venv/": "", "a command that was there once": ""}
        )
