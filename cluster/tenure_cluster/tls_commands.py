"""``tenured tls``: makes and renews the certificates of a cluster."""

import datetime as dt
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import click

DAYS_DEFAULT: Final = 365
CA_DAYS_DEFAULT: Final = 3_650
EXIT_USAGE: Final = 2
EXIT_START: Final = 3

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
_DAYS = click.option(
    "--days",
    type=click.IntRange(1, 36_500),
    default=DAYS_DEFAULT,
    show_default=True,
    help="How long the certificates are valid; never longer than their authority.",
)
_CA_DAYS = click.option(
    "--ca-days",
    type=click.IntRange(1, 36_500),
    default=CA_DAYS_DEFAULT,
    show_default=True,
    help="How long the authority is valid.",
)


def _nodes(which: str) -> Callable[[F], F]:
    return click.option(
        "--node",
        "nodes",
        multiple=True,
        required=True,
        metavar="ID=HOST,…",
        help=f"{which}, and the names and addresses at which clients reach it. Once for each node.",
    )


@click.group(context_settings=HELP)
def tls() -> None:
    """Make and renew the certificates of a cluster."""


@tls.command(
    epilog="""\b
Examples:
  tenured tls init certs --node n1=10.0.0.1 --node n2=10.0.0.2 --node n3=10.0.0.3,n3.example.org
\b
Keep DIR/ca.key off the nodes. Node n1 gets the directory DIR/n1; clients get DIR/ca.pem."""
)
@_DIRECTORY
@_nodes("A node")
@_DAYS
@_CA_DAYS
def init(directory: Path, nodes: tuple[str, ...], days: int, ca_days: int) -> None:
    """Make an authority in DIR, and a certificate for every node. Nothing is overwritten."""
    from tenure_cluster.auth import tls_files

    parsed = _parsed(nodes)
    _do(
        lambda: tls_files.init(
            directory,
            parsed,
            lifetime=dt.timedelta(days=days),
            ca_lifetime=dt.timedelta(days=ca_days),
            now=_now(),
        )
    )
    shown = directory.absolute()
    first = next(iter(parsed))
    click.echo(f"{shown}: an authority, and certificates for {', '.join(parsed)}, valid for {days} days.")
    click.echo(f"Keep ca.key off the nodes. Each gets its own directory; in the configuration of {first}:")
    click.echo()
    click.echo("  [tls]")
    for setting, name in (("cert", tls_files.CERT), ("key", tls_files.KEY), ("ca", tls_files.CA)):
        click.echo(f'  {setting} = "{shown / first / name}"')
    click.echo()
    click.echo(f"Clients trust {shown / tls_files.CA}, and look for the nodes at https:// URLs.")


@tls.command(
    epilog="""\b
Examples:
  tenured tls add certs --node n4=10.0.0.4
\b
Node n4 gets the directory DIR/n4; what the others have stays as it is."""
)
@_DIRECTORY
@_nodes("A node that is new")
@_DAYS
def add(directory: Path, nodes: tuple[str, ...], days: int) -> None:
    """Issue certificates for further nodes, by the authority in DIR."""
    from tenure_cluster.auth import tls_files

    parsed = _parsed(nodes)
    _do(lambda: tls_files.add(directory, parsed, lifetime=dt.timedelta(days=days), now=_now()))
    click.echo(f"{directory.absolute()}: certificates for {', '.join(parsed)}, valid for {days} days.")


@tls.command(
    epilog="""\b
Examples:
  tenured tls renew certs
  tenured tls renew certs --node n2 --days 90
  tenured tls renew certs --node n3=10.0.0.7
\b
Copy DIR/n1 to node n1 again, and so on: a running node takes up the new files by itself."""
)
@_DIRECTORY
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="ID[=HOST,…]",
    help="Only this node, for other hosts if they are named; may be repeated.",
)
@_DAYS
def renew(directory: Path, nodes: tuple[str, ...], days: int) -> None:
    """Issue the nodes in DIR new certificates and keys, for the same hosts."""
    from tenure_cluster.auth import tls_files

    moved = _parsed([node for node in nodes if "=" in node])
    only = [node for node in nodes if "=" not in node]
    lifetime = dt.timedelta(days=days)
    done = _do(lambda: tls_files.renew(directory, only, moved=moved, lifetime=lifetime, now=_now()))
    click.echo(f"{directory.absolute()}: new certificates for {', '.join(done)}, valid for {days} days.")


@tls.command(
    "new-ca",
    epilog="""\b
The authority is changed in three steps, and after each the nodes' directories are copied to the nodes, and
ca.pem to the clients; all the while the cluster serves:
  tenured tls new-ca certs        everybody trusts the old and the new one
  tenured tls renew certs         the nodes show certificates of the new one
  tenured tls drop-old-ca certs   nobody trusts the old one""",
)
@_DIRECTORY
@_CA_DAYS
def new_ca(directory: Path, ca_days: int) -> None:
    """Make another authority in DIR, beside the present one."""
    from tenure_cluster.auth import tls_files

    _do(lambda: tls_files.new_ca(directory, ca_lifetime=dt.timedelta(days=ca_days), now=_now()))
    click.echo(
        f"{directory.absolute()}: a new authority, which every ca.pem has beside the old one. Give it to all "
        "nodes and clients, then: tenured tls renew"
    )


@tls.command("drop-old-ca")
@_DIRECTORY
def drop_old_ca(directory: Path) -> None:
    """Leave only the newest authority in DIR, when every node's certificate is of it."""
    from tenure_cluster.auth import tls_files

    dropped = _do(lambda: tls_files.drop_old_ca(directory))
    click.echo(f"{directory.absolute()}: {dropped} older authorities dropped from every ca.pem.")


def _parsed(nodes: Sequence[str]) -> dict[str, list[str]]:
    from tenure_cluster.auth import authority

    try:
        return authority.parse_nodes(nodes)
    except authority.AuthorityError as error:
        _fail(f"--node: {error}", EXIT_USAGE)


def _do(action: Callable[[], T]) -> T:
    from tenure_cluster.auth.authority import AuthorityError

    try:
        return action()
    except AuthorityError as error:
        _fail(str(error), EXIT_START)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _fail(message: str, code: int) -> NoReturn:
    click.echo("tenured: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(code)
