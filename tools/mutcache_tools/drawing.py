"""The few shapes that the drawing of a plan is made of, and how much of a text fits into a width."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

#: Width of a character relative to the size of the font: of the monospace one, and of the other on average.
_MONOSPACE: Final = 0.61
_PROPORTIONAL: Final = 0.56


def text(x: float, y: float, content: str, style: str, *, anchor: str = "start", title: str = "") -> str:
    """A line of text; its class is ``style``."""
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}"{place}>{_title(title)}{clean(content)}</text>'


def rect(x: float, y: float, width: float, height: float, style: str, *, title: str = "", round_by: float = 0) -> str:
    """A rectangle."""
    corner = f' rx="{round_by:g}"' if round_by else ""
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{style}"{corner}'
    return f"{shape}>{_title(title)}</rect>" if title else f"{shape}/>"


def line(x: float, y: float, to_x: float, to_y: float, style: str) -> str:
    """A straight line."""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="{style}"/>'


def dot(x: float, y: float, radius: float, style: str, *, title: str = "") -> str:
    """A filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{style}">{_title(title)}</circle>'


def path(points: Sequence[tuple[float, float]], style: str, *, closed: bool = False) -> str:
    """A line through points."""
    commands = " ".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(points))
    return f'<path d="{commands}{" Z" if closed else ""}" class="{style}"/>'


def shorten(content: str, width: float, size: float, *, monospace: bool = False) -> str:
    """The text if it fits into ``width`` at this font size; otherwise its beginning and end."""
    room = int(width / (size * (_MONOSPACE if monospace else _PROPORTIONAL)))
    if len(content) <= room:
        return content
    front = max((room - 1) // 2, 1)
    return f"{content[:front]}\N{HORIZONTAL ELLIPSIS}{content[len(content) - max(room - 1 - front, 1) :]}"


def _title(content: str) -> str:
    return f"<title>{clean(content)}</title>" if content else ""


def clean(content: str) -> str:
    """The text for elements and attributes: with what XML reserves escaped, and what no XML may hold replaced."""
    allowed = (char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in content)
    return escape("".join(allowed))
