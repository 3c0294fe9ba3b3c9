"""deploy/SETTINGS.md as the settings' own docstrings make it.

`python tests/deploy/deploy_settings_page.py` writes this page and METRICS.md anew, from the top of the
repository.
"""

import ast
import inspect
from pathlib import Path
from typing import Any

import msgspec

from tenure_cluster import settings
from tenure_cluster.config import SECTIONS, TOP_SETTINGS
from tenure_cluster.raft import types as raft_types
from tenure_cluster.raft.types import RaftOptions
from tenure_cluster.settings import Config, Member

HEAD = """\
# Settings

A node reads a TOML file (`tenured run --config FILE`) and `TENURE_*` variables, which win: `http.listen` is
`TENURE_HTTP_LISTEN`. A setting that does not exist is refused, with the nearest that does. The members as a
whole are one variable: `TENURE_MEMBERS="n1=10.0.0.1:7701@http://10.0.0.1:7601,n2=…"`.

Bounds between settings are checked at start; the line of the error has both numbers.
"""


def page() -> str:
    parts = [HEAD, "\n## The node\n\n", _table(Config, TOP_SETTINGS, "")]
    for name, shape in SECTIONS.items():
        said = " ".join((inspect.getdoc(shape) or "").split()).partition(": ")[2]
        title = said or "Every bound and timer of consensus."
        parts.append(f"\n## [{name}]\n\n{title[0].upper()}{title[1:]}\n\n")
        parts.append(_table(shape, shape.__struct_fields__, f"{name}."))
    parts.append("\n## [members.ID]\n\nOne node of the cluster as the others and the clients reach it.\n\n")
    parts.append(_table(Member, Member.__struct_fields__, "members.ID.", variables=False))
    return "".join(parts)


def documented(shape: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring of every field."""
    module = raft_types if shape is RaftOptions else settings
    [made] = [
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == shape.__name__
    ]
    found = {}
    for field, after in zip(made.body, made.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and after.value.value
            found[field.target.id] = " ".join(said.split()) if isinstance(said, str) else ""
    return found


def _table(
    shape: type[msgspec.Struct], names: tuple[str, ...], prefix: str, *, variables: bool = True
) -> str:
    said = documented(shape)
    fields = {field.name: field for field in msgspec.structs.fields(shape)}
    lines = ["| setting | variable | default | meaning |\n|---|---|---|---|\n"]
    for name in names:
        variable = f"`TENURE_{(prefix + name).upper().replace('.', '_')}`" if variables else ""
        meaning = said.get(name, "").replace("|", "\\|")
        lines.append(f"| `{prefix}{name}` | {variable} | {_default(fields[name])} | {meaning} |\n")
    return "".join(lines)


def _default(field: Any) -> str:
    if field.required:
        return "must be set"
    value = field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, int) else f'`"{value}"`'


if __name__ == "__main__":
    import deploy_metrics_page

    deploy = Path(__file__).resolve().parents[2] / "deploy"
    (deploy / "SETTINGS.md").write_text(page(), encoding="utf-8")
    (deploy / "METRICS.md").write_text(deploy_metrics_page.page(), encoding="utf-8")
