"""``tenure``, the client's command line.

Exit codes: 0 done; 1 refused (held, stale, not found); 2 usage; 3 no leader, unreachable, or the outcome
unknown; 4 lease lost (``run``: after the command was stopped). Otherwise ``run`` passes the command's own
code on.
"""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    # Ctrl-C while the libraries load simply ends the process: nothing has begun that wants to be told.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import click

    from tenure._cli.console import USAGE
    from tenure._cli.group import cli

    if isinstance(sys.stdout, io.TextIOWrapper):
        # What was done must not be told as refused because a terminal has no sign for a letter of an owner.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = cli.main(args=arguments, prog_name="tenure", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = USAGE
    except (click.Abort, KeyboardInterrupt):
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
