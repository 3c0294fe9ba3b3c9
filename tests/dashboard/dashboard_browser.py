"""A real browser in front of a real node. The browser is the system's Chromium: .ci/services installs it."""

import http.client
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from playwright.sync_api import Browser, Page, sync_playwright

PATIENCE_MS: Final = 30_000
"""How long a condition may take on a slow and busy machine."""

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """Path of the browser. Raises if there is none: a test that passed without it would prove nothing."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise RuntimeError("the tests of the dashboard need Chromium (Debian: apt-get install chromium)")


@contextmanager
def running_browser() -> Iterator[Browser]:
    arguments = ["--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=arguments, timeout=4 * PATIENCE_MS
        )
        try:
            yield browser
        finally:
            browser.close()


class Complaints:
    """What a page said on its console as a warning or an error, and what it threw."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._expected: list[str] = []

    def listen(self, page: Page) -> None:
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("requestfailed", lambda request: self._failed(request.url, request.failure))

    def expect(self, text: str) -> None:
        """Such complaints belong to the test: the browser itself tells of every request that was refused."""
        self._expected.append(text)

    def _note(self, kind: str, text: str) -> None:
        expected = any(each in text for each in self._expected)
        if kind in ("warning", "error", "assert") and not expected:
            self.heard.append(f"{kind}: {text}")

    def _failed(self, url: str, why: str | None) -> None:
        # A stream that the page itself ends is no failure.
        if why != "net::ERR_ABORTED":
            self._note("error", f"{url}: {why}")


def asked(port: int, path: str, **fields: Any) -> tuple[int, Any]:
    """Status and body of the answer to a call."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_MS / 1000)
    try:
        connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def post(port: int, path: str, **fields: Any) -> Any:
    """The answer to a call, which must succeed."""
    status, body = asked(port, path, **fields)
    assert status < 300, body
    return body


@contextmanager
def waiting(port: int, key: str, *owners: str) -> Iterator[None]:
    """Have these queue for the key, in this order, and give up in the end whatever became of that."""
    threads = []
    try:
        for owner in owners:
            fields = {"key": key, "owner": owner, "ttl_ms": 60_000, "wait_ms": 25_000, "request_id": owner}
            threads.append(threading.Thread(target=asked, args=(port, "/v1/acquire"), kwargs=fields))
            threads[-1].start()
            until_queued(port, key, owner)
        yield
    finally:
        for owner in owners:
            asked(port, "/v1/abandon", request_id=owner)
        for thread in threads:
            thread.join()


def until_queued(port: int, key: str, owner: str) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_MS / 1000)
        connection.request("GET", f"/v1/queues/{quote(key)}")
        queue = json.loads(connection.getresponse().read())
        connection.close()
        if any(waiter["owner"] == owner for waiter in queue["waiters"]):
            return
        time.sleep(0.02)
    raise AssertionError(f"{owner} did not join the queue of {key}")


def acquired(port: int, key: str, owner: str = "agent-a", ttl_ms: int = 60_000, **more: Any) -> Any:
    """A lease that was granted at once."""
    answer = post(port, "/v1/acquire", key=key, owner=owner, ttl_ms=ttl_ms, **more)
    assert answer["status"] == "granted"
    return answer["lease"]
