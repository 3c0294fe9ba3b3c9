"""Makes a site of the pages that stand beside the code: mkdocs wants all of them below one directory.

Nothing is copied and nothing rewritten but links: to a file that is no page, which is served as it is, and to
a directory, for which there is a list of its files.
"""

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("bench", "chaos", "client", "cluster", "deploy", "examples", "tests")
"""Where pages are looked for, beside those at the top."""

LISTING: Final = "files.md"
LINK: Final = re.compile(r"(?P<text>\]\()(?P<target>[^)\s#:]+)(?P<rest>#[^)\s]*)?\)")
"""A link of Markdown to something of the repository, not to an address."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages, and what they link to."""
    known = sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        known += sorted((ROOT / folder).rglob("*.md"))
    for page in known:
        _add(files, config, page)
    for page in known:
        for target in LINK.finditer(page.read_text(encoding="utf-8")):
            _add_linked(files, config, page.parent / target["target"])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to directories to their lists."""
    here = posixpath.dirname(page.file.src_uri)

    def led(link: re.Match[str]) -> str:
        if not (ROOT / here / link["target"]).is_dir():
            return link[0]
        return f"{link['text']}{posixpath.join(link['target'], LISTING)})"

    return LINK.sub(led, markdown)


def _add_linked(files: Files, config: MkDocsConfig, target: Path) -> None:
    target = target.resolve()
    if not target.is_relative_to(ROOT):
        return
    if target.is_file():
        _add(files, config, target)
    elif target.is_dir():
        inside = sorted(
            path.relative_to(target).as_posix()
            for path in target.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
        )
        for name in inside:
            _add(files, config, target / name)
        name = target.relative_to(ROOT).as_posix()
        listing = [f"# {name}", "", *(f"- [{file}]({file})" for file in inside)]
        uri = f"{name}/{LISTING}"
        if uri not in files.src_uris:
            files.append(File.generated(config, uri, content="\n".join(listing) + "\n"))


def _add(files: Files, config: MkDocsConfig, path: Path) -> None:
    uri = path.relative_to(ROOT).as_posix()
    if uri not in files.src_uris:
        files.append(File.generated(config, uri, abs_src_path=str(path)))
