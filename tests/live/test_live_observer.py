"""What nodes of a live run write down of themselves."""

from pathlib import Path

import pytest

from tenure_chaos.live.node.observer import Observer, records


@pytest.mark.parametrize("left", [1, 3, 4, 10])
def test_a_record_that_a_killed_process_has_torn_is_not_read_together_with_the_next(
    tmp_path: Path, left: int
) -> None:
    path = tmp_path / "observed"
    Observer(path, "n1", 1).digest(50, "first")
    whole = path.stat().st_size
    Observer(path, "n1", 2)
    path.write_bytes(path.read_bytes()[: whole + left])
    Observer(path, "n1", 3).digest(100, "second")
    assert [(record["is"], record.get("incarnation", record.get("digest"))) for record in records(path)] == [
        ("start", 1),
        ("digest", "first"),
        ("start", 3),
        ("digest", "second"),
    ]
