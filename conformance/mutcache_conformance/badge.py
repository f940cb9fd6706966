"""A badge for each profile: what is said of it in an image of a few words, for a README."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from mutcache.requirements import Profile
from mutcache_conformance.mustpass import Verdict
from mutcache_conformance.report_folder import badge_of

FOLDER: Final = "badges"
#: Dark enough for white text (contrast of 4.5 and more).
_COLORS: Final = {True: "#1a7f37", False: "#c02a2a", None: "#5d6b82"}
_LABEL_COLOR: Final = "#333b47"
_HEIGHT: Final = 20
_PADDING: Final = 7
#: Pixels of a character at 11 px. Whatever font there is, ``textLength`` makes it as wide as this says.
_NARROW, _USUAL, _WIDE = 3.6, 6.7, 9.6
_NARROW_CHARACTERS: Final = frozenset(" fijlrt.,:()")
_WIDE_CHARACTERS: Final = frozenset("mwMW")


def write(verdicts: Iterable[Verdict], folder: Path) -> list[Path]:
    """Write ``badges/PROFILE.svg`` into the report folder for each verdict; those of other profiles are removed."""
    written = []
    for verdict in verdicts:
        path = badge_of(folder, verdict.profile)
        path.parent.mkdir(exist_ok=True)
        path.write_text(render(verdict), encoding="utf-8")
        written.append(path)
    for profile in Profile:
        path = badge_of(folder, profile)
        if path not in written:
            path.unlink(missing_ok=True)
    return written


def render(verdict: Verdict) -> str:
    """The badge as SVG; the same verdict gives the same bytes."""
    label = f"mutcache {verdict.profile.value}"
    word = verdict.word
    if verdict.is_conformant and verdict.rests_on_reported:
        word += ", on reported evidence"
    if verdict.is_conformant is False:
        word += f" {verdict.passed}/{verdict.required}"
    left, right = (_width(text) + 2 * _PADDING for text in (label, word))
    width = left + right
    title = escape(f"{label}: {word}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{_HEIGHT}"',
            f' role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f'<clipPath id="edge"><rect width="{width:g}" height="{_HEIGHT}" rx="4"/></clipPath>',
            '<g clip-path="url(#edge)">',
            f'<rect width="{left:g}" height="{_HEIGHT}" fill="{_LABEL_COLOR}"/>',
            f'<rect x="{left:g}" width="{right:g}" height="{_HEIGHT}" fill="{_COLORS[verdict.is_conformant]}"/>',
            "</g>",
            '<g fill="#ffffff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" font-size="11">',
            _text(label, _PADDING),
            _text(word, left + _PADDING),
            "</g>",
            "</svg>\n",
        ]
    )


def _text(text: str, x: float) -> str:
    return f'<text x="{x:g}" y="14" textLength="{_width(text):g}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'


def _width(text: str) -> float:
    widths = (_NARROW if c in _NARROW_CHARACTERS else _WIDE if c in _WIDE_CHARACTERS else _USUAL for c in text)
    return round(sum(widths), 1)
