"""The score for people: per profile, per requirement, and for each failure why and how to run it again."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mutcache_conformance.mustpass import Verdict
from mutcache_conformance.report import Coverage, Run, coverage
from mutcache_conformance.status import CaseResult, Status

#: So many failures are told in full, and so many more by name; the report has them all.
_FULL: Final = 10
_NAMED: Final = 12
#: So many requirements with a failing case have a row.
_ROWS: Final = 20
_COLORS: Final = {True: "bold green", False: "bold red", None: "bold yellow"}


def render(run: Run, folder: str, *, width: int, color: bool) -> str:
    """The summary as text of at most ``width`` columns.

    Args:
        run: the finished run.
        folder: the report folder, as the reader would type it.
        width: columns.
        color: whether the text may have colors.
    """
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for part in _parts(run, folder, width):
        # Text comes wrapped where it should be; commands, which are there to be copied, must not be.
        console.print(part, soft_wrap=isinstance(part, Text))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _parts(run: Run, folder: str, width: int) -> Iterator[Text | Table]:
    if run.about is not None:
        name = f"{run.about.runtime} {run.about.runtime_version}".strip()
        through = f"through adapter {run.about.adapter} {run.about.adapter_version}".strip()
        yield Text.assemble((name, "bold"), f"  {through}")
        if run.about.checks:
            yield Text(f"checks that the adapter performs in its stead: {', '.join(run.about.checks)}")
        yield Text()
    yield from _failures(run, width)
    yield from _requirements(coverage(run), width)
    # Last, where a terminal stops scrolling.
    yield _verdict_table(run.verdicts())
    if run.selection:
        yield Text(f"No verdict: this was a selection of the cases ({run.selection}).", "yellow")
    yield Text(f"report: {folder}/report.json")


def _verdict_table(verdicts: list[Verdict]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in ("profile", "verdict", "required cases passed", "all cases"):
        table.add_column(title)
    for verdict in verdicts:
        counts = ", ".join(f"{count} {status}" for status, count in verdict.counts.items())
        if verdict.rests_on_reported:
            counts += "; rests on what the adapter reports of memory"
        table.add_row(
            verdict.profile.value,
            Text(verdict.word, _COLORS[verdict.is_conformant]),
            f"{verdict.passed} of {verdict.required}",
            counts,
        )
    return table


def _requirements(table: list[Coverage], width: int) -> Iterator[Text | Table]:
    """Requirements that something is wrong with, one a row; the others in a line."""
    good = [row for row in table if row.run and row.passed == row.run]
    bad = [row for row in table if row.run and row.passed < row.run]
    uncovered = [row.requirement.value for row in table if not row.cases]
    if bad:
        grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=True)
        grid.add_column("requirement", no_wrap=True)
        grid.add_column("passed", justify="right", no_wrap=True)
        grid.add_column("what it says", overflow="ellipsis", no_wrap=True, ratio=1)
        for row in bad[:_ROWS]:
            style = "red" if not row.passed else "yellow"
            grid.add_row(
                Text(row.requirement.value, style),
                f"{row.passed}/{row.run}",
                row.requirement.entry.sentence.replace("``", ""),
            )
        yield grid
        if bad[_ROWS:]:
            more = [row.requirement.value for row in bad[_ROWS:]]
            yield _names(f"further requirements with a failing case: {len(more)}", more, width)
    if good:
        others = "other requirements" if bad else "requirements"
        yield Text(f"{others} with every case passed: {len(good)}")
    if uncovered:
        yield _names(f"requirements without a case: {len(uncovered)}", uncovered, width)
    yield Text()


def _failures(run: Run, width: int) -> Iterator[Text | Table]:
    failed = [result for result in run.ordered_results() if result.status.is_failure]
    causes = [result for result in failed if not _follows(result)]
    for result in causes[:_FULL]:
        requirement = result.requirements[0].value
        yield Text.assemble((f"{result.status} ", "bold red"), (result.case, "bold"), f"  {requirement}")
        for line in result.reason.splitlines():
            yield Text(textwrap.fill(line, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
        yield Text(f"  $ {result.rerun}", "cyan")
    if causes[_FULL:]:
        yield _names(f"further failures: {len(causes) - _FULL}", [result.case for result in causes[_FULL:]], width)
    followers = [result.case for result in failed if _follows(result)]
    if followers:
        yield _names(f"fail only because their valid twins do: {len(followers)}", followers, width)
    if failed:
        yield Text()


def _follows(result: CaseResult) -> bool:
    """Whether the case only fails because its valid twin does, and was not run itself."""
    return not result.evidence.steps and result.status is Status.FAIL


def _names(title: str, names: list[str], width: int) -> Text:
    shown = ", ".join([*names[:_NAMED], *(["..."] if names[_NAMED:] else [])])
    text = textwrap.fill(f"{title} ({shown})", width, subsequent_indent="  ", break_on_hyphens=False)
    return Text(text, "dim")
