"""``tenure-chaos proxy``: proxies before a cluster that runs, and faults for it by command line and HTTP."""

import asyncio
import http.client
import json
import logging
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tenure_chaos.live.attached import NotACluster, load
from tenure_chaos.live.attached_cluster import NOT_DONE, Api, attached_cluster
from tenure_chaos.live.chaos import ChaosError
from tenure_chaos.live.orders import FAULTS
from tenure_chaos.live.proxies.serving import Choice, NoServer

API_DEFAULT = "http://127.0.0.1:7800"
TIMEOUT_S = 60.0

api_option = click.option(
    "--api", default=API_DEFAULT, show_default=True, envvar="TENURE_CHAOS_API", help="URL of `proxy serve`."
)


@click.group()
def proxy() -> None:
    """Put proxies before a running cluster, and strike it while your own clients work."""


@proxy.command(
    epilog="""\b
FILE is the cluster.json of `tenured dev`, or TOML that names any service's nodes:
  [nodes.n1]
  http = "127.0.0.1:2379"
  peer = "127.0.0.1:2380"     optional, for faults between the nodes
  pid = 17                    optional, to pause it
  start = ["etcd", "…"]       optional, to kill it and start it again"""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--first-port", type=click.IntRange(1, 65_000), help="Of the lines; by default free ones.")
@click.option("--api-port", type=click.IntRange(1, 65_535), default=7800, show_default=True)
@click.option("--proxies", type=click.Choice(["any", "real", "standin"]), default="any", show_default=True)
@click.option("--log", type=click.Path(path_type=Path), default=Path("proxies.log"), show_default=True)
def serve(file: Path, first_port: int | None, api_port: int, proxies: Choice, log: Path) -> None:
    """Make the proxies, say where they are, and take orders until Ctrl-C. Everything is healed at the end."""
    logging.disable(logging.CRITICAL)
    try:
        nodes = load(file)
        with attached_cluster(nodes, log, first_port=first_port, proxies=proxies) as parts:
            chaos, network, serving = parts
            click.echo(f"through {serving.what}")
            click.echo(f"clients go to {chaos.endpoints}")
            for line, address in network.addresses().items():
                a, _, b = line.partition(">")
                if a in chaos.nodes:
                    click.echo(f"{a} must dial {b} at {address}")
            if unnamed := [node.name for node in nodes if not node.peer]:
                click.echo(f"no lines between the nodes: {file} names no peer of {', '.join(unnamed)}")
            click.echo(f"orders: http://127.0.0.1:{api_port}")
            try:
                asyncio.run(Api(chaos, network).serve(api_port))
            except OSError as error:
                why = f"port {api_port} can't be had for orders ({error.strerror})"
                raise ChaosError(f"{why}: choose another by --api-port") from error
    except (NotACluster, NoServer, *NOT_DONE) as error:
        click.echo(f"tenure-chaos proxy: {error}", err=True)
        sys.exit(2)


@proxy.command(
    epilog="""\b
Examples:
  tenure-chaos proxy strike partition n1             n1 | all others
  tenure-chaos proxy strike partition n1,n2 n3
  tenure-chaos proxy strike cut n1 n2                what n1 sends does not reach n2
  tenure-chaos proxy strike 'lose replies' n1 --for 5
  tenure-chaos proxy strike slow --set latency_ms=300
  tenure-chaos proxy strike 'kill leader' --for 3"""
)
@click.argument("fault", type=click.Choice(list(FAULTS)))
@click.argument("nodes", nargs=-1)
@click.option("--for", "for_s", type=click.FloatRange(0.0), help="Heal it after so many seconds.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE")
@api_option
def strike(fault: str, nodes: Sequence[str], for_s: float | None, settings: Sequence[str], api: str) -> None:
    """Begin a fault; it stays until it is healed."""
    if wrong := [setting for setting in settings if "=" not in setting]:
        raise click.UsageError(f"--set takes NAME=VALUE, as latency_ms=300; not {wrong[0]!r}")
    asked: dict[str, Any] = {"fault": fault, **dict(setting.split("=", 1) for setting in settings)}
    if fault == "partition":
        if not nodes:
            raise click.UsageError("partition takes groups of nodes, as `n1` or `n1,n2 n3`")
        asked["groups"] = [group.split(",") for group in nodes]
    elif fault == "cut":
        if len(nodes) != 2:
            raise click.UsageError(f"cut takes two nodes, from and to; not {len(nodes)}")
        asked["from"], asked["to"] = nodes
    elif nodes:
        asked["nodes"] = list(nodes)
    begun = _ask(api, "POST", "/strikes", asked)
    click.echo(f"{begun['id']}: {begun['what']}")
    if "warning" in begun:
        click.echo(f"warning: {begun['warning']}", err=True)
    if for_s is not None:
        try:
            time.sleep(for_s)
        finally:
            # Somebody may have healed all of them meanwhile.
            _ask(api, "DELETE", f"/strikes/{begun['id']}", gone_is_well=True)
            click.echo("healed")


@proxy.command()
@click.argument("strike_id", required=False)
@api_option
def heal(strike_id: str | None, api: str) -> None:
    """Heal one strike, or all."""
    if strike_id is None:
        _ask(api, "POST", "/heal")
    else:
        _ask(api, "DELETE", f"/strikes/{strike_id}")
    click.echo("healed")


@proxy.command()
@api_option
def show(api: str) -> None:
    """Nodes, lines, and what is on."""
    click.echo(json.dumps(_ask(api, "GET", "/"), indent=1))


def _ask(
    api: str, method: str, path: str, body: dict[str, Any] | None = None, *, gone_is_well: bool = False
) -> dict[str, Any]:
    """The answer; an error is said, and ends the program."""
    try:
        request = urllib.request.Request(
            api.rstrip("/") + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            said: dict[str, Any] = json.load(answer)
            return said
    except urllib.error.HTTPError as error:
        if gone_is_well and error.code == 404:
            return {}
        said_so = error.read().decode(errors="replace")
        try:
            said_so = json.loads(said_so)["error"]
        except (ValueError, KeyError, TypeError):
            said_so = f"{api} answered {error.code}: {said_so.strip()}; is that `tenure-chaos proxy serve`?"
        click.echo(f"tenure-chaos proxy: {said_so}", err=True)
        sys.exit(1)
    except (ValueError, http.client.HTTPException) as error:
        click.echo(f"tenure-chaos proxy: {api}: {error}; is that `tenure-chaos proxy serve`?", err=True)
        sys.exit(2)
    except OSError as error:
        click.echo(f"tenure-chaos proxy: {api}: {error}; is `tenure-chaos proxy serve` running?", err=True)
        sys.exit(2)
