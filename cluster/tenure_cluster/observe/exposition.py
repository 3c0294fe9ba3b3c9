"""All metrics of a node in Prometheus' text format.

What is current is read when it is asked for: a scrape costs the event loop a few milliseconds, and the time
between two scrapes costs nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from tenure_cluster.observe.catalogue import METRICS
from tenure_cluster.observe.lease_counts import LeaseCounts
from tenure_cluster.observe.raft_counts import RaftCounts
from tenure_cluster.observe.series import Histogram

Labels: TypeAlias = tuple[str, ...]
Sample: TypeAlias = tuple[str, Labels, float | Histogram]
"""A metric of the catalogue, the values of its labels, and its own value."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(samples: Callable[[], Iterable[Sample]]) -> Callable[[], bytes]:
    """What gives the whole text, of `samples` and of the process itself."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples))
    PlatformCollector(registry=registry)
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def of_leases(counts: LeaseCounts) -> Iterator[Sample]:
    """The samples of what became of leases, by tenant."""
    for tenant, of in counts.tenants.items():
        who = (tenant,)
        yield "tenure_leases_held", who, of.held
        yield "tenure_leases_waiting", who, of.waiting
        yield "tenure_leases_granted", who, of.granted
        yield "tenure_acquires_blocked", who, of.blocked
        yield "tenure_renewals", who, of.renewed
        yield "tenure_queue_left", who, of.left
        yield "tenure_commits_accepted", who, of.accepted
        yield "tenure_stale_writes", who, of.stale
        yield "tenure_wait_seconds", who, of.wait_s
        yield "tenure_hold_seconds", who, of.hold_s
        by_cause: Mapping[str, Mapping[str, int]] = {
            "tenure_acquires_denied": of.denied,
            "tenure_renewals_failed": of.renewals_failed,
            "tenure_leases_ended": of.ended,
            "tenure_commits_refused": of.refused,
        }
        for name, counted in by_cause.items():
            for cause, number in counted.items():
                yield name, (tenant, cause), number


def of_raft(counts: RaftCounts) -> Iterator[Sample]:
    """The samples of what consensus has told."""
    yield "tenure_raft_elections_started", (), counts.elections_started
    yield "tenure_raft_elections_won", (), counts.elections_won
    yield "tenure_raft_leader_changes", (), counts.leader_changes
    yield "tenure_raft_sync_seconds", (), counts.sync_s
    yield "tenure_raft_snapshots_made", (), counts.snapshots_made
    yield "tenure_raft_snapshots_installed", (), counts.snapshots_installed
    yield "tenure_raft_snapshot_seconds", (), counts.snapshot_s
    yield "tenure_raft_snapshot_timestamp_seconds", (), counts.snapshot_wall_ms / 1000


class _Samples(Collector):
    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        grouped: dict[str, list[tuple[Labels, float | Histogram]]] = {name: [] for name in METRICS}
        for name, labels, value in self._samples():
            grouped[name].append((labels, value))
        for name, found in grouped.items():
            yield _family(name, found)


def _family(name: str, samples: list[tuple[Labels, float | Histogram]]) -> Family:
    metric = METRICS[name]
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        for labels, value in samples:
            assert isinstance(value, Histogram), name
            histograms.add_metric(labels, value.buckets(), value.total)
        return histograms
    shape = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = shape(name, metric.help, labels=metric.labels)
    for labels, value in samples:
        assert not isinstance(value, Histogram), name
        family.add_metric(labels, value)
    return family
