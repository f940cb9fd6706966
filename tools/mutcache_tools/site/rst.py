"""Pieces of reStructuredText, for pages that are generated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence


def heading(title: str, rule: str = "=") -> list[str]:
    """A heading with the line under it."""
    return ["", title, rule * len(title)]


def literal(text: str) -> str:
    """Text as it stands; a literal cannot be empty, begin or end with white space."""
    return f"``{text}``" if text.strip() == text and text else text.strip()


def plain(text: str) -> str:
    """Text that marks nothing up, such as help texts and messages, which are written for terminals."""
    return re.sub(r"([*`_|\\])", r"\\\1", text)


def folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    """What is seen when a reader asks for it. ``summary`` is plain text without markup."""
    yield from ("", ".. raw:: html", "", f"   <details><summary>{summary}</summary>", "")
    yield from lines
    yield from ("", ".. raw:: html", "", "   </details>", "")


def link(text: str, document: str) -> str:
    """A link to a document of the site."""
    return f":doc:`{text} <{document}>`"


def bullets(items: Iterable[str]) -> Iterator[str]:
    """A list; each item is one line of reStructuredText."""
    yield ""
    yield from (f"- {item}" for item in items)


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, widths: Sequence[int], has_header: bool = True
) -> Iterator[str]:
    """A list-table; cells are reStructuredText without line breaks."""
    yield ""
    yield ".. list-table::"
    if has_header:
        yield "   :header-rows: 1"
    yield f"   :widths: {' '.join(map(str, widths))}"
    yield ""
    for row in [header, *rows] if has_header else rows:
        for position, cell in enumerate(row):
            yield f"   {'*' if position == 0 else ' '} - {cell}".rstrip()
    yield ""
