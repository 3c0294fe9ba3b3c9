"""The dashboard in front of three real nodes, one of which dies."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_browser import PATIENCE_MS, Complaints
from playwright.sync_api import Browser, Page, expect

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from dev_process import DevProcess

pytestmark = pytest.mark.process
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[DevProcess]:
    with DevProcess(tmp_path / "dev") as running:
        yield running


def state_of(page: Page, node: str) -> str:
    return f"#nodes tr[data-node={node}] td[data-label=State]"


def test_any_node_shows_all_and_tells_which_is_missing(
    dev: DevProcess, browser: Browser, complaints: Complaints
) -> None:
    page = browser.new_page()
    complaints.listen(page)
    page.goto(f"{dev.urls[0]}/ui/")
    health = page.locator("#health")
    expect(health).to_contain_text("All 3 nodes serve · leader n")
    expect(page.locator("#nodes tbody tr")).to_have_count(3)
    for name in ("n1", "n2", "n3"):
        expect(page.locator(state_of(page, name))).to_have_text("serves")
        row = page.locator(f"#nodes tr[data-node={name}]")
        expect(row.locator("td[data-label=Lag]")).to_have_text("0 entries")
        expect(row.locator("td[data-label='Disk free']")).to_contain_text("iB")
    dev.kill("n3")
    expect(health).to_contain_text("n3 is missing, no other may fail")
    expect(health).to_have_attribute("data-level", "warn")
    expect(page.locator(state_of(page, "n3"))).to_have_text("not reached")
    dev.start_by_hand("n3")
    expect(health).to_contain_text("All 3 nodes serve")
    dev.kill("n2")
    dev.kill("n3")
    expect(health).to_have_attribute("data-level", "bad")
    page.close()


def test_a_learner_is_called_one_and_nobody_is_missing(
    dev: DevProcess, browser: Browser, complaints: Complaints
) -> None:
    """One that was added and never comes: it counts in no majority, so all is well but for that."""
    page = browser.new_page()
    complaints.listen(page)
    page.goto(f"{dev.urls[0]}/ui/")
    health = page.locator("#health")
    expect(health).to_contain_text("All 3 nodes serve")
    asked = page.request.post(
        f"{dev.urls[0]}/v1/cluster/members",
        data={"id": "n4", "peer": "127.0.0.1:1", "http": "http://127.0.0.1:2"},
    )
    assert asked.ok, asked.text()
    row = page.locator("#nodes tr[data-node=n4]")
    expect(row.locator("td[data-label=Role]")).to_have_text("learner")
    expect(row.locator("td[data-label=State]")).to_have_text("not reached")
    expect(health).to_contain_text("All 3 nodes serve")
    expect(health).to_contain_text("n4 does not vote yet")
    expect(health).to_have_attribute("data-level", "good")
    assert page.request.delete(f"{dev.urls[0]}/v1/cluster/members/n4").ok
    expect(page.locator("#nodes tbody tr")).to_have_count(3)
    page.close()
