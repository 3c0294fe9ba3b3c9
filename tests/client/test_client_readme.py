"""What the README shows of the client, as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"

BEFORE = """
import sqlite3, types
connection = sqlite3.connect(":memory:")
connection.execute("BEGIN")
held = types.SimpleNamespace(key="account/7", token=7)
"""
AFTER = """
print(guard.fence(connection, "account/7").floor)
"""


def test_the_guard_of_the_readme_guards_in_a_program_that_has_nothing_else() -> None:
    [shown] = [
        code
        for code in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
        if "SqlGuard" in code
    ]
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + shown + AFTER], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("7\n", "")
