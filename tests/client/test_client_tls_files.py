"""Certificate files are read again when they change, and a client goes on through a change of authority."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from client_certificates import Certificates
from client_front import Front, machine, serving

import tenure
from tenure._tls_files import LOOK_S, TlsFiles


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def later(self) -> None:
        self.now_s += LOOK_S


def two(directory: Path) -> tuple[Certificates, Certificates]:
    for name in ("old", "new"):
        (directory / name).mkdir()
    return Certificates(directory / "old"), Certificates(directory / "new")


def put(directory: Path, *parts: Path) -> Path:
    """The file that the client is given, replaced by these as an operator would."""
    made, path = directory / "made.pem", directory / "ca.pem"
    made.write_bytes(b"".join(part.read_bytes() for part in parts))
    made.replace(path)
    return path


def test_the_context_is_the_same_until_the_files_change(tmp_path: Path) -> None:
    old, new = two(tmp_path)
    clock, path = Clock(), put(tmp_path, old.ca_file)
    files = TlsFiles(path, None, None, clock)
    first = files.get()
    clock.later()
    assert files.get() is first
    put(tmp_path, old.ca_file, new.ca_file)
    assert files.get() is first, "looked at too often"
    clock.later()
    second = files.get()
    assert second is not first
    assert len(second.get_ca_certs()) == 2
    assert files.get() is second


@pytest.mark.parametrize("fault", ["gone", "no certificates"])
def test_files_that_cannot_be_used_change_nothing_until_they_can(tmp_path: Path, fault: str) -> None:
    old, new = two(tmp_path)
    clock, path = Clock(), put(tmp_path, old.ca_file)
    files = TlsFiles(path, None, None, clock)
    first = files.get()
    if fault == "gone":
        path.unlink()
    else:
        path.write_text("nothing of use")
    for _ in range(2):
        clock.later()
        assert files.get() is first
    put(tmp_path, new.ca_file)
    clock.later()
    assert files.get() is not first


def test_a_key_that_does_not_fit_yet_is_waited_for(tmp_path: Path) -> None:
    old, new = two(tmp_path)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(old.cert_file, cert)
    shutil.copy(old.key_file, key)
    clock = Clock()
    files = TlsFiles(old.ca_file, cert, key, clock)
    first = files.get()
    shutil.copy(new.cert_file, cert)
    clock.later()
    assert files.get() is first
    shutil.copy(new.key_file, key)
    clock.later()
    assert files.get() is not first


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_outlives_the_authority_of_its_nodes(
    tmp_path: Path, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure._tls_files.LOOK_S", 0.0)
    old, new = two(tmp_path)
    front = Front(machine(), "127.0.0.1", tls=old.server)
    path = put(tmp_path, old.ca_file)
    async with serving(front):
        client = tenure.connect(front.url, ca_file=path, stream=stream, timeout=4.0)
        assert await client.get("job") is None
    async with client:
        put(tmp_path, new.ca_file)
        async with serving(replace(front, tls=new.server)) as changed:
            assert await client.get("job") is None
            assert changed.asked
        async with serving(replace(front, tls=old.server)):
            with pytest.raises(tenure.ClusterUnavailable, match=r"(?i)certificate"):
                await client.get("job")
