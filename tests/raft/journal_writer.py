"""A process that writes to a journal until it is killed, and prints what it has acknowledged.

Usage: journal_writer.py DIRECTORY FAULTS. Each line is "index term voted_for".
"""

import asyncio
import sys

from journal_cases import SEGMENT_BYTES

from tenure_cluster import faults
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import SystemDisk
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.snapshot_file import SnapshotStore

SNAPSHOT_EVERY = 40


def command(index: int) -> bytes:
    return b"%d." % index * (index * 7919 % 700)


async def write(directory: str) -> None:
    disk = SystemDisk(directory)
    disk.lock()
    store = SnapshotStore(disk, "cluster")
    latest = store.latest()
    journal = Journal.open(
        disk,
        SystemClock(),
        cluster_id="cluster",
        node_id="n1",
        segment_bytes=SEGMENT_BYTES,
        snapshot=latest.boundary if latest else None,
    )
    loop = asyncio.get_running_loop()
    index = journal[-1][1] if len(journal) else 0
    while True:
        term = journal.getCurrentTerm() + (index % 5 == 0)
        journal.setCurrentTerm(term, f"n{index % 3}")
        for _ in range(1 + index % 4):
            index += 1
            journal.add(command(index), index, term)
        ticket = journal.flush_batch()
        assert ticket is not None
        synced: asyncio.Future[BaseException | None] = loop.create_future()
        disk.run(ticket.sync, synced.set_result)
        error = await synced
        if error is not None:
            raise error
        journal.mark_durable()
        sys.stdout.write(f"{index} {term} {journal.getVotedForNodeId()}\n")
        sys.stdout.flush()
        if index > journal[0][1] + SNAPSHOT_EVERY:
            saved: asyncio.Future[BaseException | None] = loop.create_future()
            store.save(
                journal[-1], journal[-2], [b"state"], lambda info, error, saved=saved: saved.set_result(error)
            )
            error = await saved
            if error is not None:
                raise error
            journal.deleteEntriesTo(len(journal) - 2)


if __name__ == "__main__":
    faults.arm_from(sys.argv[2])
    asyncio.run(write(sys.argv[1]))
