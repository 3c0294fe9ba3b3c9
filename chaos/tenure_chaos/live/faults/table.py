"""Writes the table of faults into chaos/LIVE.md: ``python -m tenure_chaos.live.faults.table``."""

from pathlib import Path
from typing import Final

from tenure_chaos.live.faults import KINDS

PAGE: Final = Path(__file__).parents[3] / "LIVE.md"
BEGIN: Final = "<!-- faults:begin -->"
END: Final = "<!-- faults:end -->"


def table() -> str:
    """One row for each kind."""
    rows = [f"| {kind.name} | {kind.what} | {kind.how_healed} |" for kind in KINDS]
    return "\n".join(["| kind | what happens | how it heals |", "|---|---|---|", *rows])


def page(text: str) -> str:
    """The page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
