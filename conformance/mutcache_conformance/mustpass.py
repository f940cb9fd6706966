"""Which cases a runtime must pass for a profile, and the verdict on those that it did.

The lists are committed, one per profile, and made by ``python -m mutcache_tools.generate mustpass``. A verdict is
computed against them, never against what happened to run.
"""

from __future__ import annotations

import collections
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from mutcache.requirements import Level, Profile, Req, Subject
from mutcache.requirements import Status as RequirementStatus
from mutcache_conformance import case_json
from mutcache_conformance.case import Case
from mutcache_conformance.evidence import Basis, Encoding, Kind
from mutcache_conformance.status import CaseResult, Status

_FOLDER: Final = files("mutcache_conformance") / "mustpass"
#: Hand-kept: the requirements that an interface may lack the means to express, by profile.
_NOT_APPLICABLE: Final = "not_applicable"
#: Outcomes of a case that no profile can be claimed with, required or not.
_DAMNING: Final = frozenset({Status.FAIL, Status.CRASH, Status.TIMEOUT, Status.WAIVED, Status.HARNESS_ERROR})


@dataclass(frozen=True, slots=True)
class Required:
    """One entry of a list; ``sha256`` is the digest of the case made from nonce 0."""

    case: str
    requirements: tuple[Req, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a profile.

    Attributes:
        profile: the profile.
        is_conformant: None when only a selection of cases was run: then nothing is said.
        required: how many cases the list has.
        passed: how many of these passed.
        counts: all cases of the profile that were run, by status.
        blocking: the cases that stand in the way, with their status; those that are waived among them.
        rests_on_reported: whether memory was read back through the adapter, and so its word was taken for it.
        encodings: how often a page was encoded, by what it was beside the canonical encoder's (MC-QUANT-004).
    """

    profile: Profile
    is_conformant: bool | None
    required: int
    passed: int
    counts: Mapping[Status, int]
    blocking: Mapping[str, Status]
    rests_on_reported: bool
    encodings: Mapping[Encoding, int] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        return {True: "conformant", False: "not conformant", None: "no verdict"}[self.is_conformant]

    def to_json(self) -> dict[str, Any]:
        """The verdict as it stands in report.json."""
        return {
            "profile": self.profile.value,
            "verdict": self.word,
            "required": self.required,
            "passed": self.passed,
            "counts": {status.value: count for status, count in self.counts.items()},
            "blocking": {case: status.value for case, status in self.blocking.items()},
            "rests_on_reported_evidence": self.rests_on_reported,
            "encodings": {encoding.value: count for encoding, count in self.encodings.items()},
        }


def is_required(case: Case) -> bool:
    """Whether a case belongs in the list of its profile: what it shows first is a final MUST that binds a runtime."""
    entry = case.requirements[0].entry
    return (
        case.required
        and entry.level is Level.MUST
        and entry.status is RequirementStatus.FINAL
        and entry.subject is not Subject.TOOL
    )


def make_lists(cases: Iterable[Case]) -> dict[Profile, dict[str, Any]]:
    """The JSON of every list that is not empty; ``cases`` are those of nonce 0."""
    lists: dict[Profile, list[dict[str, Any]]] = collections.defaultdict(list)
    for case in filter(is_required, cases):
        requirements = [requirement.value for requirement in case.requirements]
        lists[case.profile].append({"case": case.id, "requirements": requirements, "sha256": case_json.digest(case)})
    return {
        profile: {"comment": NOTICE, "profile": profile.value, "cases": lists[profile]}
        for profile in Profile
        if profile in lists
    }


NOTICE: Final = "Generated from the cases of nonce 0 by mutcache_tools.generate; do not edit."


def profiles() -> tuple[Profile, ...]:
    """The profiles that have a list."""
    return tuple(profile for profile in Profile if (_FOLDER / f"{profile.value}.json").is_file())


@functools.cache
def required_cases(profile: Profile) -> tuple[Required, ...]:
    """The list of a profile."""
    data = json.loads((_FOLDER / f"{profile.value}.json").read_text("utf-8"))
    return tuple(
        Required(item["case"], tuple(Req(requirement) for requirement in item["requirements"]), item["sha256"])
        for item in data["cases"]
    )


@functools.cache
def may_be_inapplicable(profile: Profile) -> frozenset[Req]:
    """The requirements whose cases may be answered with not-applicable."""
    data = json.loads((_FOLDER / f"{_NOT_APPLICABLE}.json").read_text("utf-8"))
    return frozenset(Req(requirement) for requirement in data.get(profile.value, ()))


def digest_of_lists() -> dict[str, str]:
    """A digest of each list, to be recorded with a verdict."""
    return {profile.value: case_json.sha256((_FOLDER / f"{profile.value}.json").read_bytes()) for profile in profiles()}


def digest_of_not_applicable() -> str:
    """A digest of the list of requirements that an interface may lack the means to express."""
    return case_json.sha256((_FOLDER / f"{_NOT_APPLICABLE}.json").read_bytes())


def judge(profile: Profile, results: Mapping[str, CaseResult], *, is_selection: bool) -> Verdict:
    """The verdict on a profile.

    Args:
        profile: one that has a list.
        results: what was run, by case id; cases of other profiles do no harm.
        is_selection: the user asked for some cases only, so that nothing can be said of the whole.
    """
    required = required_cases(profile)
    blocking: dict[str, Status] = {}
    for entry in required:
        result = results.get(entry.case)
        status = Status.NOT_RUN if result is None else result.status
        if not _suffices(status, entry.requirements, profile) and not (is_selection and result is None):
            blocking[entry.case] = status
    ours = [result for result in results.values() if result.profile is profile]
    blocking |= {result.case: result.status for result in ours if result.status in _DAMNING and not result.is_advice}
    return Verdict(
        profile=profile,
        is_conformant=None if is_selection else not blocking,
        required=len(required),
        passed=sum(entry.case in results and results[entry.case].status is Status.PASS for entry in required),
        counts=_counts(ours),
        blocking=blocking,
        rests_on_reported=any(map(_rests_on_reported, ours)),
        encodings=_encodings(ours),
    )


def _suffices(status: Status, requirements: Sequence[Req], profile: Profile) -> bool:
    if status is Status.NOT_APPLICABLE:
        return not may_be_inapplicable(profile).isdisjoint(requirements)
    return status is Status.PASS


def _counts(results: Iterable[CaseResult]) -> dict[Status, int]:
    counts = collections.Counter(result.status for result in results)
    return {status: counts[status] for status in Status if counts[status]}


def _encodings(results: Iterable[CaseResult]) -> dict[Encoding, int]:
    counts = collections.Counter(
        page.encoding for result in results for step in result.evidence.steps for page in step.pages
    )
    return {encoding: counts[encoding] for encoding in Encoding if counts[encoding] and encoding is not Encoding.NONE}


def _rests_on_reported(result: CaseResult) -> bool:
    """Whether the contents of memory, and not only of outputs, were taken from the adapter."""
    return any(
        observation.basis is Basis.REPORTED and observation.kind in (Kind.CONTENTS, Kind.UNTOUCHED)
        for step in result.evidence.steps
        for observation in step.observations
    )
