"""Constants of the consensus part made small, so that what takes gigabytes in the field happens in a small
world: snapshots that travel in many pieces, logs that keep little of what a snapshot covers.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tenure_cluster.raft import snapshot_file, snapshots


@contextmanager
def small(*, tail_entries: int, piece_bytes: int) -> Iterator[None]:
    """While this lasts: a log keeps at most ``tail_entries`` that a snapshot covers, and snapshots are
    written and sent in pieces of ``piece_bytes``.
    """
    values = {
        (snapshots, "TAIL_ENTRIES_MAX"): tail_entries,
        (snapshots, "PIECE_BYTES"): piece_bytes,
        (snapshot_file, "SLICE_BYTES"): piece_bytes,
    }
    before = {(module, name): getattr(module, name) for module, name in values}
    for (module, name), value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)
