"""What the runner makes of what libFuzzer says; the running itself is `make fuzz`."""

from pathlib import Path

import fuzz_run
import pytest
from fuzz_targets import PLACES, target

ENDED_WELL = """\
#12464	DONE   cov: 256 ft: 711 corp: 241/8Kb lim: 512 exec/s: 40 rss: 70Mb
Done 12464 runs in 311 second(s)
stat::number_of_executed_units: 12464
"""
FOUND = """\
#1024	pulse  cov: 22 ft: 22 corp: 5/39b lim: 4 exec/s: 512 rss: 65Mb

 === Uncaught Python exception: ===
AssertionError: a changed backup was taken
Traceback (most recent call last):
  File "fuzz_backups.py", line 40, in check_backup
==123== ERROR: libFuzzer: fuzz target exited
"""
HUNG = "==123== ERROR: libFuzzer: timeout after 25 seconds\n"


def test_every_target_has_the_name_under_which_it_is_asked_for() -> None:
    assert [target(name).name for name in PLACES] == list(PLACES)


def test_the_counts_are_the_last_that_were_told() -> None:
    assert fuzz_run.last(r" cov: (\d+)", ENDED_WELL + ENDED_WELL.replace("256", "300")) == 300
    assert fuzz_run.last(r"number_of_executed_units:\s*(\d+)", ENDED_WELL) == 12464
    assert fuzz_run.last(r" cov: (\d+)", "") == 0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (FOUND, "AssertionError: a changed backup was taken"),
        (HUNG, "==123== ERROR: libFuzzer: timeout after 25 seconds"),
        ("Killed", "it ended"),
    ],
)
def test_a_finding_is_told_in_its_own_words(said: str, why: str) -> None:
    assert fuzz_run.why(said) == why


def test_a_finding_is_kept_as_text_that_the_tests_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_run, "FOUND", tmp_path / "found")
    data = bytes(range(256)) * 3
    crash = tmp_path / "crash-0123456789abcdef"
    crash.write_bytes(data)
    kept = fuzz_run.keep(target("backup"), crash)
    assert kept.name == "backup-456789abcdef.hex"
    assert bytes.fromhex(kept.read_text("ascii")) == data
    assert kept.stem.rpartition("-")[0] in PLACES


def test_words_are_written_as_the_dictionary_of_libfuzzer_wants_them() -> None:
    assert fuzz_run.escaped(b'"\\\x00a') == r"\x22\x5c\x00\x61"
