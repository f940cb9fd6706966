"""What the generated pages tell, collected once for a build: cases, faulty runtimes, and how known runtimes scored."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutcache.requirements import Req, Status, Subject
from mutcache_conformance.case import Case
from mutcache_conformance.cases import generate

#: The committed table of faulty runtimes.
FAULTS: Final = Path("conformance/FAULTS.md")
#: The committed, compact results of the runtimes that were measured.
LANDSCAPE: Final = Path("docs/landscape")
#: The statuses of cases that were played and did not pass.
_FAILED: Final = frozenset({"fail", "crash", "timeout", "harness-error"})
#: What in the reference does what a requirement says, where nothing is refused by it and so nothing bears its ID.
_DONE_BY: Final = {
    "PROTO": "reference/mutcache/proto",
    "PLAN": "reference/mutcache/program.py",
    "BIND": "reference/mutcache/executor.py",
    "DENSE": "reference/mutcache/ops/dense.py",
    "PAGED": "reference/mutcache/ops/paged.py",
    "QUANT": "reference/mutcache/quantization",
    "MEM": "reference/mutcache/ops",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A faulty runtime of the harness's tests, and the cases that find it out."""

    runtime: str
    what: str
    requirement: Req
    cases: tuple[str, ...]
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Score:
    """How a runtime did on one requirement, in the cases of the suite and in probes of its own interface.

    Attributes:
        runtime: its name, as ``--runtime`` takes it and its page of the landscape is called.
        title: its name for people.
        version: the version that was measured.
        passed, failed, unsupported: numbers of cases.
        probes: what was seen through its own interface, with the status of each.
        has_causes: whether its page says why something did not pass.
    """

    runtime: str
    title: str
    version: str
    passed: int
    failed: int
    unsupported: int
    probes: tuple[tuple[str, str], ...]
    has_causes: bool

    @property
    def total(self) -> int:
        """All cases."""
        return self.passed + self.failed + self.unsupported


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything by requirement."""

    cases: Mapping[Req, Sequence[Case]]
    faults: Mapping[Req, Sequence[Fault]]
    runtimes: Mapping[Req, Sequence[Score]]

    def reason_without_cases(self, requirement: Req) -> str:
        """Why a requirement has none."""
        entry = requirement.entry
        if entry.status is Status.RETIRED:
            return "It is retired."
        if entry.status is Status.PLANNED:
            return "It is planned: it has its number and its text."
        if entry.subject is Subject.TOOL:
            return "Only this project's own tools can show it: their tests do."
        return "None."

    def done_by(self, requirement: Req) -> str:
        """The file or folder of the reference that does what the requirement says; "" where that is not known."""
        return _DONE_BY.get(requirement.value.split("-")[1], "")


def collect(root: Path) -> Facts:
    """The facts of a checkout."""
    cases: dict[Req, list[Case]] = defaultdict(list)
    for case in generate():
        for requirement in case.requirements:
            cases[requirement].append(case)
    faults: dict[Req, list[Fault]] = defaultdict(list)
    subjects = {case.id: case.requirements[0] for case in generate()}
    for fault in read_faults((root / FAULTS).read_text(encoding="utf-8")):
        # A fault is known by one requirement; the other cases that it fails may be about others.
        for requirement in dict.fromkeys([fault.requirement, *(subjects[case] for case in fault.cases)]):
            faults[requirement].append(fault)
    return Facts(cases, faults, read_landscape(root / LANDSCAPE, cases))


def read_faults(text: str) -> Iterator[Fault]:
    """The rows of the committed table."""
    for line in text.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and cells[2].startswith("MC-"):
            runtime, what, requirement, cases, status, reason = cells
            yield Fault(runtime, what, Req(requirement), tuple(re.findall(r"`([^`]+)`", cases)), status, reason)


def read_landscape(folder: Path, cases: Mapping[Req, Sequence[Case]]) -> dict[Req, list[Score]]:
    """The scores of each runtime with committed results, the files ``NAME.json`` that ``make landscape`` writes."""
    scores: dict[Req, list[Score]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        statuses = document["results"]
        page = path.with_suffix(".rst")
        explained = page.read_text(encoding="utf-8") if page.is_file() else ""
        for requirement in Req:
            found = [statuses[case.id] for case in cases.get(requirement, ()) if case.id in statuses]
            probes = tuple(
                (observation["status"], f"{observation['done']} {observation['seen']}")
                for observation in document["observations"]
                if requirement in observation["requirements"]
            )
            if not found and not probes:
                continue
            passed = found.count("pass")
            failed = sum(status in _FAILED for status in found)
            scores[requirement].append(
                Score(
                    path.stem,
                    document["title"],
                    document["adapter"]["runtime_version"],
                    passed,
                    failed,
                    len(found) - passed - failed,
                    probes,
                    f".. _landscape-{path.stem}-{requirement.value.lower()}:" in explained,
                )
            )
    return scores
