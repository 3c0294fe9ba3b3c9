"""All commands put together."""

from __future__ import annotations

import click

from tenure import __version__
from tenure._cli import (
    audit,
    backup,
    credentials,
    leases,
    members,
    passing,
    pools,
    queues,
    records,
    run,
    sessions,
    status,
    tenants,
    top,
    watch,
)
from tenure._cli.base import common_options

EPILOG = """\b
Examples:
  tenure acquire payment/security/42 --ttl 30s --owner agent-a
  tenure run nightly-report -- ./report.sh
  tenure watch payment/
  tenure status
\b
Exit codes: 0 done; 1 refused (held, stale, not found); 2 usage;
3 no leader, unreachable, or the outcome unknown; 4 lease lost (run).
Durations are written as 30s, 500ms, 2m, 1h. Keys may hold slashes."""


@click.group(
    epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="tenure")
def cli() -> None:
    """Leases bounded in time, fenced by tokens that only rise."""


cli.params += common_options()
for _command in (
    leases.acquire,
    leases.renew,
    leases.release,
    leases.get,
    leases.list_,
    queues.queue,
    leases.break_,
    pools.resize,
    passing.handover,
    passing.park,
    passing.unpark,
    sessions.sessions,
    run.run,
    watch.watch,
    top.top,
    records.commit,
    records.record,
    status.status,
    members.transfer,
    members.members,
    credentials.credentials,
    tenants.tenants,
    backup.backup,
    audit.audit,
):
    cli.add_command(_command)
