"""``mutcache compare A B``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutcache_tools.commands import Command
from mutcache_tools.output import Output, UsageError

if TYPE_CHECKING:
    from mutcache_conformance.compare import Comparison


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, metavar="A", help="the earlier report: its folder, or report.json in it")
    parser.add_argument("after", type=Path, metavar="B", help="the later one")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the comparison as a page")


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache_conformance.compare import compare
    from mutcache_tools.comparison_html import comparison_html

    comparison = compare(read(options.before), read(options.after))
    if options.html is not None:
        options.html.write_text(comparison_html(comparison), encoding="utf-8")
    output.show(comparison.to_json(), lambda: _print(comparison, output))
    return int(comparison.is_broken)


def read(path: Path) -> dict[str, Any]:
    """The report in a folder, or at the path of its file.

    Raises:
        UsageError: there is none that is whole.
    """
    from mutcache_conformance.report import ReportError, read_report

    file = path / "report.json" if path.is_dir() else path
    try:
        return read_report(file)
    except ReportError as error:
        raise UsageError(str(error), "a report is a folder that the conformance suite has written") from None


def _print(comparison: Comparison, output: Output) -> None:
    from rich.table import Table
    from rich.text import Text

    from mutcache_conformance.compare import Change
    from mutcache_tools.comparison_html import summary
    from mutcache_tools.words import printable

    styles = {
        Change.BROKEN: "bold red",
        Change.FIXED: "bold green",
        Change.CHANGED: "yellow",
        Change.EVIDENCE: "yellow",
        Change.NEW: "",
        Change.GONE: "",
    }
    output.line((printable(comparison.before), "bold"), " -> ", (printable(comparison.after), "bold"))
    for one in comparison.conditions:
        output.line((printable(f"  {one.what}: {one.before or 'none'} -> {one.after or 'none'}"), "dim"))
    for one in comparison.verdicts:
        same = one.before == one.after
        output.line(f"{one.what}: ", one.after if same else f"{one.before} -> {one.after}")
    if comparison.changes:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for name in ("change", "case", "requirement", "status"):
            table.add_column(name, no_wrap=True)
        table.add_column("why", overflow="fold")
        for change in comparison.changes:
            table.add_row(
                Text(change.change, styles[change.change]),
                change.case,
                change.requirement,
                f"{change.before or '-'} -> {change.after or '-'}",
                printable(change.detail),
            )
        output.render(table)
    output.line((summary(comparison), "bold red" if comparison.is_broken else "bold"))


COMMAND = Command(
    "compare",
    "say what changed from one conformance report to another",
    "Compare two conformance reports case by case: what is broken, fixed, changed, new and gone, and where what was "
    "seen differs. The exit code is 1 if something is broken.",
    _add_arguments,
    _run,
)
