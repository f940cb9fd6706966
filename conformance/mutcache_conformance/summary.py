"""The score for people: what failed, one cause at a time, then requirements and profiles."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mutcache_conformance import wording
from mutcache_conformance.evidence import Encoding
from mutcache_conformance.mustpass import Verdict
from mutcache_conformance.report import Coverage, Run, coverage
from mutcache_conformance.runner import TWIN
from mutcache_conformance.status import CaseResult, Status

#: So many causes are told with an example, and so many more in a line; the report has every case.
_CAUSES: Final = 6
_LINES: Final = 12
#: So many requirements with a failing case have a row.
_ROWS: Final = 15
_COLORS: Final = {True: "bold green", False: "bold red", None: "bold yellow"}
_VERBS: Final = {
    Status.FAIL: ("fails", "fail"),
    Status.CRASH: ("crashes", "crash"),
    Status.TIMEOUT: ("times out", "time out"),
    Status.HARNESS_ERROR: ("could not be played", "could not be played"),
}


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
        name = wording.one_line(f"{run.about.runtime} {run.about.runtime_version}".strip())
        through = wording.one_line(f"through adapter {run.about.adapter} {run.about.adapter_version}".strip())
        yield Text.assemble((name, "bold"), f"  {through}")
        if run.about.checks:
            yield Text(
                wording.one_line(f"checks that the adapter performs in its stead: {', '.join(run.about.checks)}")
            )
        yield Text()
    yield from _failures(run, folder, width)
    yield from _skips(run, width)
    yield from _requirements(coverage(run), width)
    # Last, where a terminal stops scrolling.
    yield _verdict_table(run.verdicts())
    if run.about is not None and any(verdict.rests_on_reported for verdict in run.verdicts()):
        words = f"{wording.ON_REPORTED}: {wording.on_whose_word(run.about.device)}"
        yield Text(_wrapped(words, width), "yellow")
    if run.succeeded and any(verdict.blocking for verdict in run.verdicts()):
        yield Text("Nothing fails but what is waived; that makes no profile conformant.", "yellow")
    if encodings := run.encodings():
        equal = f"{encodings.get(Encoding.CANONICAL, 0)} of {sum(encodings.values())}"
        yield Text(f"encoded pages that are bit-equal to the canonical encoder's (a SHOULD): {equal}")
    if run.selection:
        words = f"No verdict: not all cases were asked for, or run ({run.selection})."
        yield Text(wording.one_line(words), "yellow")
    yield Text(f"report: {folder}/report.json")


def _verdict_table(verdicts: list[Verdict]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in ("profile", "verdict", "required cases passed", "all cases"):
        table.add_column(title, no_wrap=title == "verdict")
    for verdict in verdicts:
        counts = ", ".join(f"{count} {status}" for status, count in verdict.counts.items())
        is_qualified = verdict.rests_on_reported and verdict.is_conformant is not None
        qualified = f", {wording.ON_REPORTED}" if is_qualified else ""
        table.add_row(
            verdict.profile.value,
            Text.assemble((verdict.word, _COLORS[verdict.is_conformant]), qualified),
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
        grid.add_column("otherwise", no_wrap=True)
        grid.add_column("what it says", overflow="ellipsis", no_wrap=True, ratio=1)
        for row in bad[:_ROWS]:
            style = "red" if not row.passed else "yellow"
            grid.add_row(
                Text(row.requirement.value, style),
                f"{row.passed}/{row.run}",
                ", ".join(f"{count} {status}" for status, count in row.counts.items() if status is not Status.PASS),
                row.requirement.entry.sentence.replace("``", ""),
            )
        yield grid
        if bad[_ROWS:]:
            more = [row.requirement.value for row in bad[_ROWS:]]
            yield _names(f"and {len(more)} more:", more, width)
    if good:
        others = "other requirements" if bad else "requirements"
        yield Text(f"{others} with every case passed: {len(good)}")
    if uncovered:
        yield _names(f"{len(uncovered)} without a case:", uncovered, width)
    yield Text()


def _failures(run: Run, folder: str, width: int) -> Iterator[Text | Table]:
    """The causes of failures, those with the most cases first, each with one example in full."""
    failed = [result for result in run.ordered_results() if result.status.is_failure]
    groups = _groups(result for result in failed if not _follows(result))
    titles = {case.id: case.title for case in run.cases}
    for group in groups[:_CAUSES]:
        example, *others = group
        yield Text(_wrapped(_headline(group), width), "bold red")
        about = f"{example.case} ({example.requirements[0].value}): {titles[example.case]}"
        yield Text(_wrapped(about, width, indent=2), "bold")
        for line in example.reason.splitlines():
            yield Text(_wrapped(line, width, indent=4))
        if example.failure:
            yield Text(f"    {folder}/{example.failure}", "dim")
        yield Text(f"    $ {wording.one_line(example.rerun)}", "cyan")
        if others:
            yield _cases("  the same:", others, width)
        yield Text()
    for group in groups[_CAUSES : _CAUSES + _LINES]:
        yield _cases(f"{_headline(group)}:", group, width)
    if groups[_CAUSES + _LINES :]:
        more = sum(map(len, groups[_CAUSES + _LINES :]))
        yield Text(f"and {more} cases with other causes, which are in the report")
    followers = [result for result in failed if _follows(result)]
    if followers:
        yield _cases(f"{_count(len(followers), 'fails', 'fail')} only because the valid twin does:", followers, width)
    if groups[_CAUSES:] or followers:
        yield Text()


def _groups(results: Iterable[CaseResult]) -> list[list[CaseResult]]:
    """Results with one status and cause together, those about a SHOULD apart, the largest group first."""
    groups: dict[tuple[Status, str, bool], list[CaseResult]] = {}
    for result in results:
        groups.setdefault((result.status, result.cause, result.is_advice), []).append(result)
    return sorted(groups.values(), key=lambda group: -len(group))


def _headline(group: list[CaseResult]) -> str:
    advice = " (which is a SHOULD, and stands in the way of nothing)" if group[0].is_advice else ""
    return f"{_count(len(group), *_VERBS[group[0].status])}: {group[0].cause}{advice}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} case {one}" if number == 1 else f"{number} cases {many}"


def _skips(run: Run, width: int) -> Iterator[Text]:
    """What neither passed nor failed, by its reason."""
    groups: dict[tuple[Status, str], list[CaseResult]] = {}
    for result in run.ordered_results():
        if not result.status.is_failure and result.status is not Status.PASS:
            groups.setdefault((result.status, result.cause or result.reason), []).append(result)
    for (status, reason), group in list(groups.items())[:_LINES]:
        yield _cases(f"{len(group)} {status}: {textwrap.shorten(reason, 200)}:", group, width)
    if len(groups) > _LINES:
        yield Text(f"and {len(groups) - _LINES} other reasons, which are in the report")
    if groups:
        yield Text()


def _follows(result: CaseResult) -> bool:
    """Whether the case only fails because its valid twin does, and was not run itself."""
    return result.cause == TWIN


def _cases(title: str, results: Iterable[CaseResult], width: int) -> Text:
    return _names(title, [result.case for result in results], width)


def _wrapped(line: str, width: int, *, indent: int = 0) -> str:
    return textwrap.fill(
        wording.one_line(line),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )


def _names(title: str, names: list[str], width: int) -> Text:
    """A title and as many names as two lines hold."""
    room = max(40, 2 * width - len(title) - 20)
    shown: list[str] = []
    used = 0
    for name in names:
        used += len(name) + 2
        if used > room:
            break
        shown.append(name)
    more = [f"and {len(names) - len(shown)} more"] if len(shown) < len(names) else []
    text = f"{title.lstrip()} {', '.join([*shown, *more])}"
    return Text(_wrapped(text, width, indent=len(title) - len(title.lstrip())), "dim")
