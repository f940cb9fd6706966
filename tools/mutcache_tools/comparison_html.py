"""The comparison of two conformance reports as one page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from mutcache_conformance.compare import Change, Comparison, Difference
from mutcache_tools.words import printable

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #182230; --quiet: #5d6b82; --grid: #e4e8ef;
  --bad: #b42318; --good: #1a7f37; --other: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --paper: #10151d; --ink: #e7ebf2; --quiet: #94a1b8; --grid: #273142;
  --bad: #ff8a80; --good: #6fd58a; --other: #e5b45a; } }
body { margin: 0 auto; max-width: 1080px; padding: 16px; background: var(--paper); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 22px; line-height: 1.3; } h2 { font-size: 16px; margin: 28px 0 4px; }
table { border-collapse: collapse; margin: 8px 0 20px; font-size: 13px; width: 100%; }
th { text-align: left; color: var(--quiet); font-weight: 500; } th, td { padding: 4px 12px 4px 0; }
td { border-top: 1px solid var(--grid); vertical-align: top; overflow-wrap: anywhere; }
table { table-layout: fixed; } .cases th:nth-child(1) { width: 34%; } .cases th:nth-child(2) { width: 9.5em; }
.cases th:nth-child(3) { width: 12em; } .status, .cases td:nth-child(2) { white-space: nowrap; }
@media (max-width: 680px) { .cases tr:first-child { display: none; }
  .cases tr { display: grid; grid-template-columns: 1fr auto; border-top: 1px solid var(--grid); padding: 4px 0; }
  .cases td { border: 0; padding: 1px 12px 1px 0; } .cases td:nth-child(4) { grid-column: 1 / 3; } }
.broken { color: var(--bad); } .fixed { color: var(--good); }
.changed, .changed-evidence { color: var(--other); }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px; }
ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 8px 24px; } li b { font-size: 20px; }
@media print { body { max-width: none; } tr { break-inside: avoid; } }
"""
_NONE: Final = "&ndash;"
#: What each kind of change means, for the reader who has never seen such a page.
MEANINGS: Final = {
    Change.BROKEN: "passed, or at least did not fail, and does not now",
    Change.FIXED: "did not pass, and does now",
    Change.CHANGED: "did not pass, and does not now for another reason",
    Change.EVIDENCE: "has the same status, and what was seen is not the same",
    Change.NEW: "is in the second report alone",
    Change.GONE: "is in the first report alone",
}


def comparison_html(comparison: Comparison) -> str:
    """The page."""
    title = f"{comparison.before} → {comparison.after}"
    kinds = [kind for kind in Change if comparison.of(kind)]
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Conformance: {_text(title)}</title>",
        f"<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(summary(comparison))}</p>",
        "<ul>" + "".join(_total(comparison, kind) for kind in Change) + "</ul>",
        _differences("Verdicts", "profile", comparison.verdicts),
        _differences("What else is not the same", "what", comparison.conditions),
        *(_cases(comparison, kind) for kind in kinds),
        "</body>\n</html>\n",
    ]
    return "\n".join(filter(None, parts))


def summary(comparison: Comparison) -> str:
    """The comparison in a sentence or two."""
    broken = len(comparison.of(Change.BROKEN))
    if broken:
        words = f"{broken} case{'s are' if broken > 1 else ' is'} broken."
    elif comparison.changes:
        words = "Nothing is broken."
    else:
        words = "Nothing has changed."
    words += f" {comparison.unchanged} case{'s are' if comparison.unchanged != 1 else ' is'} as before."
    if comparison.incomparable:
        words += f" {comparison.incomparable} were drawn otherwise or rewritten: of these only the status is compared."
    return words


def _total(comparison: Comparison, kind: Change) -> str:
    return f'<li class="{_class(kind)}"><b>{len(comparison.of(kind))}</b> {kind}</li>'


def _differences(title: str, what: str, differences: Sequence[Difference]) -> str:
    rows = [(_text(one.what), _text(one.before) or _NONE, _text(one.after) or _NONE) for one in differences]
    return f"<h2>{title}</h2>\n{_table((what, 'before', 'after'), rows)}" if rows else ""


def _cases(comparison: Comparison, kind: Change) -> str:
    rows = [
        (
            f"<code>{_text(one.case)}</code>",
            _text(one.requirement),
            f'<span class="status">{_text(one.before) or _NONE} → {_text(one.after) or _NONE}</span>',
            _text(one.detail),
        )
        for one in comparison.of(kind)
    ]
    heading = f'<h2 class="{_class(kind)}">{kind.capitalize()}: {len(rows)}</h2>\n<p>{MEANINGS[kind].capitalize()}.</p>'
    return f"{heading}\n{_table(('case', 'requirement', 'status', 'why'), rows, kind='cases')}"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]], *, kind: str = "settings") -> str:
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table class={kind}>\n<tr>{head}</tr>\n{body}\n</table>"


def _class(kind: Change) -> str:
    return kind.value.replace(" ", "-")


def _text(content: str) -> str:
    return escape(printable(content))
