"""Checks a built site: every link inside it leads to a page and an anchor that exist, every requirement has its target.

``python -m mutcache_tools.site.check docs/_build/html`` prints what is wrong, one line each, and exits with 1 then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mutcache.requirements import Req

#: Attributes that lead somewhere.
_LINKS = ("href", "src")


@dataclass(slots=True)
class Page:
    """What a page offers and wants."""

    anchors: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self._page.anchors.append(value)
            elif name in _LINKS and value and tag != "base":
                self._page.links.append(value)


def read(path: Path) -> Page:
    """The anchors and links of one HTML file."""
    page = Page()
    _Reader(page).feed(path.read_text(encoding="utf-8"))
    return page


def problems(folder: Path) -> Iterator[str]:
    """What is wrong with the site in ``folder``, one line each."""
    pages = {path.relative_to(folder).as_posix(): read(path) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder}: there are no pages"
    for name, page in pages.items():
        for target in dict.fromkeys(page.links):
            if problem := _broken(folder, name, target, pages):
                yield f"{name}: {target}: {problem}"
    for requirement in Req:
        places = [name for name, page in pages.items() if requirement.value in page.anchors]
        if places != [f"spec/{Path(requirement.entry.chapter).stem}.html"]:
            yield f"{requirement.value}: its target stands in {', '.join(places) or 'no page'}"


def _broken(folder: Path, name: str, target: str, pages: dict[str, Page]) -> str:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return ""
    if parts.path:
        path = (folder / name).parent / unquote(parts.path)
        if not path.exists():
            return "there is no such file"
        if not path.resolve().is_relative_to(folder.resolve()):
            return "it leads out of the site"
        name = path.resolve().relative_to(folder.resolve()).as_posix()
    if parts.fragment and name in pages and unquote(parts.fragment) not in pages[name].anchors:
        return f"{name} has no anchor {parts.fragment!r}"
    return ""


def main() -> int:
    """Check the folder that the command line names."""
    if len(sys.argv) != 2:
        print("usage: python -m mutcache_tools.site.check FOLDER", file=sys.stderr)
        return 2
    found = list(problems(Path(sys.argv[1])))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
