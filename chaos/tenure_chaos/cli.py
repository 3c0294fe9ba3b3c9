"""``tenure-chaos``: the test bench's command line. Each command is a module of ``tenure_chaos.commands``."""

import logging

import click

from tenure_chaos.commands.campaign import campaign
from tenure_chaos.commands.check import check
from tenure_chaos.commands.live import live
from tenure_chaos.commands.live_compare import compare
from tenure_chaos.commands.live_mutants import live_mutants
from tenure_chaos.commands.mitigations import mitigations
from tenure_chaos.commands.mutants import mutants
from tenure_chaos.commands.proxy import proxy
from tenure_chaos.commands.reproduce import reproduce
from tenure_chaos.commands.sim import sim


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """Put a whole cluster through faults, and check what it promised."""
    usual = logging.root.manager.disable
    context.call_on_close(lambda: logging.disable(usual))
    logging.disable(logging.CRITICAL)


main.add_command(sim)
main.add_command(reproduce)
main.add_command(campaign)
main.add_command(mutants)
main.add_command(mitigations)
main.add_command(check)
main.add_command(live)
main.add_command(proxy)
main.add_command(compare)
main.add_command(live_mutants)

if __name__ == "__main__":
    main()
