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
    """How a runtime did in the cases of one requirement."""

    runtime: str
    passed: int
    failed: int
    unsupported: int

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


def collect(root: Path) -> Facts:
    """The facts of a checkout."""
    cases: dict[Req, list[Case]] = defaultdict(list)
    for case in generate():
        for requirement in case.requirements:
            cases[requirement].append(case)
    faults: dict[Req, list[Fault]] = defaultdict(list)
    for fault in read_faults((root / FAULTS).read_text(encoding="utf-8")):
        faults[fault.requirement].append(fault)
    return Facts(cases, faults, read_landscape(root / LANDSCAPE, cases))


def read_faults(text: str) -> Iterator[Fault]:
    """The rows of the committed table."""
    for line in text.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and cells[2].startswith("MC-"):
            runtime, what, requirement, cases, status, reason = cells
            yield Fault(runtime, what, Req(requirement), tuple(re.findall(r"`([^`]+)`", cases)), status, reason)


def read_landscape(folder: Path, cases: Mapping[Req, Sequence[Case]]) -> dict[Req, list[Score]]:
    """The scores of each runtime with committed results: files ``NAME.json`` with ``results``: case ID to status."""
    scores: dict[Req, list[Score]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        statuses = document.get("results")
        if not isinstance(statuses, dict):
            continue
        for requirement, group in cases.items():
            found = [statuses[case.id] for case in group if case.id in statuses]
            if found:
                passed = found.count("pass")
                failed = sum(status in ("fail", "crash", "timeout") for status in found)
                scores[requirement].append(Score(path.stem, passed, failed, len(found) - passed - failed))
    return scores
