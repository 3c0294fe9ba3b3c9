"""Command-line options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tenure_chaos.sim.options import InvalidOption, Options

F = TypeVar("F", bound=Callable[..., Any])

KEEP = Path(".tenure-chaos")
"""Where traces and histories of seeds that broke a rule are kept."""


def _overrides(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals:
            raise click.BadParameter(f"{value!r} is not of the form name=value")
        overrides[name] = text
    try:
        Options.for_seed(0, overrides)
    except InvalidOption as error:
        raise click.BadParameter(str(error)) from None
    return overrides


def option_option(command: F) -> F:
    """``--option name=value``, as a dictionary ``overrides``."""
    return click.option(
        "--option",
        "overrides",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_overrides,
        help="Set an option of the simulation instead of drawing it; see sim/options.py. Repeatable.",
    )(command)


def again(seed: int, overrides: dict[str, str]) -> str:
    """The command that runs a seed again."""
    options = "".join(f" --option '{name}={value}'" for name, value in overrides.items())
    return f"tenure-chaos reproduce {seed}{options}"
