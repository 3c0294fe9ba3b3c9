"""``tenured``, the server's command line."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NoReturn

import click

from tenure_cluster import __version__
from tenure_cluster.dev import layout
from tenure_cluster.directory_owner import owner_fault
from tenure_cluster.offline_commands import inspect, recover, restore
from tenure_cluster.pid_file import NodeRuns, PidFile
from tenure_cluster.tls_commands import tls

EXIT_USAGE: Final = 2
EXIT_START: Final = 3
PID_FILE_PATIENCE_S: Final = 0.5
"""How long a taken pid file is tried: whoever only asks for the pid holds its lock for an instant."""

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(context_settings=HELP)
@click.version_option(__version__, prog_name="tenured")
def cli() -> None:
    """Tenure's server: a Raft-replicated lease store."""


@cli.command(
    epilog="""\b
Examples:
  tenured run --config n1.toml
  TENURE_LOG_LEVEL=debug tenured run --config n1.toml
\b
Every setting is also a variable: http.listen is TENURE_HTTP_LISTEN. Variables win over the file.
Exit codes: 0 stopped by SIGTERM or SIGINT; 2 configuration; 3 could not start; 4 damaged data directory;
70 stopped itself because it could not go on safely."""
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="TENURE_CONFIG",
    show_envvar=True,
    help="Configuration file in TOML. Without one all settings come from TENURE_* variables.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow addresses that others than this machine can reach, without TLS or credentials: whoever "
    "reaches them has all rights.",
)
def run(config_path: Path | None, insecure: bool) -> None:
    """Run one node until SIGTERM or Ctrl-C."""
    from tenure_cluster import node
    from tenure_cluster.config import ConfigError, load
    from tenure_cluster.observe import logs

    try:
        config = load(config_path, {**os.environ, **({"TENURE_INSECURE": "true"} if insecure else {})})
    except ConfigError as error:
        _fail(f"{error}{'; or name a file by --config' if config_path is None else ''}", EXIT_USAGE)
    logs.configure(config.log.level, config.log.format)
    if fault := owner_fault(config.data_dir):
        _fail(fault, EXIT_START)
    pid_file = _take_pid_file(config.data_dir)
    try:
        node.run(config)
    except node.StartError as error:
        remedy = {
            node.EXIT_START: "; free it, or set another",
            node.EXIT_DAMAGED: "; nothing was changed. Give the node its own, undamaged data_dir",
        }
        told = "" if error.remedied else remedy.get(error.exit_code, "")
        _fail(f"{error}{told}", error.exit_code)
    finally:
        pid_file.release()


@cli.command(
    epilog="""\b
Examples:
  tenured dev
  tenured dev --nodes 5 --data-dir /tmp/five --http-port 8601 --peer-port 8701
\b
DATA_DIR/cluster.json names the nodes, their pids and URLs. A node that dies is left dead and reported;
start it again by: tenured run --config DATA_DIR/n1/tenured.toml"""
)
@click.option(
    "--nodes",
    type=click.IntRange(1, layout.NODES_MAX),
    help=f"Number of nodes. [default: {layout.NODES_DEFAULT}, or as in the data directory]",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=layout.DATA_DIR_DEFAULT,
    show_default=True,
    help="Where the nodes keep their data. A cluster that is there goes on.",
)
@click.option(
    "--http-port",
    type=click.IntRange(1, 65_535),
    help="HTTP port of n1; the next nodes have the next ports. "
    f"[default: {layout.HTTP_PORT_DEFAULT}, or as in the data directory]",
)
@click.option(
    "--peer-port",
    type=click.IntRange(1, 65_535),
    help=f"Peer port of n1, likewise. [default: {layout.PEER_PORT_DEFAULT}, or as in the data directory]",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the output."
)
def dev(
    nodes: int | None,
    data_dir: Path,
    http_port: int | None,
    peer_port: int | None,
    output: Literal["text", "json"],
) -> None:
    """Run a cluster on this machine, one process per node, until Ctrl-C."""
    from tenure_cluster.dev.speaker import Speaker
    from tenure_cluster.dev.supervisor import Supervisor

    try:
        with layout.directory_lock(data_dir):
            prepared = layout.prepare(data_dir, nodes, http_port, peer_port)
            Supervisor(prepared, Speaker(as_json=output == "json")).run()
    except layout.DevError as error:
        _fail(str(error), EXIT_START)


for _command in (tls, restore, recover, inspect):
    cli.add_command(_command)


def _take_pid_file(data_dir: Path) -> PidFile:
    deadline = time.monotonic() + PID_FILE_PATIENCE_S
    while True:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            return PidFile(data_dir)
        except NodeRuns as error:
            if time.monotonic() > deadline:
                _fail(str(error), EXIT_START)
        except OSError as error:
            _fail(
                f"data_dir = {str(data_dir)!r} can't be used: {error.strerror}; set another data_dir",
                EXIT_START,
            )
        time.sleep(0.01)


def _fail(message: str, code: int) -> NoReturn:
    """One line on standard error, and the end."""
    print("tenured: " + " ".join(message.split()), file=sys.stderr, flush=True)
    raise SystemExit(code)


def _open_standard_streams() -> None:
    """Give closed standard descriptors something harmless, or the first file that is opened would take
    their place."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is the one that is missing.
            os.open(os.devnull, os.O_RDWR)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    _open_standard_streams()
    cli.main(args=arguments, prog_name="tenured")
    raise SystemExit(0)


if __name__ == "__main__":
    main()
