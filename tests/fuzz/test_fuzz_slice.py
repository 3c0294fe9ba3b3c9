"""Every decoder against its seeds, against what was ever found, and against some thousands of changes of
the seeds, the same in every run. `make fuzz` goes on from there for as long as one likes, guided by coverage.
"""

import time
import tracemalloc
from pathlib import Path
from unittest import mock

import pytest
from fuzz_kit import PACKED_WORDS, Mutator, Target
from fuzz_targets import PLACES, target

from tenure_cluster.raft import segment, snapshot_format
from tenure_cluster.raft.link import Framed
from tenure_cluster.service import backup_format, peer_messages

TARGETS = {name: target(name) for name in PLACES}
FOUND = Path(__file__).resolve().parent / "found"
SECONDS_MAX = 25.0
MEMORY_BYTES_MAX = 160 << 20
"""What the smallest input may claim: the arrays in arrays of raft/codec.py, all of the greatest length, and
nothing but that comes near."""
INPUTS = {"journal_damage": 1_500, "snapshot_state": 3_000}
INPUTS_OF_OTHERS = 6_000

each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def held(target: Target, data: bytes) -> bool:
    """Check one input, also for how long it took."""
    began = time.monotonic()
    try:
        return target.check(data)
    except Exception as error:
        error.add_note(f"{target.name}, input {data.hex()}")
        raise
    finally:
        assert time.monotonic() - began < SECONDS_MAX, f"{target.name} hangs on {data.hex()}"


@each_target
def test_what_really_goes_through_a_decoder_is_taken_and_some_of_what_is_damaged_is_not(
    target: Target,
) -> None:
    taken = [held(target, seed) for seed in target.seeds()]
    assert any(taken)
    assert not all(taken) or not all(held(target, seed[:-1]) for seed in target.seeds())


@each_target
def test_changed_input_is_taken_for_what_it_is_or_refused(target: Target) -> None:
    mutator = Mutator(target, seed=1)
    taken = [held(target, mutator.next()) for _ in range(INPUTS.get(target.name, INPUTS_OF_OTHERS))]
    assert True in taken
    assert False in taken


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.hex")), ids=lambda path: path.stem)
def test_what_was_found_once_does_no_harm_any_more(path: Path) -> None:
    held(TARGETS[path.stem.rpartition("-")[0]], bytes.fromhex(path.read_text("ascii")))


@each_target
def test_a_small_input_claims_little_memory(target: Target) -> None:
    bombs = [word * 200 for word in PACKED_WORDS]
    bombs += [b"\xdc\x3f\xff" * 700, b"\xde\x3f\xff\xa1a" * 400]
    for seed in target.seeds()[:3]:
        for bomb in bombs:
            for place in (1, len(seed) // 2, len(seed)):
                tracemalloc.start()
                held(target, (seed[:place] + bomb)[: target.bytes_max])
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                assert peak < MEMORY_BYTES_MAX, f"{peak} bytes for {bomb[:8]!r} at {place}"


def finds_something(target: Target) -> bool:
    mutator = Mutator(target, seed=2)
    inputs = [*target.seeds(), *(mutator.next() for _ in range(300))]
    try:
        for data in inputs:
            target.check(data)
    except (AssertionError, RecursionError, ValueError, AttributeError):
        return True
    return False


def test_a_journal_reader_that_checks_no_checksums_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS["journal_damage"]
    assert not finds_something(target)
    original = segment.read_frame

    def unchecked(data: bytes, salt: int, offset: int) -> segment.Frame | None:
        frame = original(data, salt, offset)
        header = segment._read_header(data, salt, offset)
        if frame is None and header is not None:
            return header[0], header[1], data[offset + segment._FRAME_HEADER_BYTES : header[0] - 1]
        return frame

    monkeypatch.setattr("tenure_cluster.raft.recovery.read_frame", unchecked)
    assert finds_something(target)


def test_a_snapshot_reader_that_compares_no_digest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(self: snapshot_format.SnapshotParser, piece: bytes) -> None:
        assert self.info is not None
        info = self.info
        self.info = snapshot_format.SnapshotInfo(
            info.cluster_id, info.previous, info.last, info.members, self.fed_bytes
        )
        self.done = True

    monkeypatch.setattr(snapshot_format.SnapshotParser, "_digest", taken)
    assert finds_something(TARGETS["snapshot_file"])
    monkeypatch.setattr(backup_format, "encode_trailer", lambda digest: mock.ANY)
    assert finds_something(TARGETS["backup"])


def test_a_link_that_takes_what_is_too_deep_for_an_error_of_its_own_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def take(self: Framed, body: bytes) -> bool:
        self.frame_received(body)
        return self.is_open

    monkeypatch.setattr(Framed, "_take", take)
    assert finds_something(TARGETS["peer_frames"])
    monkeypatch.setattr(peer_messages, "_UNREADABLE", (peer_messages.msgspec.MsgspecError,))
    assert finds_something(TARGETS["peer_messages"])
