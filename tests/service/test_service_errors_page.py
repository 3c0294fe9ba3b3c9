"""Every code that a caller can meet is explained."""

import re
from pathlib import Path

from tenure_cluster.service.errors import CODES

PAGE = Path(__file__).resolve().parents[2] / "cluster" / "ERRORS.md"


def test_the_page_has_every_code_with_its_status_in_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(code, int(status)) for code, status in rows] == [
        (code, status) for code, (status, _) in CODES.items()
    ]
