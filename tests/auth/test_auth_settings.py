"""The section [tls], and which addresses may be listened on with what."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure_cluster.config import Config, ConfigError, load, to_toml

NAMES = {"TENURE_CLUSTER_ID": "c", "TENURE_NODE_ID": "n1"}
TLS = {"TENURE_TLS_CERT": "/c.pem", "TENURE_TLS_KEY": "/k.pem", "TENURE_TLS_CA": "/ca.pem"}
OUTSIDE = {"TENURE_HTTP_LISTEN": "0.0.0.0:7601", "TENURE_PEER_LISTEN": "0.0.0.0:7701"}


def loaded(**environ: str) -> Config:
    return load(None, NAMES | environ)


def refusal(**environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(**environ)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_the_section_there_is_no_tls() -> None:
    config = loaded()
    assert not config.tls.on
    assert config.http.advertise == "http://127.0.0.1:7601"


def test_files_are_relative_to_the_configuration_file_and_urls_are_https(tmp_path: Path) -> None:
    path = tmp_path / "n1.toml"
    path.write_text(
        "cluster_id = 'c'\nnode_id = 'n1'\n[tls]\ncert = 'a/c.pem'\nkey = 'a/k.pem'\nca = '/ca.pem'\n"
    )
    config = load(path, {})
    assert config.tls.on
    assert (config.tls.cert, config.tls.key) == (str(tmp_path / "a/c.pem"), str(tmp_path / "a/k.pem"))
    assert (config.tls.ca, config.tls.client_ca) == ("/ca.pem", "")
    assert config.http.advertise == config.members["n1"].http == "https://127.0.0.1:7601"
    path.write_text(to_toml(config))
    assert load(path, {}) == config


@pytest.mark.parametrize("missing", sorted(TLS))
def test_certificate_key_and_authority_go_together(missing: str) -> None:
    told = refusal(**{name: value for name, value in TLS.items() if name != missing})
    name = missing.removeprefix("TENURE_TLS_").lower()
    assert told == f"tls.{name} must be set: cert, key and ca of [tls] go together"


def test_clients_certificates_need_the_node_s_own() -> None:
    assert refusal(TENURE_TLS_CLIENT_CA="/ca.pem").startswith("tls.cert, tls.key, tls.ca must be set")


def test_a_node_with_tls_is_at_an_https_url() -> None:
    told = refusal(**TLS, TENURE_MEMBERS="n1=127.0.0.1:7701@http://127.0.0.1:7601")
    assert "members.n1.http = 'http://127.0.0.1:7601' must be an https URL" in told


def test_a_mistyped_setting_is_met_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "n1.toml").write_text("[tls]\ncertificate = 'x'\n")
    with pytest.raises(ConfigError, match=r"unknown setting tls\.certificate; did you mean tls\.cert\?"):
        load(tmp_path / "n1.toml", NAMES)


def test_without_tls_other_addresses_than_loopback_are_refused_with_the_remedies() -> None:
    http, peer = refusal(**OUTSIDE).rsplit("; ", 1)
    assert "http.listen = '0.0.0.0:7601' is not loopback" in http
    assert "set auth.required with tls.cert, tls.key and tls.ca" in http
    assert "peer.listen = '0.0.0.0:7701' is not loopback" in peer
    assert "set tls.cert, tls.key and tls.ca, or set insecure = true (tenured run --insecure)" in peer


def test_tls_alone_opens_the_peers_address_and_not_the_clients() -> None:
    """Peers have to prove who they are then; a client still has all rights, whoever it is."""
    told = refusal(**OUTSIDE, **TLS)
    assert "http.listen" in told
    assert "set tls.client_ca, or set insecure" in told
    assert "peer.listen" not in told


def test_certificates_from_all_sides_open_both_addresses() -> None:
    assert loaded(**OUTSIDE, **TLS, TENURE_TLS_CLIENT_CA="/ca.pem").http.listen == "0.0.0.0:7601"


def test_credentials_over_tls_open_both_addresses() -> None:
    assert loaded(**OUTSIDE, **TLS, TENURE_AUTH_REQUIRED="true").http.listen == "0.0.0.0:7601"


def test_credentials_without_tls_open_nothing() -> None:
    told = refusal(**OUTSIDE, TENURE_AUTH_REQUIRED="true")
    assert "credentials could be overheard: set tls.cert, tls.key and tls.ca, or set insecure" in told


def test_insecure_opens_both_whatever_else_is_set() -> None:
    assert loaded(**OUTSIDE, TENURE_INSECURE="true").insecure
    assert loaded(**OUTSIDE, **TLS, TENURE_INSECURE="true").tls.on


@pytest.mark.process
@pytest.mark.parametrize("flag", ["--insecure", "--insec", "-i"])
def test_insecure_is_a_flag_of_run_that_has_to_be_written_in_full(tmp_path: Path, flag: str) -> None:
    settings = {"TENURE_HTTP_LISTEN": "0.0.0.0:7601", "TENURE_LEASES_TTL_MIN_MS": "5"}
    done = subprocess.run(
        [sys.executable, "-m", "tenure_cluster.cli", "run", flag],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        | NAMES
        | settings,
        timeout=60,
    )
    assert done.returncode == 2
    # The other fault keeps the node from starting, and shows that the address is none any more.
    assert ("leases.ttl_min_ms = 5" in done.stderr) == (flag == "--insecure")
    assert ("No such option" in done.stderr) == (flag != "--insecure")
    assert "loopback" not in done.stderr
