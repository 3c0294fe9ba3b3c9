"""The dashboard as somebody uses it: in Chromium, in front of a node that really grants leases."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from api_node import RunningNode
from dashboard_browser import PATIENCE_MS, Complaints, acquired, asked, post, waiting
from playwright.sync_api import Locator, Page, Request, Route, expect

from tenure._cli import top_view

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client"))

from top_cases import HEALTH, nodes

expect.set_options(timeout=PATIENCE_MS)


def row(page: Page, key: str) -> Locator:
    return page.locator("#leases tbody tr").filter(has=page.get_by_role("link", name=key, exact=True))


def opened(page: Page, path: str = "/ui/") -> None:
    """Go there, and wait until events come in."""
    page.goto(path)
    expect(page.locator("#health")).to_contain_text("live")


def test_health_and_nodes_are_told(page: Page, node: RunningNode) -> None:
    opened(page)
    expect(page.locator("#health")).to_have_attribute("data-level", "good")
    expect(page.locator("#health")).to_contain_text("The node serves · leader n1, term")
    cells = page.locator("#nodes tbody tr").first
    expect(cells).to_contain_text("leader")
    expect(cells).to_contain_text("0 entries")
    expect(cells).to_contain_text("iB")
    expect(cells).to_contain_text("serves")


def test_a_lease_appears_when_it_is_granted_and_goes_when_it_ends(page: Page, node: RunningNode) -> None:
    opened(page)
    expect(row(page, "live/1")).to_have_count(0)
    lease = acquired(node.port, "live/1", owner="agent-a")
    expect(row(page, "live/1")).to_contain_text("agent-a")
    expect(row(page, "live/1").locator("td").nth(1)).to_have_text(str(lease["token"]))
    bar = row(page, "live/1").locator("progress")
    assert 0 < float(bar.evaluate("bar => bar.value")) <= float(bar.evaluate("bar => bar.max")) == 60_000
    post(node.port, "/v1/release", lease_id=lease["lease_id"])
    expect(row(page, "live/1")).to_have_count(0)


def test_what_expires_first_stands_first(page: Page, node: RunningNode) -> None:
    for key, ttl_ms in (("order/long", 500_000), ("order/short", 300_000), ("order/middle", 400_000)):
        acquired(node.port, key, ttl_ms=ttl_ms)
    opened(page)
    page.get_by_label("Keys that begin with").fill("order/")
    expect(page.locator("#leases tbody th")).to_have_text(["order/short", "order/middle", "order/long"])


def test_a_renewal_begins_the_time_anew(page: Page, node: RunningNode) -> None:
    lease = acquired(node.port, "renewed/1", ttl_ms=60_000)
    opened(page)
    bar = row(page, "renewed/1").locator("progress").element_handle()
    page.wait_for_function("bar => bar.value < 57_000", arg=bar)
    before = bar.evaluate("bar => bar.value")
    post(node.port, "/v1/renew", lease_id=lease["lease_id"])
    page.wait_for_function("([bar, before]) => bar.value > before", arg=[bar, before])


def test_a_renewal_with_another_ttl_shows_it(page: Page, node: RunningNode) -> None:
    lease = acquired(node.port, "renewed/2", ttl_ms=60_000)
    opened(page)
    bar = row(page, "renewed/2").locator("progress").element_handle()
    post(node.port, "/v1/renew", lease_id=lease["lease_id"], ttl_ms=600_000)
    page.wait_for_function("bar => bar.max === 600_000 && bar.value > 100_000", arg=bar)


def test_a_lease_has_its_page_with_queue_and_history(page: Page, node: RunningNode) -> None:
    key = "page/ü & <b>42</b>/#1"
    lease = acquired(node.port, key, metadata={"workflow": "<img src=x onerror=alert(1)>"})
    with waiting(node.port, key, "agent-b"):
        opened(page)
        expect(row(page, key).locator("td").nth(2)).to_have_text("1")
        row(page, key).get_by_role("link").click()
        expect(page.get_by_role("heading", level=2, name=key, exact=True)).to_be_focused()
        expect(page.locator("#holders")).to_contain_text("<img src=x onerror=alert(1)>")
        expect(page.locator("#queue tbody tr")).to_contain_text("agent-b")
        expect(page.locator("#history tbody tr").last).to_contain_text("granted")
        post(node.port, "/v1/release", lease_id=lease["lease_id"])
        expect(page.locator("#holders")).to_contain_text("agent-b")
        expect(page.locator("#queue tbody tr")).to_have_count(0)
        expect(page.locator("#history tbody")).to_contain_text("released")
    page.go_back()
    expect(page.locator("#overview")).to_be_visible()


def test_a_lease_is_broken_with_a_typed_reason(page: Page, node: RunningNode) -> None:
    lease = acquired(node.port, "break/1", owner="agent-a")
    opened(page, "/ui/#/lease/break%2F1")
    page.get_by_role("button", name="Break …").click()
    dialog = page.get_by_role("dialog", name="Break this lease?")
    reason = dialog.get_by_label(re.compile("^Reason"))
    expect(reason).to_be_focused()
    dialog.get_by_role("button", name="Break").click()  # without a reason nothing happens
    reason.fill("   ")
    reason.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("Say why")
    reason.fill("agent-a's machine is gone")
    reason.press("Enter")
    expect(page.locator("#lease-note")).to_have_text(f"Broken: agent-a (token {lease['token']})")
    expect(dialog).to_be_hidden()
    history = page.locator("#history tbody tr").first
    expect(history).to_contain_text("broken")
    expect(history).to_contain_text("agent-a's machine is gone")
    expect(page.get_by_role("button", name="Break …")).to_be_disabled()


def test_a_refused_break_says_why_and_stays(page: Page, node: RunningNode, complaints: Complaints) -> None:
    complaints.expect("status of 422")
    acquired(node.port, "break/2")
    opened(page, "/ui/#/lease/break%2F2")
    page.get_by_role("button", name="Break …").click()
    dialog = page.get_by_role("dialog", name="Break this lease?")
    page.get_by_label(re.compile("^Reason")).evaluate("field => field.maxLength = 9999")
    page.get_by_label(re.compile("^Reason")).fill("x" * 2_000)
    with page.expect_response("**/v1/break") as answered:
        dialog.get_by_role("button", name="Break").click()
    assert answered.value.status == 422
    expect(dialog.get_by_role("alert")).to_contain_text("reason must be 1 to 1024 bytes")


def test_refused_commits_are_listed_those_of_before_too(page: Page, node: RunningNode) -> None:
    def stale_write(key: str) -> None:
        lease = acquired(node.port, key)
        post(node.port, "/v1/release", lease_id=lease["lease_id"])
        fields = {"key": key, "lease_id": lease["lease_id"], "token": lease["token"], "mode": "current"}
        status, problem = asked(node.port, "/v1/commit", value="late", **fields)
        assert (status, problem["code"]) == (412, "not_live")

    stale_write("refused/before")
    opened(page)
    expect(page.locator("#refused tbody")).to_contain_text("refused/before")
    stale_write("refused/now")
    first = page.locator("#refused tbody tr").first
    expect(first).to_contain_text("refused/now")
    expect(first).to_contain_text("not_live: the lease has ended")


def test_a_credential_goes_with_every_request_and_is_kept_for_the_tab_only(
    page: Page, node: RunningNode
) -> None:
    opened(page)
    page.get_by_role("button", name="Credential").click()
    page.get_by_role("dialog").get_by_label("Credential").fill("secret-1")
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request) if "/v1/" in request.url else None)
    with page.expect_request("**/v1/events?*"):
        page.get_by_role("button", name="Use it").click()
    expect(page.locator("#health")).to_contain_text("live")
    after = {re.sub(r".*(/v1/\w+).*", r"\1", request.url): request for request in sent}
    assert set(after) >= {"/v1/nodes", "/v1/leases", "/v1/events"}
    for request in after.values():
        assert request.all_headers()["authorization"] == "Bearer secret-1"
        assert "secret" not in request.url
    assert page.evaluate("() => ({...localStorage})") == {}
    assert page.evaluate("() => document.cookie") == ""
    page.get_by_role("button", name="Credential").click()
    with page.expect_request("**/v1/nodes") as bare:
        page.get_by_role("button", name="Forget it").click()
    assert "authorization" not in bare.value.all_headers()
    assert page.evaluate("() => ({...sessionStorage})") == {}


def test_without_a_credential_none_is_sent(page: Page, node: RunningNode) -> None:
    with page.expect_request("**/v1/nodes") as first:
        page.goto("/ui/")
    assert "authorization" not in first.value.all_headers()


def test_the_policy_is_there_and_holds(page: Page, node: RunningNode) -> None:
    answer = page.goto("/ui/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    expect(page.locator("#health")).to_contain_text("live")
    origins = page.evaluate("() => performance.getEntriesByType('resource').map(e => new URL(e.name).origin)")
    assert set(origins) == {node.url}


def test_a_second_visit_loads_no_file_again(page: Page, node: RunningNode) -> None:
    opened(page)
    statuses: list[int] = []
    with page.expect_response("**/ui/main.js") as again:
        page.goto("/ui/?again")
    statuses.append(again.value.status)
    size = page.evaluate(
        "() => performance.getEntriesByType('resource').find(e => e.name.endsWith('main.js')).transferSize"
    )
    assert size < 1_000, "only the head of an answer was sent"


def test_a_node_without_a_leader_says_so_until_there_is_one(
    page: Page, node: RunningNode, complaints: Complaints
) -> None:
    complaints.expect("status of 503")
    opened(page)
    page.route(
        "**/v1/nodes",
        lambda route: route.fulfill(status=503, json={"code": "no_leader", "detail": "none is known"}),
    )
    expect(page.locator("#health")).to_have_text("none is known")
    expect(page.locator("#health")).to_have_attribute("data-level", "bad")
    page.unroute("**/v1/nodes")
    expect(page.locator("#health")).to_have_attribute("data-level", "good")


def test_a_cluster_that_asks_for_a_credential_gets_one(
    page: Page, node: RunningNode, complaints: Complaints
) -> None:
    complaints.expect("status of 401")

    def check(route: Route) -> None:
        if route.request.all_headers().get("authorization") == "Bearer right":
            route.continue_()
        else:
            route.fulfill(status=401, json={"code": "unauthenticated", "detail": "a credential is missing"})

    page.route("**/v1/**", check)
    page.goto("/ui/")
    dialog = page.get_by_role("dialog", name="Credential")
    expect(dialog.get_by_role("alert")).to_have_text("The cluster asks for a credential.")
    dialog.get_by_label("Credential").fill("wrong")
    dialog.get_by_label("Credential").press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("The cluster doesn\u2019t take this credential.")
    dialog.get_by_label("Credential").fill("right")
    dialog.get_by_label("Credential").press("Enter")
    expect(page.locator("#health")).to_have_attribute("data-level", "good")
    expect(page.locator("#health")).to_contain_text("live")


def test_a_page_whose_node_has_stopped_says_that_it_is_old(
    page: Page, start_node: Callable[[], RunningNode], complaints: Complaints
) -> None:
    complaints.expect("net::ERR")
    other = start_node()
    opened(page, f"{other.url}/ui/")
    other.stop()
    expect(page.locator("#health")).to_contain_text("be reached; what you see is old")
    expect(page.locator("#health")).to_have_attribute("data-level", "bad")


SAY_HEALTH = """async ([told, problem, live, counts]) => {
  const { health } = await import("/ui/nodes.js");
  const { Unreachable } = await import("/ui/api.js");
  const { level, text } = health(told, problem ? new Unreachable(problem) : null, live, counts);
  return [level, text];
}"""


def test_the_health_line_is_the_terminals(page: Page, node: RunningNode) -> None:
    page.goto("/ui/")
    for states, level, beginning in HEALTH:
        told = nodes(**states)
        for live in (True, False):
            said = page.evaluate(SAY_HEALTH, [msgspec.to_builtins(told), "", live, "2 leases, 1 waiting"])
            assert tuple(said) == top_view.health(told, "", live, "2 leases, 1 waiting")
        said = page.evaluate(SAY_HEALTH, [msgspec.to_builtins(told), "", True, "2 leases, 1 waiting"])
        assert said[0] == level
        assert said[1].startswith(beginning)
