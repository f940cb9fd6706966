"""Checks the results of a report: that they are those of the cases, and that statuses and verdicts follow from them."""

from __future__ import annotations

import collections
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from mutcache.requirements import Profile
from mutcache_conformance import case_json, mustpass, provenance, recollection, reproduce, waivers
from mutcache_conformance.adapter import Description
from mutcache_conformance.case import Case
from mutcache_conformance.evidence import Kind, Observation
from mutcache_conformance.judgement import (
    UnsoundEvidence,
    judge,
    judge_unplayed,
    may_still_fail,
    phase_expected,
    phase_observed,
)
from mutcache_conformance.report import Run, derive
from mutcache_conformance.status import CaseResult, Status

_PASS_WORDS: Final = ("reason", "cause", "failure")


def problems(
    report: Mapping[str, Any], cases: tuple[Case, ...], notes: list[str] | None = None
) -> dict[str, list[str]]:
    """What is wrong with the results of a report, by the check that found it.

    Args:
        report: it follows its schema.
        cases: the cases of its nonce.
        notes: takes what a reader should know, and is no problem.
    """
    notes = [] if notes is None else notes
    made = {"cases": found_by(_cases, report, cases)}
    if not made["cases"]:
        results = results_of(report)
        by_id = {case.id: case for case in cases}
        made["evidence"] = found_by(_evidence, report, results, by_id, notes)
        made["waivers"] = found_by(_waivers, report, results, notes)
        made["verdicts"] = found_by(_derived, report, results, cases)
    return made


def found_by(check: Callable[..., Iterable[str]], *arguments: Any) -> list[str]:
    """What a check finds. A report that it cannot cope with is none that a run wrote."""
    found = []
    try:
        for problem in check(*arguments):
            found.append(problem)  # noqa: PERF402 - it stays if the next one cannot be found
    except Exception as error:
        found.append(f"it cannot be checked: {error or type(error).__name__}")
    return found


def _cases(report: Mapping[str, Any], cases: tuple[Case, ...]) -> Iterator[str]:
    """Every result is one of a case, each case has at most one, and those of the mustpass lists exactly one."""
    known = {case.id: case for case in cases}
    count = collections.Counter(result["case"] for result in report["results"])
    yield from (f"{case} has {number} results" for case, number in count.items() if number > 1)
    yield from (f"there is no case {case}" for case in count if case not in known)
    profiles = [verdict["profile"] for verdict in report["claim"]["profiles"]]
    if profiles != [profile.value for profile in mustpass.profiles() if profile in profiles]:
        yield f"the claimed profiles are {profiles}: they must be different, and in the order of the specification"
        return
    if not report["claim"]["selection"]:
        for profile in profiles:
            missing = [one.case for one in mustpass.required_cases(Profile(profile)) if one.case not in count]
            yield from (f"{case}, which profile {profile} requires, has no result" for case in missing)
    order = [case.id for case in cases if case.id in count]
    if list(count) != order:
        yield "the results are not in the order of the cases"
    for result in report["results"]:
        case = known.get(result["case"])
        if case is not None:
            yield from _case(result, case)


def _case(result: Mapping[str, Any], case: Case) -> Iterator[str]:
    expected = {
        "profile": case.profile.value,
        "requirements": [requirement.value for requirement in case.requirements],
        "phase_expected": list(phase_expected(case)),
        "case_sha256": case_json.digest(case),
    }
    for name, value in expected.items():
        if result[name] != value:
            yield f"{case.id}: {name} is {result[name]}, that of the case is {value}"


def results_of(report: Mapping[str, Any]) -> dict[str, CaseResult]:
    """The results of a report by case."""
    return {data["case"]: CaseResult.from_json(data) for data in report["results"]}


def _evidence(
    report: Mapping[str, Any], results: Mapping[str, CaseResult], cases: Mapping[str, Case], notes: list[str]
) -> Iterator[str]:
    """The status of every result, computed again from what was recorded."""
    if report["runtime"] is None:
        yield "there are results, and nothing is said of the runtime"
        return
    about = Description.from_json(report["runtime"])
    opaque = 0
    is_of_many = report["configuration"]["workers"] > 1 or bool(report["configuration"]["parts"])
    told = {data["case"]: data["evidence_sha256"] for data in report["results"]}
    for result in results.values():
        if told[result.case] != result.evidence.digest():
            yield f"{result.case}: evidence_sha256 is not that of the evidence"
        if result.phase_observed != phase_observed(result.evidence):
            yield f"{result.case}: phase_observed is {result.phase_observed!r}, which is not what the evidence says"
        status = result.status if result.unwaived is None else result.unwaived
        if status is Status.PASS and any(getattr(result, name) for name in _PASS_WORDS):
            yield f"{result.case}: it passed, and yet something is said to be wrong"
        if status is not Status.PASS and not result.reason:
            yield f"{result.case}: it did not pass, and no reason is given"
        case = cases[result.case]
        is_measured = case.measure is not None and bool(result.evidence.steps)
        if is_measured != (result.memory is not None) and status is not Status.NOT_RUN:
            yield f"{result.case}: there are {'no ' if is_measured else ''}figures of memory"
        if result.memory is not None and ("device" in result.memory) != about.is_on_device:
            yield f"{result.case}: the figures of memory are not those of a runtime with caches in {about.device}"
        if any(one.basis is not about.basis for one in _of_memory(result)):
            yield f"{result.case}: memory was not {about.basis}, as it is recorded, with caches in {about.device}"
        try:
            possible = _possible(case, result, results, about, is_of_many=is_of_many)
            if status in possible and result.evidence.steps:
                opaque += not recollection.check(case, result.evidence, about)
        except UnsoundEvidence as error:
            if status is not Status.HARNESS_ERROR:
                yield f"{result.case}: {error}"
            continue
        if status not in possible:
            yield f"{result.case}: the status is {status}; the evidence makes it {' or '.join(possible)}"
    if opaque:
        notes.append(
            f"{opaque} cases have page tables or very large storages: what was expected of their memory is taken as it "
            "is recorded, and only a rerun checks it"
        )


def _of_memory(result: CaseResult) -> Iterator[Observation]:
    """What was seen of bytes that a step must not change. A write that ended the process was seen by the kernel."""
    for step in result.evidence.steps:
        if step.answer != "crash":
            yield from (one for one in step.observations if one.kind is Kind.UNTOUCHED)


def _possible(
    case: Case, result: CaseResult, results: Mapping[str, CaseResult], about: Description, *, is_of_many: bool
) -> tuple[Status, ...]:
    """The statuses that the record of a case leaves open; nearly always one."""
    twin = _twin(result, results.get(case.twin), is_of_many=is_of_many)
    of_twin = None if twin is None else twin.unwaived or twin.status
    unplayed = judge_unplayed(case, about, of_twin)
    if unplayed is not None:
        if not result.evidence.steps:
            return (unplayed,)
        status = judge(case, result.evidence, result.memory) if may_still_fail(unplayed, of_twin) else None
        if status is None or not status.is_failure:
            raise UnsoundEvidence(f"it was played, and yet it could not pass ({unplayed})")
        return (status,)
    if result.evidence.steps:
        status = judge(case, result.evidence, result.memory)
        return (Status.HARNESS_ERROR,) if status is None else (status,)
    if twin is None and case.twin:
        return (Status.FAIL, Status.UNSUPPORTED, Status.NOT_APPLICABLE, Status.HARNESS_ERROR, Status.NOT_RUN)
    return (Status.HARNESS_ERROR, Status.NOT_RUN)


def _twin(result: CaseResult, twin: CaseResult | None, *, is_of_many: bool) -> CaseResult | None:
    """The valid twin as the process that had a case knew it; None if the report does not say.

    Of several processes each plays the twins that it needs, and what one of them came to stands in the report.
    """
    if twin is None or twin.status is Status.HARNESS_ERROR:
        return None
    process, other = (one.log.rpartition("-")[0] for one in (result, twin))
    return twin if not is_of_many or (process and process == other) else None


def _waivers(report: Mapping[str, Any], results: Mapping[str, CaseResult], notes: list[str]) -> Iterator[str]:
    """A waived case has one waiver that held, and a waiver is of no case that failed all the same."""
    day = report["claim"]["date"]
    covered: collections.Counter[str] = collections.Counter()
    for waiver in report["waivers"]:
        covered.update(waiver["cases"])
        try:
            datetime.date.fromisoformat(waiver["expires"])
        except ValueError:
            yield f"a waiver expires on {waiver['expires']}, which is no day"
        read = waiver.get("read", day)
        if waiver["expires"] < read:
            yield f"the waiver of {', '.join(waiver['cases'])} expired on {waiver['expires']}"
        if read > day:
            yield f"the waiver of {', '.join(waiver['cases'])} was read on {read}, after the report was written"
    yield from (f"{case} is waived more than once" for case, number in covered.items() if number > 1)
    for case in covered:
        result = results.get(case)
        if result is not None and result.status in waivers.WAIVABLE:
            yield f"{case} has a waiver, and is not waived ({result.status})"
    given = [waivers.Waiver.from_json(waiver) for waiver in report["waivers"]]
    notes += waivers.unused(given, results)
    for result in results.values():
        if (result.status is Status.WAIVED) != (result.unwaived is not None):
            yield f"{result.case}: the status is {result.status}, and {result.unwaived} without waivers"
        if result.status is Status.WAIVED and result.case not in covered:
            yield f"{result.case} is waived, and there is no waiver for it"


def run_of(report: Mapping[str, Any], results: Mapping[str, CaseResult], cases: tuple[Case, ...]) -> Run:
    """The run that the report says that it was."""
    profiles = [Profile(verdict["profile"]) for verdict in report["claim"]["profiles"]]
    return Run(report["configuration"]["runtime"], None, cases, results, profiles, report["claim"]["selection"])


def _derived(report: Mapping[str, Any], results: Mapping[str, CaseResult], cases: tuple[Case, ...]) -> Iterator[str]:
    """Verdicts, totals, coverage: everything that follows from the results."""
    configuration, run = report["configuration"], run_of(report, results, cases)
    derived = derive(run)
    claim = derived.pop("claim")
    for made, recomputed in zip(report["claim"]["profiles"], claim["profiles"], strict=True):
        if made != recomputed:
            wrong = [name for name in recomputed if made[name] != recomputed[name]]
            yield f"the verdict on profile {made['profile']} does not follow from the results: {', '.join(wrong)}"
    if report["claim"]["unclaimed"] != claim["unclaimed"]:
        yield "claim.unclaimed does not follow from what is claimed"
    yield from (f"{name} does not follow from the results" for name in derived if report[name] != derived[name])
    if report["reproduce"] != reproduce.commands(configuration, run.profiles):
        yield "the commands that reproduce it are not those of its configuration"
    if report["adapter"]["runtime"] != configuration["runtime"]:
        yield "adapter.runtime is not the runtime of the configuration"
    source = report["adapter"]["source"]
    if report["adapter"]["source_sha256"] != provenance.digest_of_sources(source):
        yield "adapter.source_sha256 is not that of the files named there"
    if configuration["shard"] != "1/1" and not report["claim"]["selection"]:
        yield f"it is shard {configuration['shard']} only, and has a verdict"
    parts = configuration["parts"]
    shards = [part["shard"] for part in parts]
    if parts and (len(parts) < 2 or shards != [f"{number}/{len(parts)}" for number in range(1, len(parts) + 1)]):
        yield f"it was merged from parts {', '.join(shards)}, which are not those of one run"
    elif parts and (configuration["shard"] != "1/1" or configuration["argv"]):
        yield "it was merged, and yet it is said how it was run"
    elif parts and parts[0]["environment"] != report["environment"]:
        yield "it was merged, and its environment is not that of its first part"
