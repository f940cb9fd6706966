"""Checks a report without the runtime: that it is whole, that it is about this suite, and that its verdicts follow.

What is found is a list of problems. What cannot be found this way is written down in ``UNVERIFIABLE``: members that
nothing else in a report determines. Digests prove integrity, not honesty: whoever makes a report can make the whole
record. A signature says who answers for it, and a rerun (see ``rerun``) whether it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mutcache_conformance import (
    manifest,
    provenance,
    verify_folder,
    verify_results,
    wording,
)
from mutcache_conformance.case import Case
from mutcache_conformance.protocol import VERSION as PROTOCOL
from mutcache_conformance.report import ReportError, read_report
from mutcache_conformance.verify_results import found_by, results_of, run_of

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
    "waivers.*.read",
)
#: So many problems of one kind are told.
_TOLD: Final = 20


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
    irregular = manifest.irregular(folder)
    if irregular:  # to read it may never end
        made.problems["manifest"] = irregular
        return made
    made.problems["manifest"] = found_by(manifest.problems, folder)
    try:
        report = read_report(folder / "report.json")
    except ReportError as error:
        made.problems["report"] = [str(error)]
        return made
    made.report, made.problems["report"] = report, []
    made.problems["suite"] = found_by(_check_report, made, folder, cases_of, report)
    signature = found_by(_signature, folder, report, key, made.notes)
    if key is not None or signature:
        made.problems["signature"] = signature
    made.problems = {check: _few(found) for check, found in made.problems.items()}
    return made


def _check_report(
    made: Verification, folder: Path, cases_of: Callable[[int], tuple[Case, ...]], report: dict[str, Any]
) -> Iterator[str]:
    """What the report rests on, against what is installed here; then everything that takes the cases."""
    made.problems["suite"] = []  # what this function yields, which is told before the rest
    made.notes += _notes(report, folder)
    if report["claim"]["selection"]:  # the run can be taken up again
        journal = f"{manifest.JOURNAL} is not in the manifest"
        made.problems["manifest"] = [one for one in made.problems["manifest"] if one != journal]
    cases = cases_of(report["configuration"]["nonce"])
    yield from _suite(report, cases)
    if report["suite"]["cases_sha256"] != provenance.digest_of_cases(cases):
        made.notes.append("results cannot be judged: this suite has other cases")
        return
    made.problems |= verify_results.problems(report, cases, made.notes)
    found = made.problems["folder"] = found_by(verify_folder.page, report, folder)
    found += found_by(verify_folder.failures, report, folder, {case.id: case for case in cases})
    results = [] if made.problems["cases"] else list(results_of(report).values())
    found += found_by(verify_folder.account, results, folder / "junit.xml")
    if not any(made.problems.values()):
        found += found_by(verify_folder.badges, run_of(report, results_of(report), cases).verdicts(), folder)


def _few(found: list[str]) -> list[str]:
    more = len(found) - _TOLD
    return [*found[:_TOLD], f"and {more} more"] if more > 0 else found


def _notes(report: Mapping[str, Any], folder: Path) -> list[str]:
    origin = report["suite"]["origin"]
    notes = []
    if origin["is_clean"] is False:
        notes.append(f"the suite that made it had files that its {origin['kind']} has not")
    if report["claim"]["selection"]:
        notes.append(f"it has no verdict: not all cases were asked for, or run ({report['claim']['selection']})")
    if any(verdict["rests_on_reported_evidence"] for verdict in report["claim"]["profiles"]):
        notes.append(f"{wording.ON_REPORTED}: {wording.on_whose_word(wording.device_of(report))}")
    if (folder / manifest.PARTIAL).exists():
        notes.append(f"{manifest.PARTIAL}/ is no part of it")
    return notes


def _suite(report: Mapping[str, Any], cases: tuple[Case, ...]) -> list[str]:
    """What the report rests on, against what is installed here."""
    here = {"version": provenance.version(), **provenance.digests(cases)}
    told = report["suite"]
    found = []
    if told["sources_sha256"] != here["sources_sha256"]:
        found.append(f"it was made by other files of the suite, version {told['version']}; here is {here['version']}")
        found += _changed("there", told["origin"]) + _changed("here", provenance.origin())
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


def _changed(where: str, origin: Mapping[str, Any]) -> list[str]:
    """Where the files of a suite come from, and which of them were changed since."""
    changed = f", with changes to {', '.join(origin['changed'])}" if origin["changed"] else ""
    commit = f" of commit {origin['commit'][:12]}" if origin["commit"] else ""
    return [f"{where} it is a {origin['kind']}{commit}{changed}"] if origin["kind"] != "unknown" else []


def _signature(folder: Path, report: Mapping[str, Any], key: Ed25519PublicKey | None, notes: list[str]) -> list[str]:
    present = [name for name in manifest.SIGNED if (folder / name).exists()]
    if key is None and not present:
        notes.append("it is not signed: nobody answers for it")
        return []
    try:
        from mutcache_conformance import signing
    except ModuleNotFoundError as error:
        notes.append(f"it bears a signature, which cannot be read without the package {error.name}")
        return []
    try:
        if key is None:
            signing.check_statement(folder, report)
            notes.append("it is signed; --key PUB checks by whom")
        else:
            signing.check(folder, report, key)
    except signing.SignatureProblem as error:
        return [str(error)]
    return []
