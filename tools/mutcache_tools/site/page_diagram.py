"""A drawing of a page table before and after a step that changes the type of one page and creates another.

Like the other drawings it is SVG inside the page, so that it follows its colours, light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import mutcache
from mutcache_tools.drawing import line, rect, text
from mutcache_tools.example_paged_decoder import PagedDecoder, build
from mutcache_tools.words import storage_words

_PAGE_SIZE: Final = 8
#: Tokens before the step: full pages; and in the step, which begins a page.
_BEFORE: Final = 3 * _PAGE_SIZE
_STEP: Final = 3

_TOP: Final = 56
_ROW: Final = 62
_BAR: Final = 22
_BYTES: Final = 3.4  # bytes of a page for each unit of width
_SECOND: Final = 470  # where the second table begins
_WIDTH: Final = 820
_STYLE: Final = """
.page-diagram text { font-family: var(--font-stack--monospace, monospace); font-size: 13px;
  fill: var(--color-foreground-primary, #000); }
.page-diagram .quiet { fill: var(--color-foreground-secondary, #555); }
.page-diagram .head { font-weight: 650; }
.page-diagram line { stroke: var(--color-foreground-muted, #888); stroke-width: 1.5; }
.page-diagram .replaced { stroke-dasharray: 4 4; }
.page-diagram rect { fill-opacity: .08; stroke-width: 1; stroke-opacity: .7; }
.page-diagram .used { fill-opacity: .5; }
.page-diagram .type-0 { fill: #6f5be0; stroke: #6f5be0; } .page-diagram .type-1 { fill: #0d9488; stroke: #0d9488; }
"""


@dataclass(frozen=True)
class _Drawn:
    """What is drawn of a page; ``used`` counts its rows that hold tokens."""

    quantized_type: int
    type_words: str
    nbytes: int
    address: int
    used: int


def page_tables() -> str:
    """One table of the example decoder, whose pages become INT4 when they are full and another one begins."""
    model = build("int8", "int4", page_size=_PAGE_SIZE)
    with PagedDecoder(model) as decoder:
        decoder.step([token % 64 for token in range(_BEFORE)])
        before = _pages(decoder, model)
        replaced = [page.payload for page in decoder.tables["cache.0"].values()]  # kept, so that no address is reused
        decoder.step([token % 64 for token in range(_STEP)])
        after = _pages(decoder, model)
        del replaced
    height = _TOP + _ROW * len(after) + 4
    shapes = [
        *_table(0, f"cache.0, {_BEFORE} tokens", before),
        *_table(_SECOND, f"after a step of {_STEP} tokens", after),
    ]
    for number, page in enumerate(after):
        shapes += _link(number, page, before[number] if number < len(before) else None)
    label = "A page table before and after a step"
    return (
        f'<svg class="page-diagram" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {height}" '
        f'style="width: 100%; max-width: {_WIDTH}px"><style>{_STYLE}</style>{"".join(shapes)}</svg>\n'
    )


def _pages(decoder: PagedDecoder, model: mutcache.ModelProto) -> list[_Drawn]:
    return [
        _Drawn(
            page.quantized_type,
            storage_words(model.quantizations[page.quantized_type]),
            page.payload.nbytes,
            page.payload.ctypes.data,
            min(decoder.length - number * _PAGE_SIZE, _PAGE_SIZE),
        )
        for number, page in decoder.tables["cache.0"].items()
    ]


def _table(left: float, title: str, pages: Sequence[_Drawn]) -> list[str]:
    """A table: for each page what it is, and a bar of its bytes, in which each cell is the row of a token."""
    total = sum(page.nbytes for page in pages)
    shapes = [text(left, 18, title, "head"), text(left, 36, f"{len(pages)} pages, {total} bytes", "quiet")]
    for number, page in enumerate(pages):
        top = _TOP + number * _ROW
        what = f"page {number}: {page.type_words}, {page.nbytes} bytes, {page.used} of {_PAGE_SIZE} rows"
        shapes.append(text(left, top + 14, what, ""))
        cell = page.nbytes / _BYTES / _PAGE_SIZE
        for row in range(_PAGE_SIZE):
            style = f"type-{page.quantized_type}" + " used" * (row < page.used)
            shapes.append(rect(left + row * cell, top + 22, cell, _BAR, style))
    return shapes


def _link(number: int, page: _Drawn, before: _Drawn | None) -> list[str]:
    """What became of a page, between the two tables."""
    middle = _TOP + number * _ROW + 22 + _BAR / 2
    if before is None:
        return [text(_SECOND - 10, middle + 4, "created", "quiet", anchor="end")]
    is_same = page.address == before.address
    words = "same address" if is_same else "replaced"
    return [
        line(before.nbytes / _BYTES + 8, middle, _SECOND - 8, middle, "same" if is_same else "replaced"),
        text(_SECOND - 10, middle - 6, words, "quiet", anchor="end"),
    ]
