"""Checks a report without the runtime: that it is whole, that it is about this suite, and that its verdicts follow.

What is found is a list of problems. What cannot be found this way is written down in ``UNVERIFIABLE``: members that
nothing else in a report determines. Digests prove integrity, not honesty: whoever makes a report can make the whole
record. A signature says who answers for it, and a rerun (see ``rerun``) whether it is true.
"""

from __future__ import annotations

import collections
import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from mutcache.requirements import Profile
from mutcache_conformance import badge, case_json, manifest, mustpass, provenance, recollection, reproduce, wording
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
from mutcache_conformance.protocol import VERSION as PROTOCOL
from mutcache_conformance.report import ReportError, Run, derive, read_report
from mutcache_conformance.status import CaseResult, Status

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

#: Members of report.json that a forger can change at will if the footer, the page and the manifest are made again:
#: who was tested and where, and free words. Only a signature protects these; ``*`` stands for any name or number.
UNVERIFIABLE: Final = (
    "claim.date",
    "claim.selection",
    "product",
    "product.*",
    "runtime.runtime",
    "runtime.runtime_version",
    "runtime.adapter",
    "runtime.adapter_version",
    "runtime.capabilities",
    "runtime.capabilities.*",
    "runtime.alignment",
    "runtime.concurrent_runs",
    "runtime.checks",
    "runtime.checks.*",
    "adapter.command",
    "adapter.command.*",
    "adapter.source",
    "adapter.source.*",
    "adapter.source.*.*",
    "suite.origin.*",
    "suite.origin.changed.*",
    "environment.*",
    "environment.packages.*",
    "environment.variables.*",
    "environment.gpus.*",
    "configuration.argv",
    "configuration.argv.*",
    "configuration.restarts",
    "configuration.hangs",
    "configuration.workers",
    "configuration.resumed",
    "results.*.reason",
    "results.*.cause",
    "results.*.duration",
    "results.*.attempts",
    "results.*.log",
    "results.*.rerun",
    "results.*.memory.is_limited",
    "results.*.memory.curve.*.*",
    "results.*.memory.sessions.*.runs.*",
    "results.*.memory.pages.*",
    "results.*.memory.device.is_limited",
    "results.*.memory.device.curve.*.*",
    "results.*.memory.device.sessions.*.runs.*",
    "results.*.memory.device.pages.*",
    "results.*.evidence.*.phase",
    "results.*.evidence.*.requirement",
    "results.*.evidence.*.pages.*.*",
    "waivers.*.reason",
    "waivers.*.issue",
)
#: So many problems of one kind are told.
_TOLD: Final = 20
_PASS_WORDS: Final = ("reason", "cause", "failure")


@dataclass(slots=True)
class Verification:
    """What came of checking a report.

    Attributes:
        problems: what is wrong, by the check that found it; a check that found nothing has an empty list.
        notes: what a reader should know, and is no problem.
        report: the report, if it could be read.
    """

    problems: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    report: dict[str, Any] | None = None

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.problems.values())


def verify(
    folder: Path, cases_of: Callable[[int], tuple[Case, ...]], key: Ed25519PublicKey | None = None
) -> Verification:
    """Check the report of a folder.

    Args:
        folder: the report folder.
        cases_of: makes the cases of a nonce.
        key: whose signature the report must bear; None if that is not asked.
    """
    made = Verification()
    made.problems["manifest"] = _manifest(folder)
    try:
        report = read_report(folder / "report.json")
    except ReportError as error:
        made.problems["report"] = [str(error)]
        return made
    made.report, made.problems["report"] = report, []
    cases = cases_of(report["configuration"]["nonce"])
    made.problems["suite"] = _suite(report, cases)
    made.notes += _notes(report)
    if report["suite"]["cases_sha256"] != provenance.digest_of_cases(cases):
        made.notes.append("results cannot be judged: this suite has other cases")
    else:
        by_id = {case.id: case for case in cases}
        made.problems["cases"] = list(_cases(report, cases))
        if not made.problems["cases"]:
            results = _results(report)
            made.problems["evidence"] = list(_evidence(report, results, by_id, made.notes))
            made.problems["waivers"] = list(_waivers(report, results))
            made.problems["verdicts"] = list(_derived(report, results, cases))
        made.problems["folder"] = list(_folder(report, folder, by_id))
        if not any(made.problems.values()):
            made.problems["folder"] += _badges(_run(report, results, cases), folder)
    signature = _signature(folder, report, key, made.notes)
    if key is not None or signature:
        made.problems["signature"] = signature
    made.problems = {check: _few(found) for check, found in made.problems.items()}
    return made


def _few(found: list[str]) -> list[str]:
    more = len(found) - _TOLD
    return [*found[:_TOLD], f"and {more} more"] if more > 0 else found


def _manifest(folder: Path) -> list[str]:
    try:
        return manifest.problems(folder)
    except manifest.ManifestError as error:
        return [str(error)]


def _notes(report: Mapping[str, Any]) -> list[str]:
    origin = report["suite"]["origin"]
    notes = []
    if origin["is_clean"] is False:
        notes.append(f"the suite that made it had files that its {origin['kind']} has not")
    if report["claim"]["selection"]:
        notes.append(f"it has no verdict: not all cases were asked for, or run ({report['claim']['selection']})")
    if any(verdict["rests_on_reported_evidence"] for verdict in report["claim"]["profiles"]):
        notes.append(f"{wording.ON_REPORTED}: {wording.on_whose_word(wording.device_of(report))}")
    return notes


def _suite(report: Mapping[str, Any], cases: tuple[Case, ...]) -> list[str]:
    """What the report rests on, against what is installed here."""
    here = {"version": provenance.version(), **provenance.digests(cases)}
    told = report["suite"]
    found = []
    if told["sources_sha256"] != here["sources_sha256"]:
        found.append(f"it was made by other files of the suite, version {told['version']}; here is {here['version']}")
    if report["adapter"]["protocol"] != PROTOCOL:
        found.append(f"it was made with protocol {report['adapter']['protocol']}; here is {PROTOCOL}")
    for name, words in (
        ("mustpass_sha256", "the lists of required cases"),
        ("not_applicable_sha256", "the list of what an interface may lack"),
        ("cases_sha256", f"the cases of nonce {report['configuration']['nonce']}"),
        ("version", "the version of the suite"),
    ):
        if told[name] != here[name]:
            found.append(f"{words}: {told[name]} in the report, {here[name]} here")
    if report["claim"]["specification"] != provenance.specification():
        found.append("the specification is not the one of this suite")
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


def _results(report: Mapping[str, Any]) -> dict[str, CaseResult]:
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
            possible = _possible(case, result, results, about)
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
    case: Case, result: CaseResult, results: Mapping[str, CaseResult], about: Description
) -> tuple[Status, ...]:
    """The statuses that the record of a case leaves open; nearly always one."""
    twin = results.get(case.twin)
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


def _waivers(report: Mapping[str, Any], results: Mapping[str, CaseResult]) -> Iterator[str]:
    """A waived case has one waiver that held, and a waiver has cases that were waived."""
    day = report["claim"]["date"]
    covered: collections.Counter[str] = collections.Counter()
    for waiver in report["waivers"]:
        covered.update(waiver["cases"])
        try:
            datetime.date.fromisoformat(waiver["expires"])
        except ValueError:
            yield f"a waiver expires on {waiver['expires']}, which is no day"
        if waiver["expires"] < day:
            yield f"the waiver of {', '.join(waiver['cases'])} expired on {waiver['expires']}"
    yield from (f"{case} is waived more than once" for case, number in covered.items() if number > 1)
    for case in covered:
        result = results.get(case)
        if result is not None and result.status is not Status.WAIVED:
            yield f"{case} has a waiver, and is not waived ({result.status})"
    for result in results.values():
        if (result.status is Status.WAIVED) != (result.unwaived is not None):
            yield f"{result.case}: the status is {result.status}, and {result.unwaived} without waivers"
        if result.status is Status.WAIVED and result.case not in covered:
            yield f"{result.case} is waived, and there is no waiver for it"


def _run(report: Mapping[str, Any], results: Mapping[str, CaseResult], cases: tuple[Case, ...]) -> Run:
    """The run that the report says that it was."""
    profiles = [Profile(verdict["profile"]) for verdict in report["claim"]["profiles"]]
    return Run(report["configuration"]["runtime"], None, cases, results, profiles, report["claim"]["selection"])


def _derived(report: Mapping[str, Any], results: Mapping[str, CaseResult], cases: tuple[Case, ...]) -> Iterator[str]:
    """Verdicts, totals, coverage: everything that follows from the results."""
    configuration, run = report["configuration"], _run(report, results, cases)
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
    if configuration["shard"] != "1/1" and not configuration["parts"] and not report["claim"]["selection"]:
        yield f"it is shard {configuration['shard']} only, and has a verdict"


def _folder(report: Mapping[str, Any], folder: Path, cases: Mapping[str, Case]) -> Iterator[str]:
    """The files beside report.json, as far as they follow from it."""
    from mutcache_conformance import report_html

    try:
        page = (folder / "report.html").read_text(encoding="utf-8")
        if page != report_html.render(report, folder):
            yield "report.html does not show what report.json says"
    except (OSError, UnicodeDecodeError) as error:
        yield f"report.html cannot be read: {error}"
    except report_html.PageError as error:
        yield f"no page can be made of report.json: {error}"
    named = {result["failure"]: result["case"] for result in report["results"] if result["failure"]}
    for name, case in named.items():
        try:
            if name != f"failures/{case}":
                yield f"{case}: its failure is said to be in {name}"
            elif case_json.digest(case_json.load(folder / name)) != case_json.digest(cases[case]):
                yield f"{name} holds another case than {case}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            yield f"{name} cannot be read: {error}"
    yield from _junit(report, folder / "junit.xml")


def _badges(run: Run, folder: Path) -> Iterator[str]:
    """The badges must say what the verdicts do."""
    for verdict in run.verdicts():
        name = f"{badge.FOLDER}/{verdict.profile.value}.svg"
        try:
            if (folder / name).read_text(encoding="utf-8") != badge.render(verdict):
                yield f"{name} does not say what the verdict is"
        except (OSError, UnicodeDecodeError) as error:
            yield f"{name} cannot be read: {error}"


def _junit(report: Mapping[str, Any], path: Path) -> Iterator[str]:
    """What pytest wrote itself, which is there unless pytest was told to write it elsewhere."""
    if not path.exists():
        return
    try:
        tests = ET.parse(path).getroot().iter("testcase")
        told = {}
        for test in tests:
            properties = {item.get("name"): item.get("value") for item in test.iter("property")}
            name = (test.get("name") or "").partition("[")[2].removesuffix("]")
            if "status" in properties:
                told[name] = properties["status"]
    except (OSError, ET.ParseError) as error:
        yield f"junit.xml cannot be read: {error}"
        return
    for result in report["results"]:
        if told.get(result["case"], result["status"]) != result["status"]:
            yield f"junit.xml says that {result['case']} is {told[result['case']]}, report.json {result['status']}"


def _signature(folder: Path, report: Mapping[str, Any], key: Ed25519PublicKey | None, notes: list[str]) -> list[str]:
    present = [name for name in manifest.SIGNED if (folder / name).exists()]
    if key is None:
        notes.append("it is signed; --key PUB checks by whom" if present else "it is not signed: nobody answers for it")
        return [] if len(present) in (0, 2) else [f"{present[0]} is there alone"]
    from mutcache_conformance import signing

    try:
        signing.check(folder, report, key)
    except signing.SignatureProblem as error:
        return [str(error)]
    return []
