"""``tenure``, the client's command line.

Exit codes: 0 done; 1 refused (held, stale, not found); 2 usage; 3 no leader, unreachable, or the outcome
unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from tenure import __version__
from tenure._cli import leases, records, status
from tenure._cli.base import common_options
from tenure._cli.console import USAGE

EPILOG = """\b
Examples:
  tenure acquire payment/security/42 --ttl 30s --owner agent-a
  tenure get payment/security/42
  tenure status
\b
Exit codes: 0 done; 1 refused (held, stale, not found); 2 usage;
3 no leader, unreachable, or the outcome unknown.
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
    leases.queue,
    leases.break_,
    records.commit,
    records.record,
    status.status,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    try:
        code = cli.main(args=arguments, prog_name="tenure", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = USAGE
    except (click.Abort, KeyboardInterrupt):
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
