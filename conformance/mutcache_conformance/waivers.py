"""Failures that are known, explained and put up with for a while: ``waivers.toml``.

A registered adapter has its waivers beside it, ``adapters/NAME.waivers.toml``; others come with ``--waivers FILE``::

    [[waiver]]
    cases = ["dense-013/row-overflow"]
    reason = "the kernel clamps positions in a batch"
    issue = "https://example.org/issues/7"
    expires = 2027-01-31        # the last day on which it holds

A waived failure is shown as skipped, never as passed, and its profile is not conformant. An entry that is out of date,
names no case, or waives a case that does not fail, is an error: the file always says what is wrong now.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mutcache_conformance.status import CaseResult, Status
from mutcache_conformance.wording import one_line, printable

#: What a waiver can cover: what the runtime did wrong. What it never tried, or the harness could not do, is no failure.
WAIVABLE: Final = frozenset({Status.FAIL, Status.CRASH, Status.TIMEOUT})
#: Outcomes that do not show whether a waiver is still needed.
_SAYS_NOTHING: Final = frozenset({Status.HARNESS_ERROR, Status.NOT_RUN})
_KEYS: Final = frozenset({"cases", "reason", "issue", "expires"})
_HOW: Final = 'a waiver is [[waiver]] with cases = ["..."], reason = "...", issue = "https://..." and expires = a date'


class WaiverError(ValueError):
    """A waivers file that cannot be used.

    Attributes:
        problems: everything that is wrong with it, one sentence each.
    """

    def __init__(self, source: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{source} is not in order:", *(f"  - {problem}" for problem in self.problems)]))


@dataclass(frozen=True, slots=True)
class Waiver:
    """One entry of the file.

    Attributes:
        cases: ids of the cases that may fail.
        reason: why they do.
        issue: address of the issue in which that is being dealt with.
        expires: the last day on which the waiver holds.
        read: the day on which it was read, and held.
    """

    cases: tuple[str, ...]
    reason: str
    issue: str
    expires: datetime.date
    read: datetime.date | None = None

    @property
    def words(self) -> str:
        """The waiver in a line."""
        return one_line(f"{self.reason} ({self.issue}, until {self.expires.isoformat()})")

    def to_json(self) -> dict[str, Any]:
        """The waiver as it stands in report.json."""
        return {
            "cases": list(self.cases),
            "reason": self.reason,
            "issue": self.issue,
            "expires": self.expires.isoformat(),
            **({} if self.read is None else {"read": self.read.isoformat()}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Waiver:
        """The waiver that ``to_json`` wrote."""
        expires = datetime.date.fromisoformat(data["expires"])
        read = datetime.date.fromisoformat(data["read"]) if "read" in data else None
        return cls(tuple(data["cases"]), data["reason"], data["issue"], expires, read)


def read(file: Path, cases: Collection[str], today: datetime.date) -> tuple[Waiver, ...]:
    """The waivers of a file.

    Args:
        file: the file.
        cases: ids of all cases of the suite.
        today: the day on which the waivers must hold.

    Raises:
        WaiverError: there is something wrong with the file or any entry.
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise WaiverError(str(file), [f"it cannot be read: {error.strerror or error}"]) from None
    except ValueError as error:  # of TOML, or of UTF-8
        raise WaiverError(str(file), [f"it is no TOML: {error}"]) from None
    entries = data.get("waiver", [])
    problems = [f"{key!r} is not known: {_HOW}" for key in sorted(data.keys() - {"waiver"})]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise WaiverError(str(file), [*problems, _HOW])
    waivers = []
    for number, entry in enumerate(entries, 1):
        wrong = _problems_of_form(entry)
        problems += [f"waiver {number}: {problem}" for problem in wrong]
        if not wrong:
            reason = entry["reason"].strip()
            waivers.append(Waiver(tuple(entry["cases"]), reason, entry["issue"], entry["expires"], today))
            problems += [f"waiver {number}: {problem}" for problem in _problems(waivers[-1], cases, today)]
    named = [case for waiver in waivers for case in waiver.cases]
    problems += [f"case {case!r} is waived more than once" for case in sorted({c for c in named if named.count(c) > 1})]
    if problems:
        raise WaiverError(str(file), problems)
    return tuple(waivers)


def _problems_of_form(entry: Mapping[str, Any]) -> list[str]:
    problems = [f"{key!r} is not known: {_HOW}" for key in sorted(entry.keys() - _KEYS)]
    problems += [f"{key!r} is missing: {_HOW}" for key in sorted(_KEYS - entry.keys())]
    if problems:
        return problems
    cases, expires = entry["cases"], entry["expires"]
    if not isinstance(cases, list) or not cases or not all(isinstance(case, str) for case in cases):
        problems.append("'cases' must be a list of case ids")
    if not isinstance(entry["reason"], str) or not entry["reason"].strip():
        problems.append("'reason' must say why the cases may fail")
    issue = urlsplit(entry["issue"]) if isinstance(entry["issue"], str) else None
    if issue is None or issue.scheme not in ("http", "https") or not issue.netloc:
        problems.append("'issue' must be the address of an issue, https://...")
    # A date with a time is a date to Python, and its comparison with one an error.
    if not isinstance(expires, datetime.date) or isinstance(expires, datetime.datetime):
        problems.append("'expires' must be a date without quotes, such as 2027-01-31")
    return problems


def _problems(waiver: Waiver, cases: Collection[str], today: datetime.date) -> list[str]:
    problems = []
    for case in waiver.cases:
        if case not in cases:
            near = difflib.get_close_matches(case, cases, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            problems.append(f"{printable(case, 100)!r} is no case of this suite{hint}")
    if waiver.expires < today:
        problems.append(
            f"it has expired: {waiver.expires.isoformat()} is before {today.isoformat()} "
            f"({one_line(waiver.reason, 100)}: {one_line(', '.join(waiver.cases))})"
        )
    return problems


def apply(waivers: Iterable[Waiver], result: CaseResult) -> CaseResult:
    """The result as it counts: a failure that is waived becomes ``WAIVED``, and keeps its evidence."""
    if result.status not in WAIVABLE:
        return result
    waiver = next((waiver for waiver in waivers if result.case in waiver.cases), None)
    if waiver is None:
        return result
    return dataclasses.replace(
        result,
        status=Status.WAIVED,
        unwaived=result.status,
        cause=waiver.words,
        reason=f"{waiver.words}\n{result.status}: {result.reason}",
    )


def unused(waivers: Iterable[Waiver], results: Mapping[str, CaseResult]) -> list[str]:
    """What is said of each waived case that was run and did not fail; those that were not run are not spoken of."""
    return [
        f"case {case!r} is waived, and its status is {results[case].status}: take it out of {waiver.reason!r}"
        for waiver in waivers
        for case in waiver.cases
        if case in results and results[case].status not in WAIVABLE | _SAYS_NOTHING | {Status.WAIVED}
    ]
