"""A test kit for programs that use Tenure: a cluster in memory, a clock that a test moves, and faults.

    async def test_the_worker_stops_when_it_loses_its_lease():
        cluster = FakeCluster()
        async with cluster.connect() as client:
            worker = asyncio.create_task(work(client))
            ...
            cluster.expire_now("job/7")
            with pytest.raises(tenure.LeaseLost):
                await worker

The cluster is the real lease machine behind the real protocol, without a network, a disk or other nodes; the
client is the real client, with its renewal thread. ``pytest_plugins = ["tenure.testing.pytest_plugin"]``
brings fixtures.
"""

from tenure.testing.clock import ManualClock
from tenure.testing.cluster import FakeCluster

__all__ = ["FakeCluster", "ManualClock"]
