"""Statuses of a case, and what a case ends with."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mutcache.requirements import Level, Profile, Req
from mutcache_conformance.evidence import Evidence


class Status(enum.StrEnum):
    """What became of a case. Only ``PASS`` counts for a claim."""

    PASS = "pass"
    FAIL = "fail"
    CRASH = "crash"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    NOT_APPLICABLE = "not-applicable"
    WAIVED = "waived"
    HARNESS_ERROR = "harness-error"
    NOT_RUN = "not-run"

    @property
    def is_failure(self) -> bool:
        """Whether pytest shows the case as failed; the others but ``PASS`` are shown as skipped."""
        return self in _FAILURES


_FAILURES: Final = frozenset({Status.FAIL, Status.CRASH, Status.TIMEOUT, Status.HARNESS_ERROR})


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The outcome of one case.

    Attributes:
        case: the case's id.
        profile: the profile it counts for.
        requirements: what it shows, most specific first.
        status: what became of it.
        reason: why it did not pass, readable without the harness's code; "" for a pass.
        cause: the same in one line that has no names or numbers of the case, so that cases with one cause share it.
        phase_expected: the phases in which the first refusal of the script is right; empty for a positive case.
        phase_observed: the operation that refused first (load, bind or run), or "".
        evidence: what was observed, step by step.
        memory: figures of memory, where it was measured: they differ a little from run to run, and so are no evidence.
        duration: seconds, the valid twin not included.
        attempts: how often the case was started; more than 1 when the runtime was already gone before the first step.
        case_sha256: digest of the case's canonical bytes.
        log: stem of the child's log files in the report folder.
        failure: folder of the saved case in the report folder, or "".
        rerun: the command that runs this one case again.
        unwaived: with a waiver, the status that the case would have without it.
    """

    case: str
    profile: Profile
    requirements: tuple[Req, ...]
    status: Status
    reason: str = ""
    cause: str = ""
    phase_expected: tuple[str, ...] = ()
    phase_observed: str = ""
    evidence: Evidence = field(default_factory=Evidence)
    memory: Mapping[str, Any] | None = None
    duration: float = 0.0
    attempts: int = 1
    case_sha256: str = ""
    log: str = ""
    failure: str = ""
    rerun: str = ""
    unwaived: Status | None = None

    @property
    def is_advice(self) -> bool:
        """Whether it fails a case of what a runtime SHOULD do, which stands in the way of nothing."""
        return self.status is Status.FAIL and self.requirements[0].level is Level.SHOULD

    def to_json(self) -> dict[str, Any]:
        """The result as it stands in report.json."""
        return {
            "case": self.case,
            "profile": self.profile.value,
            "requirements": [requirement.value for requirement in self.requirements],
            "status": self.status.value,
            "reason": self.reason,
            "cause": self.cause,
            "phase_expected": list(self.phase_expected),
            "phase_observed": self.phase_observed,
            "memory": self.memory,
            "duration": round(self.duration, 6),
            "attempts": self.attempts,
            "case_sha256": self.case_sha256,
            "log": self.log,
            "failure": self.failure,
            "rerun": self.rerun,
            "unwaived": self.unwaived.value if self.unwaived is not None else "",
            "evidence_sha256": self.evidence.digest(),
            "evidence": self.evidence.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CaseResult:
        """The result that ``to_json`` wrote."""
        return cls(
            case=data["case"],
            profile=Profile(data["profile"]),
            requirements=tuple(Req(requirement) for requirement in data["requirements"]),
            status=Status(data["status"]),
            reason=data["reason"],
            cause=data["cause"],
            phase_expected=tuple(data["phase_expected"]),
            phase_observed=data["phase_observed"],
            evidence=Evidence.from_json(data["evidence"]),
            memory=data["memory"],
            duration=data["duration"],
            attempts=data["attempts"],
            case_sha256=data["case_sha256"],
            log=data["log"],
            failure=data["failure"],
            rerun=data["rerun"],
            unwaived=Status(data["unwaived"]) if data["unwaived"] else None,
        )


class CaseEnded(Exception):  # noqa: N818 - an outcome, not a fault of the harness
    """A case is decided before its script is over: it did not pass.

    Args:
        status: what became of it.
        reason: why, in a sentence or two.
        cause: the same without names and numbers of the case.
    """

    def __init__(self, status: Status, reason: str, cause: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.cause = cause
