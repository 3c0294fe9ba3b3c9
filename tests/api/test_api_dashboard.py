"""`/ui/`: the dashboard's files, their types, their caching and what the page may do."""

import re
from pathlib import Path

import pytest
from api_node import RunningNode
from api_wire import Wire, ask

from tenure_cluster.api.dashboard import CONTENT_TYPES, POLICY, Dashboard

FOLDER = Path(__file__).resolve().parents[2] / "cluster/tenure_cluster/observe/dashboard"
NAMES = sorted(path.name for path in FOLDER.iterdir())


def test_the_dashboard_has_its_page_and_nothing_that_is_not_served() -> None:
    assert {"index.html", "main.js", "style.css"} <= set(NAMES)
    assert Dashboard().names == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_is_served_as_it_lies_there(node: RunningNode, name: str) -> None:
    reply = await ask(node.port, "GET", f"/ui/{name}")
    assert reply.status == 200
    assert reply.body == (FOLDER / name).read_bytes()
    assert reply.headers["content-type"] == CONTENT_TYPES[name.rpartition(".")[2]].decode()
    assert reply.headers["content-security-policy"] == POLICY
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["cache-control"] == "no-cache"


async def test_the_folder_itself_is_the_page(node: RunningNode) -> None:
    reply = await ask(node.port, "GET", "/ui/?whatever=1")
    assert reply.body == (FOLDER / "index.html").read_bytes()
    redirect = await ask(node.port, "GET", "/ui")
    assert (redirect.status, redirect.headers["location"]) == (308, "/ui/")


async def test_what_a_browser_has_already_is_not_sent_again(node: RunningNode) -> None:
    async with await Wire.open(node.port) as wire:
        first = await wire.ask("GET", "/ui/main.js")
        tag = first.headers["etag"]
        for known in (tag, f'"old", W/{tag}'):
            # Without a body, or the connection would be out of step for the request after it.
            again = await wire.ask("HEAD", "/ui/main.js", if_none_match=known)
            assert (again.status, again.headers["etag"]) == (304, tag)
        other = await wire.ask("GET", "/ui/main.js", if_none_match='"old"')
        assert (other.status, other.body) == (200, first.body)
        style = await wire.ask("GET", "/ui/style.css", if_none_match=tag)
        assert style.status == 200


async def test_an_answer_without_a_change_has_no_body(node: RunningNode) -> None:
    tag = (await ask(node.port, "GET", "/ui/main.js")).headers["etag"]
    async with await Wire.open(node.port) as wire:
        wire.send(
            f"GET /ui/main.js HTTP/1.1\r\nHost: n\r\nIf-None-Match: {tag}\r\n\r\n"
            f"GET /livez HTTP/1.1\r\nHost: n\r\n\r\n".encode()
        )
        unchanged = await wire.answer("HEAD")
        assert unchanged.status == 304
        assert (await wire.answer()).json == {"status": "alive"}


@pytest.mark.parametrize("path", ["/ui/nothing.js", "/ui/../main.js", "/ui/%2e%2e/main.js", "/ui//main.js"])
async def test_nothing_else_is_served(node: RunningNode, path: str) -> None:
    reply = await ask(node.port, "GET", path)
    assert (reply.status, reply.code) == (404, "no_route")


async def test_the_files_are_only_read(node: RunningNode) -> None:
    reply = await ask(node.port, "POST", "/ui/", {"key": "k"})
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


async def test_a_path_that_only_begins_alike_is_no_part_of_it(node: RunningNode) -> None:
    assert (await ask(node.port, "GET", "/uix")).code == "no_route"


def test_the_page_is_within_its_own_policy() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    outside = set(re.findall(r"https?://[\w.-]+", text)) - {"http://www.w3.org"}
    assert outside == set()
    for imported in re.findall(r"(?:from|import)\s+[\"']([^\"']+)", text if name.endswith(".js") else ""):
        assert (FOLDER / imported.removeprefix("./")).exists()
