"""`/ui/`: the files of the dashboard, as they lie in the package.

They are read once, when the front is made. A browser keeps them and asks each time whether it may use them
still: the ETag is the content's hash, so after an update nobody is shown a page whose parts are of two
versions. The policy lets a page load and talk to nothing but its own origin, and run nothing that stands in
the page itself, so what others have written into keys, owners and metadata can't become a program. No
credential is needed for the files: they hold nothing but the page on which it is typed.
"""

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from tenure_cluster.api.answer import Answer, refusal
from tenure_cluster.api.codec import Format
from tenure_cluster.api.limits import DETAIL_CHARS_MAX
from tenure_cluster.service.errors import Problem

PREFIX: Final = "/ui/"
BARE: Final = PREFIX.removesuffix("/")

CONTENT_TYPES: Final = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)

_HEADERS: Final = (
    b"Content-Security-Policy: %b\r\nReferrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
    % POLICY.encode()
)

_INDEX: Final = "index.html"


def is_dashboard(path: str) -> bool:
    """Whether a path of a request is one of the dashboard's."""
    return path.startswith(PREFIX) or path == BARE


class Dashboard:
    """All files of the page, ready to be sent."""

    def __init__(self, folder: Traversable | None = None) -> None:
        """``folder`` has the files themselves, without folders in it; that of the package by default."""
        folder = folder or resources.files("tenure_cluster.observe") / "dashboard"
        self._files = {
            file.name: _file(file.name, file.read_bytes())
            for file in folder.iterdir()
            if file.name.rpartition(".")[2] in CONTENT_TYPES
        }

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def answer(self, method: str, path: str, if_none_match: str | None, answer_format: Format) -> Answer:
        """Answer a request for a path for which ``is_dashboard`` holds."""
        if method not in ("GET", "HEAD"):
            problem = Problem("method_not_allowed", f"{method} is not served here, only GET, HEAD")
            return refusal(problem, answer_format, b"Allow: GET, HEAD\r\n")
        if path == BARE:
            return Answer(308, CONTENT_TYPES["html"], b"", b"Location: %b\r\n" % PREFIX.encode())
        found = self._files.get(path.removeprefix(PREFIX) or _INDEX)
        if found is None:
            shown = path[:DETAIL_CHARS_MAX].encode("ascii", "backslashreplace").decode()
            return refusal(Problem("no_route", f"The dashboard has no file {shown}"), answer_format)
        tag, answer = found
        if if_none_match is not None and _names(if_none_match, tag):
            return Answer(304, answer.content_type, answer.body, answer.headers, b"no-cache")
        return answer


def _file(name: str, content: bytes) -> tuple[str, Answer]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = _HEADERS + b"ETag: %b\r\n" % tag.encode()
    return tag, Answer(200, CONTENT_TYPES[name.rpartition(".")[2]], content, headers, b"no-cache")


def _names(if_none_match: str, tag: str) -> bool:
    """Whether the header names the tag; a weak one counts too, as a proxy that compresses makes of it."""
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in if_none_match.split(","))
