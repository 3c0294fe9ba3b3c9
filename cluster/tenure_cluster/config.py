"""Where the settings come from: a TOML file and `TENURE_*` variables, which win.

`http.listen` is `TENURE_HTTP_LISTEN`, `node_id` is `TENURE_NODE_ID`, and the members as a whole are
`TENURE_MEMBERS="n1=127.0.0.1:7701@http://127.0.0.1:7601,n2=…"`. A setting that does not exist is refused with
the nearest that does.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure_cluster.addresses import is_loopback, split_address
from tenure_cluster.raft.types import RaftOptions
from tenure_cluster.settings import (
    Admission,
    Audit,
    Auth,
    Calls,
    Config,
    ConfigError,
    Http,
    Jwt,
    Leases,
    Log,
    Member,
    Metrics,
    Peer,
    Quotas,
    Tls,
    Tracing,
    Watch,
)

__all__ = ["Config", "ConfigError", "Member", "is_loopback", "load", "split_address", "to_toml"]

FOREIGN_VARIABLES: Final = frozenset(
    {
        "TENURE_CA_FILE",
        "TENURE_CERT_FILE",
        "TENURE_CONFIG",
        "TENURE_CREDENTIAL",
        "TENURE_CREDENTIAL_FILE",
        "TENURE_ENDPOINTS",
        "TENURE_FAULTS",
        "TENURE_KEY",
        "TENURE_KEY_FILE",
        "TENURE_LEASE_ID",
        "TENURE_SLOT",
        "TENURE_TOKEN",
        "TENURE_TOKENS",
    }
)
"""Variables of the client, of the commands it runs and of fault points: no settings, and no mistakes
either."""

FOREIGN_PREFIXES: Final = ("TENURE_BENCH_", "TENURE_CHAOS_", "TENURE_TEST_")
"""Variables of the project's own tools."""


SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "http": Http,
    "peer": Peer,
    "tls": Tls,
    "auth": Auth,
    "jwt": Jwt,
    "raft": RaftOptions,
    "leases": Leases,
    "calls": Calls,
    "admission": Admission,
    "quotas": Quotas,
    "audit": Audit,
    "watch": Watch,
    "metrics": Metrics,
    "tracing": Tracing,
    "log": Log,
}
"""Every section of plain settings; [members] is a table of tables beside them."""

TOP_SETTINGS: Final = ("cluster_id", "node_id", "data_dir", "durability", "insecure", "join")


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Read the file (None: variables alone), lay the variables over it, complete and validate it.

    Raises ConfigError. `data_dir` of the result is absolute.
    """
    raw = _read_file(path) if path is not None else {}
    _refuse_unknown(raw)
    for variable, (section, name) in _variables(environ).items():
        text = environ[variable]
        if section is None and name == "members":
            raw["members"] = _parse_members(text)
            continue
        target = raw if section is None else raw.setdefault(section, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{section} must be a table of settings")
        target[name] = _parse_variable(variable, text, Config if section is None else SECTIONS[section], name)
    for required in ("cluster_id", "node_id"):
        if required not in raw:
            raise ConfigError(
                f"{required} is missing (setting {required}, variable TENURE_{required.upper()})"
            )
    try:
        config = msgspec.convert(raw, Config, dec_hook=_as_path)
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error))) from None
    config = _completed(config, path.parent if path is not None else Path.cwd())
    config.validate()
    return config


def to_toml(config: Config) -> str:
    """The configuration as a file: of the sections only what differs from the defaults."""
    lines = [f"{name} = {_toml_value(getattr(config, name))}" for name in TOP_SETTINGS]
    for section, shape in SECTIONS.items():
        value = getattr(config, section)
        plain = shape()
        changed = [
            f"{name} = {_toml_value(getattr(value, name))}"
            for name in shape.__struct_fields__
            if getattr(value, name) != getattr(plain, name)
        ]
        if changed:
            lines += ["", f"[{section}]", *changed]
    for member_id, member in config.members.items():
        lines += [
            "",
            f"[members.{_toml_key(member_id)}]",
            f"peer = {_toml_value(member.peer)}",
            f"http = {_toml_value(member.http)}",
        ]
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    # A TOML basic string is a JSON string, except that DEL must be escaped in it as well.
    return msgspec.json.encode(str(value)).decode().replace("\x7f", "\\u007f")


def _toml_key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _toml_value(name)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {os.strerror(error.errno) if error.errno else error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _refuse_unknown(raw: Mapping[str, Any]) -> None:
    known_top = [*TOP_SETTINGS, *SECTIONS, "members"]
    for name, value in raw.items():
        if name not in known_top:
            raise ConfigError(f"unknown setting {name}{_hint(name, known_top)}")
        shape = SECTIONS.get(name)
        if shape is not None and isinstance(value, dict):
            for inner in value:
                if inner not in shape.__struct_fields__:
                    raise ConfigError(
                        f"unknown setting {name}.{inner}{_hint(inner, shape.__struct_fields__, name)}"
                    )
    members = raw.get("members")
    for member_id, value in members.items() if isinstance(members, dict) else ():
        for inner in value if isinstance(value, dict) else ():
            if inner not in Member.__struct_fields__:
                where = f"members.{member_id}"
                raise ConfigError(
                    f"unknown setting {where}.{inner}{_hint(inner, Member.__struct_fields__, where)}"
                )


def _hint(name: str, known: list[str] | tuple[str, ...], section: str = "") -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {section + '.' if section else ''}{near[0]}?" if near else ""


def _variables(environ: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Which setting each TENURE_* variable of the environment is. Raises ConfigError for one that is none."""
    known: dict[str, tuple[str | None, str]] = {
        f"TENURE_{name.upper()}": (None, name) for name in TOP_SETTINGS
    }
    known["TENURE_MEMBERS"] = (None, "members")
    for section, shape in SECTIONS.items():
        for name in shape.__struct_fields__:
            known[f"TENURE_{section.upper()}_{name.upper()}"] = (section, name)
    found = {}
    for variable in sorted(environ):
        if not variable.startswith("TENURE_") or variable in FOREIGN_VARIABLES:
            continue
        if variable.startswith(FOREIGN_PREFIXES):
            continue
        if variable not in known:
            raise ConfigError(f"unknown variable {variable}{_hint(variable, list(known))}")
        found[variable] = known[variable]
    return found


def _parse_variable(variable: str, text: str, shape: type[msgspec.Struct], name: str) -> Any:
    kind = next(field.type for field in msgspec.structs.fields(shape) if field.name == name)
    try:
        return text if kind is Path else msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{variable}={text!r}: {_readable(str(error))}") from None


def _parse_members(text: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for item in text.split(","):
        member_id, equals, rest = item.strip().partition("=")
        peer, at, http = rest.partition("@")
        if not (equals and at and member_id and peer and http):
            raise ConfigError(f"TENURE_MEMBERS: {item.strip()!r} is not ID=HOST:PORT@URL")
        if member_id in members:
            raise ConfigError(f"TENURE_MEMBERS names {member_id} twice")
        members[member_id] = {"peer": peer, "http": http}
    return members


def _readable(message: str) -> str:
    """msgspec's sentence with the path in front, as settings are written here."""
    fault, marker, path = message.rpartition(" - at `$.")
    return f"{path.rstrip('`')}: {fault[:1].lower()}{fault[1:]}" if marker else message


def _as_path(kind: type, value: Any) -> Any:
    if kind is not Path or not isinstance(value, str) or not value or "\0" in value:
        raise TypeError("expected the path of a directory")
    return Path(value)


def _completed(config: Config, base: Path) -> Config:
    """Fill in what follows from the rest: absolute paths, the advertised addresses, a cluster of one."""
    own = config.members.get(config.node_id)
    scheme = "https" if config.tls.on else "http"
    http = config.http.advertise or (own.http if own else f"{scheme}://{config.http.listen}")
    peer = config.peer.advertise or (own.peer if own else config.peer.listen)
    http = http.rstrip("/")
    return msgspec.structs.replace(
        config,
        data_dir=(base / config.data_dir).absolute(),
        tls=msgspec.structs.replace(
            config.tls,
            **{
                name: str((base / path).absolute())
                for name in ("cert", "key", "ca", "client_ca")
                if (path := getattr(config.tls, name))
            },
        ),
        jwt=msgspec.structs.replace(
            config.jwt, keys=str((base / config.jwt.keys).absolute()) if config.jwt.keys else ""
        ),
        http=msgspec.structs.replace(config.http, advertise=http),
        peer=msgspec.structs.replace(config.peer, advertise=peer),
        members=config.members or {config.node_id: Member(peer=peer, http=http)},
    )
