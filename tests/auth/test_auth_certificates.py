"""What can be wrong with the files of [tls]: each fault is one line that names the setting and the file."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from auth_kit import HOST, LONG_AGO, YEAR, Pki, now, stranger
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from tenure_cluster.auth.certificates import TlsError
from tenure_cluster.auth.tls import NodeTls, load


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "certs")


def refusal(pki: Pki, **changes: str) -> str:
    with pytest.raises(TlsError) as caught:
        load(replace(pki.files(), **changes), now())
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_tls_init_has_made_is_good(pki: Pki) -> None:
    contexts = load(pki.files(), now())
    assert contexts.certificate.serial_number == pki.serial("n1")


def test_certificates_of_another_tool_are_good(tmp_path: Path, pki: Pki) -> None:
    import trustme

    authority = trustme.CA()
    made = authority.issue_cert("n1", HOST)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    made.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "all.pem"))
    both = str(tmp_path / "all.pem")
    load(replace(pki.files(), cert=both, key=both, ca=str(tmp_path / "ca.pem")), now())


@pytest.mark.parametrize("setting", ["cert", "key", "ca", "client_ca"])
def test_a_missing_file_is_named(pki: Pki, setting: str) -> None:
    told = refusal(pki, **{setting: "/no/such.pem"})
    assert told == f"tls.{setting} = '/no/such.pem': No such file or directory"


@pytest.mark.parametrize("setting", ["cert", "key", "ca", "client_ca"])
def test_a_file_of_something_else_is_named(pki: Pki, tmp_path: Path, setting: str) -> None:
    (tmp_path / "other.pem").write_text("not PEM")
    told = refusal(pki, **{setting: str(tmp_path / "other.pem")})
    assert told.startswith(f"tls.{setting} = '{tmp_path}/other.pem' holds no ")


def test_a_damaged_certificate_is_named(pki: Pki) -> None:
    path = Path(pki.files().cert)
    path.write_text(path.read_text()[:200] + "\n-----END CERTIFICATE-----\n")
    assert refusal(pki).startswith(f"tls.cert = '{path}' holds no usable certificate")


def test_the_key_of_another_certificate_is_named_with_both_files(pki: Pki) -> None:
    told = refusal(pki, key=pki.files("n2").key)
    assert "n2/key.pem' does not fit tls.cert = " in told
    assert "n1/cert.pem'" in told


def test_an_encrypted_key_is_told(pki: Pki) -> None:
    key = pki.issue("n1").key
    secret = BestAvailableEncryption(b"secret")
    Path(pki.files().key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    assert "is encrypted" in refusal(pki)


def test_an_expired_certificate_is_told_with_its_end(pki: Pki) -> None:
    expired = pki.issue("n1", LONG_AGO)
    pki.replace("n1", expired)
    told = refusal(pki)
    assert f"expired at {expired.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}" in told
    assert "renew" in told


def test_a_certificate_of_the_future_is_told_with_the_clock(pki: Pki) -> None:
    with pytest.raises(TlsError, match=r"is not valid before .* clock says 2020-01-01T00:00:00Z: set"):
        load(pki.files(), dt.datetime(2020, 1, 1, tzinfo=dt.UTC))


def test_a_certificate_that_does_not_name_the_node_is_told_with_whom_it_names(pki: Pki) -> None:
    told = refusal(pki, node_id="n9")
    assert f"names n1, localhost, {HOST}, not this node" in told
    assert "need the DNS name 'n9'" in told


@pytest.mark.parametrize("node_id", ["N1", "n"])
def test_a_node_s_name_must_be_exactly_its_id(pki: Pki, node_id: str) -> None:
    assert "not this node" in refusal(pki, node_id=node_id)


def test_a_certificate_of_another_authority_is_told_before_the_peers_refuse_it(pki: Pki) -> None:
    pki.replace("n1", stranger("n1"))
    told = refusal(pki)
    assert "is not accepted by tls.ca = " in told
    assert "unable to get local issuer certificate" in told


def test_keys_for_everybody_s_eyes_and_a_near_end_are_warned_about(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    NodeTls(pki.files(), reload_ms=1_000, now=now)
    assert caplog.messages == []
    Path(pki.files().key).chmod(0o644)
    NodeTls(replace(pki.files(), host="elsewhere"), reload_ms=1_000, now=lambda: now() + 360 * YEAR / 365)
    readable, elsewhere, ending = caplog.messages
    assert "can be read by every user" in readable
    assert "not 'elsewhere', where clients look for this node" in elsewhere
    assert "ends at" in ending


def expired(pki: Pki) -> str:
    pki.replace("n1", pki.issue("n1", LONG_AGO))
    return "expired at"


def without_key(pki: Pki) -> str:
    Path(pki.files().key).unlink()
    return "key.pem': No such file or directory"


@pytest.mark.process
@pytest.mark.parametrize("fault", [expired, without_key])
def test_a_node_with_a_fault_in_its_certificates_ends_with_one_line_and_code_2(
    pki: Pki, tmp_path: Path, fault: Callable[[Pki], str]
) -> None:
    named = fault(pki)
    settings = ["tls.cert = 'n1/cert.pem'", "tls.key = 'n1/key.pem'", "tls.ca = 'ca.pem'"]
    (pki.directory / "n1.toml").write_text("\n".join(["cluster_id = 'c'", "node_id = 'n1'", *settings]))
    done = subprocess.run(
        [sys.executable, "-m", "tenure_cluster.cli", "run", "--config", str(pki.directory / "n1.toml")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("TENURE_")},
        timeout=60,
    )
    [line] = done.stderr.splitlines()
    assert line.startswith("tenured: tls.")
    assert named in line
    assert done.returncode == 2
