"""Makes the pictures of deploy/DASHBOARD.md: python tests/dashboard/screenshots.py

Three real nodes, leases of made-up agents, and Chromium as in the tests.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from dashboard_browser import PATIENCE_MS, acquired, asked, post, running_browser, waiting
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from dev_process import DevProcess  # noqa: E402 -- from another folder of tests

PICTURES = ROOT / "deploy" / "dashboard"
KEY = "payment/security/42"


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, DevProcess(Path(directory) / "dev") as dev:
        port = int(dev.urls[0].rpartition(":")[2])
        leases(port)
        with waiting(port, KEY, "agent-b", "agent-c"), running_browser() as browser:
            expect.set_options(timeout=PATIENCE_MS)
            take(browser, dev.urls[0], "overview", "light", (1000, 700))
            take(browser, dev.urls[0], "overview-dark", "dark", (1000, 700))
            take(browser, dev.urls[0], "lease", "light", (1000, 860), KEY)
            take(browser, dev.urls[0], "narrow", "dark", (360, 640))


def leases(port: int) -> None:
    stale = acquired(port, "report/nightly", owner="worker-3")
    post(port, "/v1/break", key="report/nightly", reason="worker-3's machine is gone")
    held = acquired(port, KEY, "agent-a", 60_000, metadata={"workflow": "w-7", "reviewer": "security"})
    post(port, "/v1/renew", lease_id=held["lease_id"], progress={"step": "review", "counter": 3})
    acquired(port, "migration/0042", "deployer", 300_000)
    acquired(port, "report/nightly", "worker-5", 120_000)
    for slot, owner in enumerate(("trainer-1", "trainer-2")):
        acquired(port, "gpu", owner, 90_000 + 30_000 * slot, mode="permit", slots=4)
    acquired(port, "document/9", "reader-1", 240_000, mode="shared")
    fields = {"key": "report/nightly", "lease_id": stale["lease_id"], "token": stale["token"]}
    status, _ = asked(port, "/v1/commit", mode="current", value="late", **fields)
    assert status == 412  # the refused commit of the picture


def take(
    browser: Browser, url: str, name: str, scheme: Any, size: tuple[int, int], key: str | None = None
) -> None:
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
    )
    page.goto(f"{url}/ui/" + (f"#/lease/{key.replace('/', '%2F')}" if key else ""))
    expect(page.locator("#health")).to_contain_text("live")
    expect(page.locator("#nodes tbody tr")).to_have_count(3)
    expect(page.locator("#queue tbody tr" if key else "#leases tbody tr")).to_have_count(2 if key else 6)
    page.screenshot(path=PICTURES / f"{name}.png")
    page.close()


if __name__ == "__main__":
    main()
