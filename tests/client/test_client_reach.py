"""Ways to a cluster: IPv6, names with several addresses, TLS, credentials of several sources."""

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from client_certificates import Certificates
from client_front import Front, machine, serving

import tenure
from tenure._credentials import CredentialSource

KEY = "job/7"


async def use(url: str, **options: Any) -> None:
    """From acquire to release, renewal thread included."""
    async with tenure.connect(url, timeout=5.0, **options) as client:
        async with client.lease(KEY) as held:
            await held.renew()
            await held.commit("done")
        assert await client.get(KEY) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_node_is_reached_by_ipv4_and_by_ipv6(host: str) -> None:
    async with serving(Front(machine(), host)) as node:
        await use(node.url)
        assert node.asked


def a_name_for(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """``tenure.test`` stands for these addresses."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host != "tenure.test":
            return real(host, port, *more, **named)
        return [found for address in addresses for found in real(address, port, *more, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def test_a_name_with_several_addresses_is_as_good_as_its_best_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of three have no leader, whichever is tried first, and for as many calls as there are."""
    shared = machine()
    async with serving(Front(shared, "127.0.0.4")) as good:
        lost = [Front(shared, f"127.0.0.{number}", good.port, leaderless=True) for number in (2, 3)]
        async with serving(lost[0]), serving(lost[1]):
            a_name_for(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.4")
            for _ in range(10):
                await use(f"http://tenure.test:{good.port}")
            assert all(node.asked for node in lost), "they were tried, too"


async def test_a_name_of_which_one_address_is_dead_still_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Front(machine(), "127.0.0.4")) as good:
        a_name_for(monkeypatch, "127.0.0.2", "127.0.0.4")
        for _ in range(5):
            await use(f"http://tenure.test:{good.port}")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def test_tls_with_an_authority_of_ones_own(certificates: Certificates) -> None:
    async with serving(Front(machine(), "127.0.0.1", tls=certificates.server)) as node:
        await use(node.url, ca_file=certificates.ca_file)
        context = ssl.create_default_context(cafile=certificates.ca_file)
        await use(node.url, tls=context)


@pytest.mark.parametrize("trust", ["nothing named", "another authority"])
async def test_a_server_that_cannot_prove_who_it_is_gets_no_request(
    certificates: Certificates, trust: str
) -> None:
    options = {} if trust == "nothing named" else {"ca_file": certificates.strange_ca_file}
    async with serving(Front(machine(), "127.0.0.1", tls=certificates.server)) as node:
        async with tenure.connect(node.url, credential="secret", timeout=0.5, **options) as client:
            with pytest.raises(tenure.ClusterUnavailable, match=r"(?i)certificate"):
                await client.acquire(KEY, owner="a", ttl=30)
        assert not node.asked


async def test_a_client_certificate_is_shown_to_a_server_that_asks(certificates: Certificates) -> None:
    files = {"cert_file": certificates.cert_file, "key_file": certificates.key_file}
    async with serving(Front(machine(), "127.0.0.1", tls=certificates.server_that_asks)) as node:
        await use(node.url, ca_file=certificates.ca_file, **files)
        async with tenure.connect(node.url, ca_file=certificates.ca_file, timeout=0.5) as client:
            with pytest.raises((tenure.ClusterUnavailable, tenure.OutcomeUnknown)):
                await client.acquire(KEY, owner="a", ttl=30)


@pytest.mark.parametrize(
    "options",
    [
        {"ca_file": "/no/such/file"},
        {"key_file": "/some/key"},
        {"ca_file": "x", "tls": ssl.create_default_context()},
        {"tls": ssl.create_default_context(), "endpoints": "http://n1:7601"},
    ],
    ids=str,
)
def test_certificates_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(tenure.InvalidRequest):
        tenure.connect(**{"endpoints": "https://n1:7601", **options})


async def test_a_credential_from_a_string_a_file_and_a_function(tmp_path: Path) -> None:
    path = tmp_path / "credential"
    path.write_text("of-file\n")
    issued = iter(f"of-function-{number}" for number in range(100))
    async with serving(Front(machine(), "127.0.0.1")) as node:
        await use(node.url, credential="of-string")
        assert set(node.credentials) == {"Bearer of-string"}
        node.credentials.clear()
        async with tenure.connect(node.url, credential=path, stream=False) as client:
            await client.get(KEY)
            path.write_text("of-new-file\n")
            await client.get(KEY)
            path.unlink()
            await client.get(KEY)
        assert node.credentials == ["Bearer of-file", "Bearer of-new-file", "Bearer of-new-file"]
        node.credentials.clear()
        async with tenure.connect(node.url, credential=lambda: next(issued), stream=False) as client:
            await client.get(KEY)
            await client.get(KEY)
        assert node.credentials == ["Bearer of-function-0", "Bearer of-function-1"]


@pytest.mark.parametrize("bad", ["", " ", "a\nb", "ü"])
def test_a_credential_that_none_can_be_is_refused_before_it_is_sent(bad: str) -> None:
    with pytest.raises(tenure.InvalidRequest):
        CredentialSource(bad).get()


def test_a_credential_is_not_shown(tmp_path: Path) -> None:
    from tenure._options import Options

    assert "secret" not in repr(Options.of("http://n1:7601", credential="secret"))
    with pytest.raises(tenure.InvalidRequest, match="can't be read"):
        CredentialSource(tmp_path / "none").get()
