"""``tenured restore``, ``recover`` and ``inspect``: what is done with a node that does not run."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
import msgspec

from tenure_cluster.raft.clock import SystemClock

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_START: Final = 3
EXIT_DAMAGED: Final = 4

T = TypeVar("T")

_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the output."
)

_WHAT_IS_LOST: Final = """\
RECOVERY FROM A MINORITY. This node alone does not know what the cluster had acknowledged.
  lost      whatever was acknowledged by a majority that this node was not of: records, commits, credentials
  undone    releases, breaks and revocations that did not come to this node
  executed  calls that this node had in its log and nobody ever acknowledged
Holders are refused and tokens rise, as after every restore. Nodes of the old cluster must never run again."""


@click.command(
    epilog="""\b
Examples:
  tenured restore orders.backup --config n1.toml
  tenured restore orders.backup --config n2.toml --data-dir /var/lib/tenured/n2
\b
Every node of the new cluster is restored from the same file, with the same options, before any of them is
started; cluster/BACKUP.md has the steps. All leases of the backup have ended then, and tokens go on above all
that the old cluster can have issued.
Exit codes: 0 restored; 1 refused; 2 usage or configuration; 3 the directory can't be used; 4 the file is
damaged, cut off or no backup. Nothing is written unless it is 0 or 3."""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="TENURE_CONFIG",
    show_envvar=True,
    help="The node's configuration, by which it will run. Without one all settings come from variables.",
)
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Another data directory than the configuration's."
)
@click.option(
    "--token-floor",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Tokens go on above this too: for a machine whose clock can't be trusted.",
)
@click.option(
    "--restore-id",
    metavar="NAME",
    help="Name of this restore, the same on all nodes: tells its cluster from another one of the same file. "
    "[default: made from the file, the members and the floor]",
)
@click.option(
    "--from-cluster", metavar="ID", help="The backup is of a cluster of another name, and that is meant."
)
@_OUTPUT
def restore(
    file: Path,
    config_path: Path | None,
    data_dir: Path | None,
    token_floor: int,
    restore_id: str | None,
    from_cluster: str | None,
    output: str,
) -> None:
    """Make a node's data directory from a backup, for a new cluster."""
    from tenure_cluster import restoring
    from tenure_cluster.config import ConfigError, load
    from tenure_cluster.raft.origin_file import FORM

    if restore_id is not None and not FORM.fullmatch(restore_id):
        fail("--restore-id: 1 to 32 letters, digits, '-', '_' and '.'", EXIT_USAGE)
    try:
        more = {} if data_dir is None else {"TENURE_DATA_DIR": str(data_dir.absolute())}
        config = load(config_path, {**os.environ, **more})
    except ConfigError as error:
        fail(f"{error}{'; or name a file by --config' if config_path is None else ''}", EXIT_USAGE)
    done = _do(
        lambda: restoring.restore(
            file,
            config,
            token_floor=token_floor,
            restore_id=restore_id,
            from_cluster=from_cluster,
            now_ms=SystemClock().wall_ms(),
        )
    )
    header = done.header
    told = {
        "node": config.node_id,
        "data_dir": str(config.data_dir),
        "known_as": done.known_as,
        "members": sorted(config.members),
        "index": header.index,
        "term": header.term,
        "made_at": _time(header.made_wall_ms),
        "leases_ended": done.restoration.leases_ended,
        "records": done.records,
        "credentials": done.credentials,
        "token_base": done.restoration.token_base,
    }
    if output == "json":
        _json(told)
        return
    click.echo(f"restored {config.node_id} in {config.data_dir}, at entry {header.index}")
    _fields(
        {
            "backup made": f"{told['made_at']}, by {header.node_id} of {header.cluster_id}",
            "new cluster": f"{done.known_as}, of {', '.join(sorted(config.members))}",
            "leases ended": done.restoration.leases_ended,
            "kept": f"{done.records} records, {done.credentials} credentials",
            "tokens": f"above {done.restoration.token_base}, and above the clock when the cluster begins",
        }
    )
    others = [name for name in sorted(config.members) if name != config.node_id]
    if others:
        click.echo(f"Restore {' and '.join(others)} from the same file, then start all of them.")


@click.command(
    epilog="""\b
Examples:
  tenured recover /var/lib/tenured/n2 --to orders.backup --i-accept-data-loss
\b
Only for a cluster whose majority is gone for good. Of several nodes that are left take the one with the
greatest last term and, of the same term, the greatest last entry: tenured inspect says them. What it makes is
a backup; go on with tenured restore on every node of the new cluster."""
)
@click.argument("data_dir", type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), required=True, help="The backup to make; a new file.")
@click.option("--i-accept-data-loss", "accepted", is_flag=True, help="Say that you have read what is lost.")
def recover(data_dir: Path, to: Path, accepted: bool) -> None:
    """Make a backup of what one node of a lost cluster holds. Loses what only the others held."""
    from tenure_cluster import inspection, restoring

    click.echo(_WHAT_IS_LOST, err=True)
    if not accepted:
        fail("nothing was done: add --i-accept-data-loss if the majority can't be brought back", EXIT_USAGE)
    contents = _do(lambda: inspection.read_stopped(data_dir))
    header = _do(lambda: restoring.recover(contents, to, now_ms=SystemClock().wall_ms()))
    click.echo(f"{to}: the state of {header.node_id} at entry {header.index} of term {header.term}")
    click.echo("Now, on every node of the new cluster: tenured restore FILE --config FILE")


@click.command(
    epilog="""\b
Examples:
  tenured inspect /var/lib/tenured/n1
  tenured inspect /var/lib/tenured/n1 --log 20
  tenured inspect /var/lib/tenured/n1 -o json | jq .log.last_index
\b
Nothing in the directory is changed. The state is told as of the last entry of the log, committed or not."""
)
@click.argument("data_dir", metavar="DATA-DIR", type=click.Path(path_type=Path))
@click.option(
    "--log", "entries", type=click.IntRange(0), default=0, metavar="N", help="Show the last N entries."
)
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@_OUTPUT
def inspect(data_dir: Path, entries: int, as_json: bool, output: str) -> None:
    """Tell what a stopped node's data directory holds: log, snapshot and state."""
    from tenure_cluster import inspection

    contents = _do(lambda: inspection.read_stopped(data_dir))
    told = _do(lambda: inspection.described(contents, entries))
    if as_json or output == "json":
        _json(told)
        return
    click.echo(f"{told['node']} of cluster {told['cluster']}, in {told['directory']}")
    for title in ("log", "snapshot", "state"):
        click.echo(f"{title}")
        _fields(told[title] or {"none": "there is no snapshot"})
    for entry in told["entries"]:
        click.echo(f"{entry['index']:>10}  term {entry['term']}  {', '.join(entry['commands']) or 'no-op'}")


def _do(action: Callable[[], T]) -> T:
    from tenure_cluster import inspection, restoring
    from tenure_cluster.lease.snapshot import SnapshotDamaged as StateDamaged
    from tenure_cluster.raft.log import InconsistentLog
    from tenure_cluster.raft.members_file import MembersDiffer
    from tenure_cluster.raft.origin_file import OriginDamaged
    from tenure_cluster.raft.segment import JournalDamaged
    from tenure_cluster.raft.snapshot_format import SnapshotDamaged
    from tenure_cluster.service.backup_format import BackupDamaged

    try:
        return action()
    except (restoring.RestoreRefused, inspection.NothingThere, inspection.NodeRunning) as error:
        fail(str(error), EXIT_REFUSED)
    except (BackupDamaged, JournalDamaged, SnapshotDamaged, StateDamaged) as error:
        fail(str(error), EXIT_DAMAGED)
    except (InconsistentLog, MembersDiffer, OriginDamaged) as error:
        fail(str(error), EXIT_DAMAGED)
    except msgspec.DecodeError as error:
        fail(
            f"an entry of the log can't be read by this version ({error}): use the program that the node ran "
            "last",
            EXIT_DAMAGED,
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        fail(f"{error.filename or 'the directory'}: {reason}", EXIT_START)


def _json(document: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _fields(fields: dict[str, Any]) -> None:
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"  {name.replace('_', ' '):<{width}}  {value}")


def _time(wall_ms: int) -> str:
    from tenure_cluster.service.answers import rfc3339

    return rfc3339(wall_ms)


def fail(message: str, code: int) -> NoReturn:
    """One line on standard error, and the end."""
    click.echo("tenured: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(code)
