"""What changed from one report to another, case by case."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mutcache_conformance import wording
from mutcache_conformance.status import Status

FORMAT: Final = 1


class Change(enum.StrEnum):
    """What became of a case, the gravest first."""

    #: It passed, or at least did not fail, and that is over.
    BROKEN = "broken"
    #: It passes now.
    FIXED = "fixed"
    #: It did not pass and does not, for another reason.
    CHANGED = "changed"
    #: Its status is the same, and what was seen is not.
    EVIDENCE = "changed evidence"
    #: The second report alone has it.
    NEW = "new"
    #: The first report alone has it.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One case that is not as it was.

    Attributes:
        case: its id.
        requirement: what it shows first.
        change: what became of it.
        before: its status in the first report, or "".
        after: its status in the second, or "".
        detail: why, in a line: the reason that it has now, or where what was seen differs.
    """

    case: str
    requirement: str
    change: Change
    before: str
    after: str
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        """The change as ``mutcache compare --format json`` prints it."""
        return {
            "case": self.case,
            "requirement": self.requirement,
            "change": self.change.value,
            "before": self.before,
            "after": self.after,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting or a verdict of the two runs that is not the same; "" where a report has none."""

    what: str
    before: str
    after: str

    def to_json(self) -> dict[str, str]:
        """The difference as ``mutcache compare --format json`` prints it."""
        return {"what": self.what, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports side by side.

    Attributes:
        before: the first: name of the runtime and its version.
        after: the second.
        verdicts: the profiles that either claims, with both verdicts.
        conditions: what else the runs differ in: versions, nonce, selection.
        changes: the cases that are not as they were, the gravest changes first, else in the order of the reports.
        unchanged: how many cases are.
        incomparable: how many cases are themselves not what they were, so that their evidence has to differ.
    """

    before: str
    after: str
    verdicts: tuple[Difference, ...]
    conditions: tuple[Difference, ...]
    changes: tuple[CaseChange, ...]
    unchanged: int
    incomparable: int

    def of(self, change: Change) -> list[CaseChange]:
        """The cases of one kind of change."""
        return [one for one in self.changes if one.change is change]

    @property
    def is_broken(self) -> bool:
        """Whether anything that was right is not any more."""
        return any(one.change is Change.BROKEN for one in self.changes)

    def to_json(self) -> dict[str, Any]:
        """The comparison as ``mutcache compare --format json`` prints it; ``schemas/comparison.json`` describes it."""
        return {
            "format": FORMAT,
            "before": self.before,
            "after": self.after,
            "is_broken": self.is_broken,
            "verdicts": [difference.to_json() for difference in self.verdicts],
            "conditions": [difference.to_json() for difference in self.conditions],
            "totals": {change.value: len(self.of(change)) for change in Change},
            "unchanged": self.unchanged,
            "incomparable": self.incomparable,
            "changes": [change.to_json() for change in self.changes],
        }


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Comparison:
    """Compare two reports, as ``report.read_report`` reads them. Times, addresses and logs are never compared."""
    old = {result["case"]: result for result in before["results"]}
    new = {result["case"]: result for result in after["results"]}
    missing = _missing(after)
    changes, unchanged, incomparable = [], 0, 0
    for case in {**old, **new}:
        change = _change(case, old.get(case), new.get(case), is_missing=case in missing)
        if change is None:
            unchanged += 1
        else:
            changes.append(change)
        incomparable += case in old and case in new and old[case]["case_sha256"] != new[case]["case_sha256"]
    order = list(Change)
    return Comparison(
        before=_name(before),
        after=_name(after),
        verdicts=tuple(_verdicts(before, after)),
        conditions=tuple(_conditions(before, after)),
        changes=tuple(sorted(changes, key=lambda change: order.index(change.change))),
        unchanged=unchanged,
        incomparable=incomparable,
    )


def _missing(report: Mapping[str, Any]) -> frozenset[str]:
    """Cases that should have been run, and were not: the user did not choose them away."""
    chosen = report["claim"]["selection"]
    is_whole = not chosen or chosen == INTERRUPTED
    return frozenset(report["not_run"]) if is_whole else frozenset()


#: The selection of a report whose user asked for everything, and ended the run before its end.
INTERRUPTED: Final = "the run was interrupted"


def _change(
    case: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, *, is_missing: bool
) -> CaseChange | None:
    """What became of a case; None if nothing did."""
    known = new or old
    assert known is not None  # it is a case of one of them
    requirement = known["requirements"][0]
    before = old["status"] if old is not None else ""
    after = new["status"] if new is not None else ""
    if old is None:
        return CaseChange(case, requirement, Change.NEW, "", after, _first_line(known["reason"]))
    if new is None:
        was_right = not Status(before).is_failure and is_missing
        kind = Change.BROKEN if was_right else Change.GONE
        return CaseChange(case, requirement, kind, before, Status.NOT_RUN.value if is_missing else "", "it was not run")
    if before == after:
        if old["case_sha256"] != new["case_sha256"] or old["evidence_sha256"] == new["evidence_sha256"]:
            return None
        return CaseChange(case, requirement, Change.EVIDENCE, before, after, _first_difference(old, new))
    passed, passes = before == Status.PASS.value, after == Status.PASS.value
    failed, fails = Status(before).is_failure, Status(after).is_failure
    kind = Change.FIXED if passes else Change.BROKEN if passed or (fails and not failed) else Change.CHANGED
    return CaseChange(case, requirement, kind, before, after, _first_line(new["reason"]))


def _first_line(reason: str) -> str:
    return reason.splitlines()[0] if reason else ""


def _first_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Where two records of one case part."""
    for one, other in zip(old["evidence"], new["evidence"], strict=False):
        step = f"step {one['index'] + 1} ({one['operation']})"
        for key in ("answer", "phase", "requirement"):
            if one[key] != other[key]:
                return f"{step}: {key} {one[key] or 'none'!r} before, {other[key] or 'none'!r} after"
        for seen, now in zip(one["observations"], other["observations"], strict=False):
            if seen != now:
                what = f"{now['kind']} of {now['subject']}"
                if seen | {"basis": now["basis"]} == now:
                    return f"{step}: {what}: {seen['basis']} before, {now['basis']} after"
                return f"{step}: {what}: found {seen['found']} before, {now['found']} after"
        if len(one["observations"]) != len(other["observations"]):
            return f"{step}: {len(one['observations'])} observations before, {len(other['observations'])} after"
        if one != other:
            return f"{step}: what was recorded of its pages differs"
    return f"{len(old['evidence'])} steps before, {len(new['evidence'])} after"


def _name(report: Mapping[str, Any]) -> str:
    about = report["runtime"]
    return f"{about['runtime']} {about['runtime_version']}".strip() if about is not None else "unknown runtime"


def _verdicts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    sides = [{one["profile"]: one for one in report["claim"]["profiles"]} for report in (before, after)]
    devices = [wording.device_of(report) for report in (before, after)]
    for profile in {**sides[0], **sides[1]}:
        verdicts = (_verdict(side.get(profile), device) for side, device in zip(sides, devices, strict=True))
        yield Difference(profile, *verdicts)


def _verdict(verdict: Mapping[str, Any] | None, device: str) -> str:
    if verdict is None:
        return "not claimed"
    qualified = f", {wording.on_reported(device)}" if verdict["rests_on_reported_evidence"] else ""
    return f"{verdict['verdict']} ({verdict['passed']} of {verdict['required']}){qualified}"


def _conditions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for what, one, other in zip(_CONDITIONS, *map(_condition_values, (before, after)), strict=True):
        if one != other:
            yield Difference(what, one, other)
    packages = [report["environment"]["packages"] for report in (before, after)]
    for package in sorted({**packages[0], **packages[1]}):
        one, other = (side.get(package, "") for side in packages)
        if one != other:
            yield Difference(package, one, other)


_CONDITIONS: Final = (
    "adapter",
    "device",
    "selection",
    "nonce",
    "options",
    "specification",
    "cases",
    "python",
    "os",
    "cpu",
)


def _condition_values(report: Mapping[str, Any]) -> tuple[str, ...]:
    about, suite, place = report["runtime"] or {}, report["suite"], report["environment"]
    specification = report["claim"]["specification"]
    options = report["configuration"]["options"]
    return (
        f"{about.get('adapter', '')} {about.get('adapter_version', '')}".strip(),
        about.get("device", ""),
        report["claim"]["selection"],
        str(report["configuration"]["nonce"]),
        " ".join(f"{key}={value}" for key, value in options.items()),
        f"{specification['version']} ({specification['requirements_sha256'][:12]})",
        suite["cases_sha256"][:12],
        place["python"],
        place["os"],
        place["cpu"],
    )
