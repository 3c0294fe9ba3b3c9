"""deploy/METRICS.md as the catalogue of metrics makes it."""

from tenure_cluster.observe.catalogue import SECTIONS, Metric

HEAD = """\
# Metrics

`GET /metrics` on every node, in Prometheus' text format; `metrics.enabled = false` takes it away. A scrape
costs a node a few milliseconds, and counting costs an operation less than a microsecond;
`bench/metrics_cost.py` measures it.

- Counters of leases are counted by the node that leads, while it serves: the sum over all nodes is the
  cluster's, `sum by (job) (rate(…))`. What is read again from the journal at a start is not counted again,
  and what is applied in the moment of a change of leader may be missed.
- Gauges of leases are those of each node's own copy of the state: take `max by (job, tenant)`, not the sum.
- `tenant` is bounded: the first `metrics.tenants_max` (50) tenants that a node meets have series of their
  own, all others share `other`. `reason`, `cause`, `status` and `role` have a fixed set of values, `peer` has
  the members.
- A counter appears with its labels when it is first counted, those of a tenant when the tenant is first met.
- Where nodes ask for credentials (`auth.required`), so does /metrics: Prometheus shows one with the right
  `admin` (`authorization.credentials_file`), or the nodes have `metrics.open = true`, and whoever reaches the
  port may read the numbers, which name tenants and no keys.
- Besides these there are the `process_*` and `python_info` metrics of the Prometheus client library.

The dashboard is [grafana/tenure.json](grafana/tenure.json), the alerts are in
[prometheus/tenure.rules.yml](prometheus/tenure.rules.yml), and what to do about each is in
[RUNBOOK.md](RUNBOOK.md).
"""


def page() -> str:
    parts = [HEAD]
    for title, metrics in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n")
        parts += [_row(metric) for metric in metrics]
    return "".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.told_as}` | {metric.kind} | {labels} | {metric.help} |\n"
