"""`tenured tls`: what it makes, what it refuses, and that each step of a change of authority leaves everybody
able to talk to everybody."""

import datetime as dt
import itertools
from pathlib import Path

import pytest
from auth_kit import HOST, YEAR, Pki, now
from click.testing import CliRunner, Result

from tenure_cluster.auth import certificates as pem
from tenure_cluster.auth import tls_files
from tenure_cluster.auth.authority import AuthorityError, issue, make_authority, parse_nodes
from tenure_cluster.auth.tls import Contexts, Files, load
from tenure_cluster.cli import cli

NODES = ("n1", "n2", "n3")


def tenured(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["tls", *map(str, arguments)])


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("texts", "nodes"),
    [
        (["n1=a,b", "n2=10.0.0.2"], {"n1": ["a", "b"], "n2": ["10.0.0.2"]}),
        (["n1=a,b,n2=::1"], {"n1": ["a", "b"], "n2": ["::1"]}),
        (["n1=n1"], {"n1": ["n1"]}),
    ],
)
def test_nodes_and_their_hosts_are_named_one_by_one_or_all_at_once(
    texts: list[str], nodes: dict[str, list[str]]
) -> None:
    assert parse_nodes(texts) == nodes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n1", "'n1' is not ID=HOST"),
        ("n1=", "'' is neither a host's name nor an address"),
        ("n1=*.example.org", "'*.example.org' is neither"),
        ("n 1=a", "node id 'n 1' must be"),
        ("..=a", "node id '..' must be"),
        ("n1=a,n1=b", "n1 is named twice"),
        ("n1=n2,n2=b", "'n2' is the id of another node"),
    ],
)
def test_nodes_that_cannot_be_meant_are_refused(tmp_path: Path, text: str, told: str) -> None:
    done = tenured("init", tmp_path / "certs", "--node", text)
    assert done.exit_code == 2
    assert told in done.output
    assert not (tmp_path / "certs").exists()


def test_init_makes_what_every_node_needs_and_tells_what_to_do_with_it(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    done = tenured("init", directory, "--node", "n1=127.0.0.1,h.example", "--node", "n2=::1", "--days", "30")
    assert done.exit_code == 0, done.output
    assert f'cert = "{directory}/n1/cert.pem"' in done.output
    assert mode(directory) == 0o700
    keys = [directory / "ca.key", directory / "n1" / "key.pem", directory / "n2" / "key.pem"]
    assert [mode(key) for key in keys] == [0o600] * 3
    [certificate] = pem.certificates("x", str(directory / "n1" / "cert.pem"))
    assert pem.names(certificate) == (["n1", "h.example"], ["127.0.0.1"])
    life = certificate.not_valid_after_utc - now()
    assert dt.timedelta(days=29) < life <= dt.timedelta(days=30)


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    assert tenured("init", directory, "--node", "n1=h").exit_code == 0
    before = {path: path.read_bytes() for path in directory.rglob("*.pem")}
    done = tenured("init", directory, "--node", "n2=h")
    assert done.exit_code == 3
    assert "is there already, and nothing is overwritten" in done.output
    (directory / "ca.pem").unlink()
    (directory / "ca.key").unlink()
    del before[directory / "ca.pem"]
    assert tenured("init", directory, "--node", "n1=h").exit_code == 3
    assert {path: path.read_bytes() for path in directory.rglob("*.pem")} == before


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = tenured("init", tmp_path / "file" / "certs", "--node", "n1=h")
    assert done.exit_code == 3
    assert "Not a directory" in done.output


def test_a_certificate_ends_no_later_than_its_authority() -> None:
    authority = make_authority(dt.timedelta(days=3), now())
    issued = issue(authority, "n1", [], YEAR, now())
    assert issued.certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc
    with pytest.raises(AuthorityError, match="the authority ended at"):
        issue(authority, "n1", [], YEAR, now() + dt.timedelta(days=4))


def test_renewed_certificates_are_for_the_same_hosts_with_another_key(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    before = {node_id: pki.serial(node_id) for node_id in NODES}
    key = Path(pki.files().key).read_bytes()
    assert tenured("renew", tmp_path, "--node", "n1").exit_code == 0
    assert {node_id for node_id in NODES if pki.serial(node_id) != before[node_id]} == {"n1"}
    assert Path(pki.files().key).read_bytes() != key
    assert tenured("renew", tmp_path).exit_code == 0
    for node_id in NODES:
        contexts = load(pki.files(node_id), now())
        assert contexts.certificate.serial_number != before[node_id]
        assert pem.names(contexts.certificate) == ([node_id, "localhost"], [HOST])
        assert mode(Path(pki.files(node_id).key)) == 0o600


def test_a_stranger_in_the_directory_s_place_is_told(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    assert "nobody" in tenured("renew", tmp_path, "--node", "nobody").output
    (tmp_path / "ca.key").write_bytes(pki.issue("n1").key_pem())
    done = tenured("renew", tmp_path)
    assert done.exit_code == 3
    assert "is the key of no certificate in" in done.output
    assert "No such file" in tenured("renew", tmp_path / "absent").output


def test_at_every_point_of_a_change_of_authority_all_nodes_accept_each_other(tmp_path: Path) -> None:
    """Within a step nodes change one after the other, so contexts of before and after meet."""
    pki = Pki(tmp_path)
    met = 0
    before = {node_id: load(pki.files(node_id), now()) for node_id in NODES}
    for step in (["new-ca"], ["renew"], ["drop-old-ca"]):
        done = tenured(*step, tmp_path)
        assert done.exit_code == 0, done.output
        after = {node_id: load(pki.files(node_id), now()) for node_id in NODES}
        mixed: list[Contexts] = [*before.values(), *after.values()]
        for one, other in itertools.product(mixed, mixed):
            pem.check_handshake(one.peers_accepting, other.peers_dialling)
            met += 1
        before = after
    assert met == 3 * 36
    assert len(pem.certificates("x", str(tmp_path / "ca.pem"))) == 1


def test_the_old_authority_is_not_dropped_while_a_certificate_is_of_it(tmp_path: Path) -> None:
    Pki(tmp_path)
    assert tenured("new-ca", tmp_path).exit_code == 0
    assert tenured("renew", tmp_path, "--node", "n1").exit_code == 0
    done = tenured("drop-old-ca", tmp_path)
    assert done.exit_code == 3
    assert "n2/cert.pem is still of an older authority" in done.output
    assert len(tls_files._certificates(tmp_path / "n3" / "ca.pem")) == 2


def accept_each_other(directory: Path, *nodes: str) -> None:
    """What every node has been given lets it talk to every other."""
    files = [
        Files(
            *(str(directory / node / name) for name in ("cert.pem", "key.pem", "ca.pem")),
            "",
            node,
            "localhost",
        )
        for node in nodes
    ]
    made = [load(of_node, now()) for of_node in files]
    for accepting, dialling in itertools.product(made, made):
        pem.check_handshake(accepting.peers_accepting, dialling.peers_dialling)


def test_a_node_that_is_added_and_those_before_it_accept_each_other(tmp_path: Path) -> None:
    assert tenured("init", tmp_path, "--node", "n1=h1", "--node", "n2=h2").exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = tenured("add", tmp_path, "--node", "n4=10.0.0.4", "--days", "30")
    assert done.exit_code == 0, done.output
    assert {path: path.read_bytes() for path in before} == before
    assert mode(tmp_path / "n4" / "key.pem") == 0o600
    [certificate] = pem.certificates("x", str(tmp_path / "n4" / "cert.pem"))
    assert pem.names(certificate) == (["n4"], ["10.0.0.4"])
    accept_each_other(tmp_path, "n1", "n4")


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("n1=h", 3, "is there already: renew it"),
        ("n4=n2", 3, "'n2' is the id of another node"),
        ("h1=10.0.0.4", 3, "'h1' is the id of another node"),
        ("n4", 2, "'n4' is not ID=HOST"),
    ],
)
def test_a_node_that_could_pass_for_another_is_not_added(
    tmp_path: Path, text: str, code: int, told: str
) -> None:
    assert tenured("init", tmp_path, "--node", "n1=h1", "--node", "n2=h2").exit_code == 0
    done = tenured("add", tmp_path, "--node", text)
    assert (done.exit_code, told in done.output) == (code, True), done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.key", "ca.pem", "n1", "n2"]


def test_a_node_that_moves_is_renewed_for_other_hosts(tmp_path: Path) -> None:
    assert tenured("init", tmp_path, "--node", "n1=h1", "--node", "n2=h2").exit_code == 0
    done = tenured("renew", tmp_path, "--node", "n1", "--node", "n2=10.0.0.7,h3")
    assert (done.exit_code, "n1, n2" in done.output) == (0, True), done.output
    hosts = [pem.names(pem.certificates("x", str(tmp_path / node / "cert.pem"))[0]) for node in ("n1", "n2")]
    assert hosts == [(["n1", "h1"], []), (["n2", "h3"], ["10.0.0.7"])]
    for wrong, told in (("n2=n1", "'n1' is the id of another node"), ("n9=h", "n9")):
        done = tenured("renew", tmp_path, "--node", wrong)
        assert (done.exit_code, told in done.output) == (3, True), done.output
