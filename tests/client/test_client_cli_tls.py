"""The command line with TLS: an authority of one's own and a client certificate, by option or by variable."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from client_certificates import Certificates
from client_front import Front, machine, serving

from tenure._cli.base import common_options
from tenure._cli.console import DONE, UNREACHABLE, USAGE
from tenure_cluster.config import FOREIGN_VARIABLES

KEY = "job/7"
PATIENCE_S = 60


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
async def node(certificates: Certificates) -> AsyncIterator[Front]:
    async with serving(Front(machine(), "127.0.0.1", tls=certificates.server)) as front:
        yield front


@pytest.fixture
async def node_that_asks(certificates: Certificates) -> AsyncIterator[Front]:
    """It serves nobody who shows no certificate."""
    async with serving(Front(machine(), "127.0.0.1", tls=certificates.server_that_asks)) as front:
        yield front


async def tenure(front: Front, *arguments: str | Path, **variables: str | Path) -> tuple[int, str]:
    """Exit code and what was said, out and err."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    environment |= {"TENURE_ENDPOINTS": front.url} | {name: str(value) for name, value in variables.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure.cli", *map(str, arguments)),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_an_authority_is_named_by_option_or_variable(node: Front, certificates: Certificates) -> None:
    code, said = await tenure(node, "acquire", KEY, "--ttl", "30s", "--ca-file", certificates.ca_file)
    assert (code, "granted" in said) == (DONE, True), said
    assert (await tenure(node, "--ca-file", certificates.ca_file, "get", KEY))[0] == DONE
    assert (await tenure(node, "get", KEY, TENURE_CA_FILE=certificates.ca_file))[0] == DONE
    # What is given to the command wins.
    code, said = await tenure(
        node, "get", KEY, "--ca-file", certificates.ca_file, TENURE_CA_FILE=certificates.strange_ca_file
    )
    assert code == DONE, said


async def test_a_node_of_another_authority_gets_no_request(node: Front, certificates: Certificates) -> None:
    for variables in ({}, {"TENURE_CA_FILE": certificates.strange_ca_file}):
        code, said = await tenure(node, "get", KEY, "--timeout", "3s", **variables)
        assert code == UNREACHABLE, said
        assert "certificate" in said.lower()
    assert not node.asked


async def test_a_certificate_is_shown_by_option_or_variable(
    node_that_asks: Front, certificates: Certificates, tmp_path: Path
) -> None:
    authority = {"TENURE_CA_FILE": certificates.ca_file}
    own = {"TENURE_CERT_FILE": certificates.cert_file, "TENURE_KEY_FILE": certificates.key_file}
    options = ("--cert", certificates.cert_file, "--key", certificates.key_file)
    acquire = ("acquire", KEY, "--ttl", "30s", "--wait", "0s")
    assert (await tenure(node_that_asks, *acquire, *options, **authority))[0] == DONE
    assert (await tenure(node_that_asks, "get", KEY, **authority, **own))[0] == DONE
    both = tmp_path / "both.pem"
    both.write_bytes(certificates.cert_file.read_bytes() + certificates.key_file.read_bytes())
    # A certificate that is given to the command does not take its key from the environment.
    wrong = {"TENURE_CERT_FILE": "/no/such/file", "TENURE_KEY_FILE": "/no/such/file"}
    code, said = await tenure(node_that_asks, "get", KEY, "--cert-file", both, **authority, **wrong)
    assert code == DONE, said
    asked = len(node_that_asks.asked)
    code, said = await tenure(node_that_asks, "get", KEY, "--timeout", "1s", **authority)
    assert code == UNREACHABLE, said
    assert len(node_that_asks.asked) == asked


async def test_run_keeps_its_lease_over_tls(node_that_asks: Front, certificates: Certificates) -> None:
    files = (
        "--ca-file",
        certificates.ca_file,
        "--cert",
        certificates.cert_file,
        "--key",
        certificates.key_file,
    )
    code, said = await tenure(
        node_that_asks, "run", *files, KEY, "--", "sh", "-c", "echo token $TENURE_TOKEN"
    )
    assert code == DONE, said
    assert re.search(r"^token \d+$", said, re.MULTILINE)
    assert (await tenure(node_that_asks, *files, "get", KEY))[0] == 1, "released"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--ca-file", "/no/such/ca.pem"], "/no/such/ca.pem"),
        (["--cert", "/no/such/cert.pem", "--key", "/no/such/key.pem"], "/no/such/key.pem"),
        (["--key", "/some/key.pem"], "key_file"),
        (["--ca-file", "CA", "--endpoints", "http://127.0.0.1:1"], "https://"),
    ],
    ids=["no such authority", "no such certificate", "a key alone", "plain http"],
)
async def test_files_that_cannot_be_meant_are_a_fault_of_usage_that_names_them(
    node: Front, certificates: Certificates, arguments: list[str], named: str
) -> None:
    given = [str(certificates.ca_file) if argument == "CA" else argument for argument in arguments]
    code, said = await tenure(node, "get", KEY, *given)
    assert code == USAGE, said
    assert named in said
    assert not node.asked


def test_a_node_takes_no_variable_of_the_command_line_for_a_setting_of_its_own() -> None:
    helps = [getattr(option, "help", "") or "" for option in common_options()]
    named = {name for text in helps for name in re.findall(r"TENURE_[A-Z_]+", text)}
    assert {"TENURE_ENDPOINTS", "TENURE_CA_FILE", "TENURE_CERT_FILE", "TENURE_KEY_FILE"} <= named
    assert named <= FOREIGN_VARIABLES
    assert {
        "TENURE_KEY",
        "TENURE_TOKEN",
        "TENURE_TOKENS",
        "TENURE_LEASE_ID",
        "TENURE_SLOT",
    } <= FOREIGN_VARIABLES
