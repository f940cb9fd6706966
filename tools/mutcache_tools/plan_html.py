"""The memory plan as one page: the drawing, and every value in tables."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from mutcache.memory_plan import ScopeMemory
from mutcache.plan import ExecutionPlan
from mutcache_tools.plan_svg import plan_svg
from mutcache_tools.words import byte_words, printable, type_words

#: Values that are listed of each graph, the largest first.
MAX_VALUES: Final = 1000

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #182230; --quiet: #5d6b82; --grid: #e4e8ef; }
@media (prefers-color-scheme: dark) { :root { --paper: #10151d; --ink: #e7ebf2; --quiet: #94a1b8; --grid: #273142; } }
body { margin: 0 auto; max-width: 1080px; padding: 16px; background: var(--paper); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
svg { display: block; width: 100%; height: auto; }
details { margin: 12px 24px; } summary { cursor: pointer; font-weight: 650; }
table { border-collapse: collapse; margin: 8px 0 20px; font-size: 13px; width: 100%; }
th { text-align: left; color: var(--quiet); font-weight: 500; } th, td { padding: 3px 12px 3px 0; }
td { border-top: 1px solid var(--grid); vertical-align: top; overflow-wrap: anywhere; }
.number { text-align: right; white-space: nowrap; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px; }
"""


def plan_html(plan: ExecutionPlan, path: str) -> str:
    """The page of a plan that has sizes, of the model at ``path``."""
    assert plan.memory is not None
    scopes = plan.memory.in_place.walk()
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Memory plan of {_text(path)}</title>",
            f"<style>{_STYLE}</style>\n</head>\n<body>",
            plan_svg(plan, path),
            *(_values(scope) for scope in scopes if scope.storages),
            "</body>\n</html>\n",
        ]
    )


def _values(scope: ScopeMemory) -> str:
    turn = {name: number for number, buffer in enumerate(scope.buffers) for name in buffer.values}
    storages = sorted(scope.storages, key=lambda storage: (-(storage.bytes or 0), storage.first))
    rows = "\n".join(
        f"<tr><td><code>{_text(', '.join(storage.names))}</code></td><td>{storage.role}</td>"
        f"<td>{_text(type_words(storage.type) or '?')}</td>"
        f'<td class="number">{byte_words(storage.bytes)}</td>'
        f'<td class="number">{storage.first}</td><td class="number">{storage.last}</td>'
        f'<td class="number">{turn.get(storage.name, "")}</td></tr>'
        for storage in storages[:MAX_VALUES]
    )
    rest = len(storages) - MAX_VALUES
    more = f"<p>and {rest} smaller values</p>" if rest > 0 else ""
    header = _header(("value", "role", "type", "bytes", "first step", "last step", "buffer"))
    summary = f"{_text(scope.path)}: {len(storages)} values that a run allocates"
    return f"<details>\n<summary>{summary}</summary>\n<table>\n{header}\n{rows}\n</table>\n{more}</details>"


def _header(names: Iterable[str]) -> str:
    numbers = {"bytes", "first step", "last step", "buffer"}
    cells = "".join(f"<th{' class=number' if name in numbers else ''}>{name}</th>" for name in names)
    return f"<tr>{cells}</tr>"


def _text(content: str) -> str:
    return escape(printable(content))
