"""The report of a run: ``report.json``, complete or recognisably not.

Its last member is a footer with the number of results and the SHA-256 of all that stands before it, so that a report
that was cut short, or changed by hand, does not pass for one.
"""

from __future__ import annotations

import collections
import datetime
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mutcache.requirements import Profile, Req, Subject
from mutcache.requirements import Status as RequirementStatus
from mutcache_conformance import badge, environment, manifest, mustpass, provenance, report_folder, reproduce
from mutcache_conformance.adapter import Description
from mutcache_conformance.case import Case
from mutcache_conformance.evidence import Encoding, canonical_json
from mutcache_conformance.mustpass import Verdict
from mutcache_conformance.schema import SchemaError, validate
from mutcache_conformance.status import CaseResult, Status
from mutcache_conformance.wording import printable

FORMAT: Final = 2
_FAILURE: Final = re.compile(r"failures/[a-z]+-[0-9]{3}/[a-z0-9][a-z0-9.-]*")
_LOG: Final = re.compile(r"((?:s\d+of\d+-)?(?:main|gw\d+)-\d+)\.(?:stdout|stderr)\.txt")


class ReportError(ValueError):
    """A file is no complete report."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the suite, finished.

    Attributes:
        runtime: what ``--runtime`` said.
        about: what the runtime says of itself; None when it never came to that.
        cases: every case of the nonce, in order.
        results: those that were run, by case id.
        profiles: the profiles that are claimed.
        selection: why only some cases were run, or "" when the user asked for all.
        configuration: further settings for the record: argv, nonce, timeouts, options.
        waivers: the waivers of the run, as JSON.
        inherited: members of the report that are taken as they are, since the run took place elsewhere.
        product: the product that the claim is for, as ``product.toml`` says.
    """

    runtime: str
    about: Description | None
    cases: Sequence[Case]
    results: Mapping[str, CaseResult]
    profiles: Sequence[Profile]
    selection: str = ""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    waivers: Sequence[Mapping[str, Any]] = ()
    inherited: Mapping[str, Any] = field(default_factory=dict)
    product: Mapping[str, str] | None = None

    def verdicts(self) -> list[Verdict]:
        """The verdict on each claimed profile."""
        return [mustpass.judge(profile, self.results, is_selection=bool(self.selection)) for profile in self.profiles]

    def ordered_results(self) -> list[CaseResult]:
        """The results in the order of the cases."""
        return [self.results[case.id] for case in self.cases if case.id in self.results]

    def claimed_cases(self) -> list[Case]:
        """The cases of the claimed profiles."""
        return [case for case in self.cases if case.profile in self.profiles]

    def encodings(self) -> dict[Encoding, int]:
        """How often a page was encoded in claimed profiles, by what it was beside the canonical encoder's payload."""
        counts: collections.Counter[Encoding] = collections.Counter()
        for verdict in self.verdicts():
            counts.update(verdict.encodings)
        return dict(counts)

    @property
    def succeeded(self) -> bool:
        """Whether the exit status is 0: nothing stands in the way of a verdict, but for failures that are waived."""
        return all(status is Status.WAIVED for verdict in self.verdicts() for status in verdict.blocking.values())


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was shown of one requirement. Cases count for every requirement that they name."""

    requirement: Req
    counts: Mapping[Status, int]
    cases: tuple[str, ...]

    @property
    def passed(self) -> int:
        """Cases that passed."""
        return self.counts.get(Status.PASS, 0)

    @property
    def run(self) -> int:
        """Cases that were run."""
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        """The row as it stands in report.json."""
        entry = self.requirement.entry
        return {
            "requirement": self.requirement.value,
            "level": entry.level.value,
            "profile": entry.profile.value,
            "text_sha256": entry.text_hash,
            "cases": list(self.cases),
            "counts": {status.value: count for status, count in self.counts.items()},
        }


def coverage(run: Run) -> list[Coverage]:
    """Every final requirement of the claimed profiles that binds a model or a runtime, in order."""
    cases = run.claimed_cases()
    table = []
    for requirement in Req:
        entry = requirement.entry
        if entry.status is not RequirementStatus.FINAL or entry.subject is Subject.TOOL:
            continue
        if entry.profile not in run.profiles:
            continue
        ids = tuple(case.id for case in cases if requirement in case.requirements)
        counts = collections.Counter(run.results[case].status for case in ids if case in run.results)
        table.append(Coverage(requirement, {status: counts[status] for status in Status if counts[status]}, ids))
    return table


def build(run: Run) -> dict[str, Any]:
    """The report as JSON, footer included."""
    configuration = {"runtime": run.runtime, **run.configuration}
    body: dict[str, Any] = {
        "format": FORMAT,
        "claim": {
            "specification": provenance.specification(),
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "selection": run.selection,
        },
        "product": None if run.product is None else dict(run.product),
        "runtime": None if run.about is None else run.about.to_json(),
        "adapter": provenance.adapter(run.runtime),
        "suite": provenance.suite(run.cases),
        "environment": environment.describe(),
        "configuration": configuration,
        "waivers": list(run.waivers),
        "reproduce": reproduce.commands(configuration, run.profiles),
        **run.inherited,
        "results": [result.to_json() for result in run.ordered_results()],
    }
    derived = derive(run)
    body["claim"] = {**body["claim"], **derived.pop("claim")}
    body |= derived
    return {**body, "footer": footer(body)}


def derive(run: Run) -> dict[str, Any]:
    """The members of a report that follow from its results; of ``claim`` those that do."""
    results = run.ordered_results()
    not_run = [case.id for case in run.claimed_cases() if case.id not in run.results]
    table = coverage(run)
    unclaimed = [profile for profile in Profile if profile not in run.profiles]
    return {
        "claim": {
            "profiles": [verdict.to_json() for verdict in run.verdicts()],
            "unclaimed": [{"profile": profile.value, "reason": _why_unclaimed(profile)} for profile in unclaimed],
        },
        "not_run": not_run,
        "unsupported": _shortfalls(results),
        "totals": {
            **{status.value: sum(result.status is status for result in results) for status in Status},
            Status.NOT_RUN.value: len(not_run) + sum(result.status is Status.NOT_RUN for result in results),
        },
        "requirements": [row.to_json() for row in table],
        "uncovered": [row.requirement.value for row in table if not row.cases],
    }


def _why_unclaimed(profile: Profile) -> str:
    return "not asked for" if profile in mustpass.profiles() else "this version of the suite has no cases for it"


def _shortfalls(results: Iterable[CaseResult]) -> list[dict[str, Any]]:
    """What was neither passed nor failed: cases with one status and reason together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if not result.status.is_failure and result.status is not Status.PASS:
            groups.setdefault((result.status.value, result.reason), []).append(result.case)
    return [{"status": status, "reason": reason, "cases": cases} for (status, reason), cases in groups.items()]


def write(run: Run, folder: Path) -> Path:
    """Write the report into the folder; what an earlier run left there is removed. Returns the path of report.json.

    ``report.json`` appears whole or not at all; ``report.html`` shows it, ``badges/`` says it in two words, and
    ``manifest.json``, which comes last, lists every file of the folder.
    """
    from mutcache_conformance import report_html  # jinja2 is slow to import, and nothing else needs it

    report = build(run)
    validate(report, "report")
    folder.mkdir(parents=True, exist_ok=True)
    report_folder.clear(folder)
    path = folder / "report.json"
    _write_text(path, text_of(report))
    _write_text(folder / "report.html", report_html.render(report, folder))
    badge.write(run.verdicts(), folder)
    _remove_stale(run, folder)
    manifest.write(folder)
    return path


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _remove_stale(run: Run, folder: Path) -> None:
    """Remove the logs and failing cases of earlier runs, and nothing that is not such a thing."""
    failures = {result.failure for result in run.results.values()}
    for case in folder.glob("failures/*/*/case.json"):
        path = case.parent.relative_to(folder).as_posix()
        if _FAILURE.fullmatch(path) and path not in failures and (case.parent / "reason.txt").is_file():
            shutil.rmtree(case.parent)
    logs = {result.log for result in run.results.values()}
    for log in folder.glob("logs/*"):
        name = _LOG.fullmatch(log.name)
        if name is not None and name[1] not in logs:
            log.unlink()


def read_report(path: Path) -> dict[str, Any]:
    """A report that is complete and follows its schema.

    Raises:
        ReportError: it is not; the message says how.
    """
    if path.exists() and not path.is_file():  # to read it may never end
        raise ReportError(f"{path} cannot be read: it is no file")
    try:
        text = path.read_text(encoding="utf-8")
        report = json.loads(text, parse_constant=_no_number)
        canonical_json(report)  # or it has half a character in it
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is truncated, or no report: {error}") from error
    if not isinstance(report, dict) or list(report)[-1:] != ["footer"]:
        raise ReportError(f"{path} has no footer at its end: it is truncated")
    told = report.pop("footer")
    if told != footer(report):
        raise ReportError(f"{path} is not what its footer says: it was changed or cut after it was written")
    report["footer"] = told
    if text != text_of(report):
        raise ReportError(f"{path} is not in the form in which reports are written, or has a member twice")
    try:
        validate(report, "report")
    except SchemaError as error:
        raise ReportError(f"{path} does not follow its schema: {printable(str(error))}") from None
    return report


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def text_of(report: Mapping[str, Any]) -> str:
    """The one form in which a report is written."""
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def footer(body: Mapping[str, Any]) -> dict[str, Any]:
    """The last member of a report, made from all others."""
    results = body.get("results")
    return {
        "results": len(results) if isinstance(results, list) else 0,
        "sha256": hashlib.sha256(canonical_json(body)).hexdigest(),
    }
