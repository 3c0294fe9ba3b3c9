"""``tenure tenants``: what each tenant has, and what it may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tenure._cli.base import Duration, Settings, command, common_options, perform
from tenure._cli.console import Console
from tenure._durations import format_ms

if TYPE_CHECKING:
    from tenure.answers import Quota, Tenant

_BOUNDS: Final = {
    "leases_max": ("--leases", "Leases."),
    "sessions_max": ("--sessions", "Sessions."),
    "waiters_max": ("--waiters", "Acquires that wait."),
    "watches_max": ("--watches", "Watches on one node."),
    "records_max": ("--records", "Records."),
    "record_bytes_max": ("--record-bytes", "Bytes of all records together."),
    "operations_per_s": ("--rate", "Operations a second, but for renewals and releases."),
    "ttl_min_ms": ("--ttl-min", "Shortest TTL."),
    "ttl_max_ms": ("--ttl-max", "Longest TTL."),
}


@click.group("tenants", epilog="Each needs the right admin.")
def tenants() -> None:
    """List tenants, and set what they may have."""


tenants.params += common_options()


@command("list", examples="tenure tenants list\ntenure tenants list -o json")
def list_(settings: Settings, console: Console) -> None:
    """List tenants with what they have."""
    found = perform(settings, lambda client: client.tenants())
    if console.output == "json":
        console.json({"tenants": found})
    elif found:
        heads = ["TENANT", "LEASES", "SESSIONS", "WAITERS", "RECORDS", "BYTES", "CREDENTIALS", "QUOTA"]
        console.table(heads, [_row(tenant) for tenant in found])
    else:
        console.note("there are no tenants yet")


def _bounds(function: Any) -> Any:
    for name, (option, said) in reversed(_BOUNDS.items()):
        kind = Duration() if name.startswith("ttl_") else click.IntRange(min=0)
        function = click.option(option, name, type=kind, default=0, help=f"{said} [default: no bound]")(
            function
        )
    return function


@command("set", examples="tenure tenants set build --leases 1000 --rate 200 --ttl-max 10m")
@click.argument("tenant")
@_bounds
def set_(settings: Settings, console: Console, tenant: str, **bounds: int) -> None:
    """Set all that TENANT may have. What is not given has no bound."""
    from tenure.answers import Quota

    quota = Quota(**bounds)
    perform(settings, lambda client: client.set_quota(tenant, quota))
    console.result({"tenant": tenant, "quota": quota}, f"{tenant}: {_quota(quota)}")


@command("reset", examples="tenure tenants reset build")
@click.argument("tenant")
def reset(settings: Settings, console: Console, tenant: str) -> None:
    """Let TENANT have what the nodes' configuration says."""
    perform(settings, lambda client: client.reset_quota(tenant))
    console.result({"tenant": tenant, "quota": None}, f"{tenant}: as configured")


for _command in (list_, set_, reset):
    tenants.add_command(_command)


def _quota(quota: Quota | None) -> str:
    if quota is None:
        return "as configured"
    bounds = [
        f"{option.removeprefix('--')} {format_ms(bound) if name.startswith('ttl_') else bound}"
        for name, (option, _) in _BOUNDS.items()
        if (bound := getattr(quota, name))
    ]
    return ", ".join(bounds) or "no bounds"


def _row(tenant: Tenant) -> list[str]:
    has = (
        tenant.leases,
        tenant.sessions,
        tenant.waiters,
        tenant.records,
        tenant.record_bytes,
        tenant.credentials,
    )
    return [tenant.tenant, *map(str, has), _quota(tenant.quota)]
